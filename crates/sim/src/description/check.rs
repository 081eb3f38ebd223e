//! What makes a [`Description`] one of a machine that can be simulated.

use super::{Description, MAX_CORES, MAX_CPUS, MAX_NODES, Measured, Siblings, Umwait};

/// What all caches have together, at most: what is simulated of them takes a tenth of it.
const MAX_CACHE_KIB: u64 = 1 << 24;

impl Description {
    /// Whether it can be simulated. The error names the field, and says what it must be.
    pub(super) fn check(&self) -> Result<(), String> {
        let shape = &self.topology;
        let sizes = [shape.packages, shape.nodes_per_package, shape.cores_per_node, shape.threads_per_core];
        let product = sizes.iter().try_fold(1_u32, |all, &size| all.checked_mul(size)).unwrap_or(u32::MAX);
        if product == 0 || product > MAX_CPUS || self.cores() > MAX_CORES || self.nodes() > MAX_NODES {
            return Err(format!(
                "topology: 1 to {MAX_CPUS} hardware threads on up to {MAX_CORES} cores and {MAX_NODES} nodes can be simulated"
            ));
        }
        let nodes = self.nodes() as usize;
        let rows = &shape.distances;
        if !rows.is_empty() && (rows.len() != nodes || rows.iter().any(|row| row.len() != nodes)) {
            return Err(format!("topology.distances: {nodes} rows of {nodes} numbers are needed, or none"));
        }
        let pairs = || (0..nodes as u32).flat_map(|a| (0..nodes as u32).map(move |b| (a, b)));
        let told = |a: u32, b: u32| rows.get(a as usize).map_or_else(|| self.distance(a, b), |row| row[b as usize]);
        if let Some((a, b)) = pairs().find(|&(a, b)| (told(a, b) == 0) != (a == b)) {
            return Err(format!(
                "topology.distances: from node {a} to node {b} it must be 0 if they are one, and only then"
            ));
        }
        let farthest = pairs().map(|(a, b)| self.distance(a, b)).max().unwrap_or(0) as usize;
        let latency = &self.latency_ns;
        let lists = [
            ("llc", &latency.llc),
            ("transfer", &latency.transfer),
            ("clean", &latency.clean),
            ("upgrade", &latency.upgrade),
            ("dram", &latency.dram),
        ];
        for (name, list) in lists {
            if list.len() <= farthest {
                return Err(format!("latency_ns.{name}: {} numbers are needed, one for each distance", farthest + 1));
            }
            if !list.is_sorted() {
                return Err(format!("latency_ns.{name}: what is farther away takes no less time"));
            }
        }
        for (name, cache) in [("l1", self.cache.l1), ("l2", self.cache.l2), ("llc", self.cache.llc)] {
            let lines = u64::from(cache.kib) * 16;
            if cache.ways == 0 || lines == 0 || lines % u64::from(cache.ways) != 0 || cache.kib > 1 << 20 {
                return Err(format!(
                    "cache.{name}: {} KiB do not make sets of {} lines of 64 bytes",
                    cache.kib, cache.ways
                ));
            }
        }
        let private = (u64::from(self.cache.l1.kib) + u64::from(self.cache.l2.kib)) * u64::from(self.cores());
        if private + u64::from(self.cache.llc.kib) * u64::from(self.nodes()) > MAX_CACHE_KIB {
            return Err(format!("cache: all caches of all cores and nodes have {MAX_CACHE_KIB} KiB at most"));
        }
        let tlb = &self.cache.tlb;
        if !(1..=1 << 16).contains(&tlb.entries) || !(4..=1 << 22).contains(&tlb.page_kib) {
            return Err("cache.tlb: 1 to 65,536 pages of 4 to 4,194,304 KiB".to_owned());
        }
        if self.name.is_empty() {
            return Err("name: it must not be empty".to_owned());
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), String> {
        let (latency, clock, band, os) = (&self.latency_ns, &self.clock, &self.bandwidth, &self.scheduler);
        let times = [
            ("latency_ns.llc", &latency.llc[..]),
            ("latency_ns.transfer", &latency.transfer),
            ("latency_ns.clean", &latency.clean),
            ("latency_ns.upgrade", &latency.upgrade),
            ("latency_ns.dram", &latency.dram),
            ("latency_ns.l1", &[latency.l1]),
            ("latency_ns.l2", &[latency.l2]),
            ("latency_ns.rmw", &[latency.rmw]),
            ("latency_ns.store", &[latency.store]),
            ("latency_ns.pause", &[latency.pause]),
            ("latency_ns.reorder", &[latency.reorder]),
            ("cache.tlb.walk_ns", &[self.cache.tlb.walk_ns]),
            ("bandwidth.line_ns", &[band.line_ns]),
            ("clock.step_ns", &[clock.step_ns]),
        ];
        if let Some((name, _)) = times.into_iter().find(|(_, times)| times.iter().any(|ns| !(0.0..=1e6).contains(ns))) {
            return Err(format!("{name}: times are from 0 to 1,000,000 ns"));
        }
        if latency.pause <= 0.0 || latency.l1 <= 0.0 {
            return Err("latency_ns: the times of a poll (pause) and of a hit (l1) are more than 0".to_owned());
        }
        if !(1.0..=64.0).contains(&latency.overlap) {
            return Err("latency_ns.overlap: 1 (one load at a time) to 64".to_owned());
        }
        let positive = |number: f64| (1e-3..=1e9).contains(&number);
        let shares = (0.5..=1.0).contains(&clock.smt_share) && (0.0..=1.0).contains(&clock.poll_share);
        let turbo = clock.turbo.is_sorted_by(|a, b| a.0 < b.0) && clock.turbo.iter().all(|(_, ghz)| positive(*ghz));
        if !positive(clock.ghz) || clock.pipelines < 1.0 || !clock.pipelines.is_finite() || !shares || !turbo {
            return Err("clock: GHz from 0.001, turbo in rising order of cores, pipelines from 1, smt_share 0.5 to 1, poll_share 0 to 1".to_owned());
        }
        if [band.llc_gbs, band.dram_gbs, band.link_gbs].iter().any(|gbs| !positive(*gbs)) || band.store_buffer == 0 {
            return Err("bandwidth: all of it is 0.001 GB/s or more".to_owned());
        }
        let os_times = [os.switch_us, os.syscall_us, os.wake_us, os.timer_slack_us];
        if os.slice_us < 1.0
            || !os.slice_us.is_finite()
            || os_times.iter().chain(os.idle_us.iter().map(|(_, us)| us)).any(|us| !(0.0..=1e6).contains(us))
            || !os.idle_us.is_sorted_by(|a, b| a.0 < b.0)
            || os.idle_us.iter().any(|(after, _)| !(0.0..=1e9).contains(after))
        {
            return Err(
                "scheduler: slices of 1 us and more, times from 0 to 1,000,000 us, idle_us in rising order".to_owned()
            );
        }
        let power = [self.power.busy_w, self.power.poll_w, self.power.local_nj, self.power.remote_nj];
        if power.iter().any(|number| !(0.0..=1e6).contains(number)) {
            return Err("power: from 0 to 1,000,000 W or nJ".to_owned());
        }
        let possible = |wait: &Umwait| {
            let max_us = wait.max_us > 0.0 && wait.max_us <= 1e6;
            max_us && (0.0..=1e6).contains(&wait.wake_ns) && (0.0..=1e3).contains(&wait.wait_w)
        };
        if !self.umwait.as_ref().is_none_or(possible) {
            return Err("umwait: wake_ns from 0 to 1,000,000, max_us above 0, wait_w from 0".to_owned());
        }
        for (name, list) in self.measured_ns.iter().flat_map(Measured::lists) {
            let farthest = latency.transfer.len() as u32;
            let rises = list.is_sorted_by(|a, b| a.0 < b.0) && list.iter().all(|(distance, _)| *distance < farthest);
            if !rises || list.iter().any(|(_, ns)| !(0.0..=1e6).contains(ns)) {
                return Err(format!("{name}: distances in rising order, each with 0 to 1,000,000 ns"));
            }
        }
        let siblings = self.measured_ns.iter().filter_map(|all| all.siblings.as_ref());
        for Siblings { load, cas, cas_ping_pong, store_ping_pong } in siblings {
            if ![load, cas, cas_ping_pong, store_ping_pong].iter().all(|ns| (0.0..=1e6).contains(*ns)) {
                return Err("measured_ns.siblings: each from 0 to 1,000,000 ns".to_owned());
            }
        }
        match &self.hypervisor {
            Some(vm) if !(vm.run_ms >= 1e-3 && vm.away_ms >= 0.0 && vm.run_ms + vm.away_ms <= 1e6) => {
                Err("hypervisor: run_ms is 0.001 or more, away_ms not negative".to_owned())
            }
            _ => Ok(()),
        }
    }
}
