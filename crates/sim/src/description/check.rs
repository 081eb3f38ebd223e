//! What makes a [`Description`] one of a machine that can be simulated.

use super::{Description, MAX_CORES, MAX_CPUS, MAX_NODES, Umwait};

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
        if self.cache.tlb.entries == 0 || self.cache.tlb.page_kib < 4 {
            return Err("cache.tlb: at least one page of at least 4 KiB is needed".to_owned());
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), String> {
        let (latency, clock, band, os) = (&self.latency_ns, &self.clock, &self.bandwidth, &self.scheduler);
        let lists = [&latency.llc, &latency.transfer, &latency.clean, &latency.upgrade, &latency.dram];
        let times = lists.into_iter().flatten().copied().chain([latency.l1, latency.l2, latency.rmw, latency.store]);
        let times = times.chain([latency.pause, latency.reorder, self.cache.tlb.walk_ns, band.line_ns, clock.step_ns]);
        if times.into_iter().any(|ns| !(0.0..=1e6).contains(&ns)) || latency.pause <= 0.0 || latency.l1 <= 0.0 {
            return Err(
                "latency_ns: times are from 0 to 1,000,000 ns; those of a poll and of a hit are more than 0".to_owned()
            );
        }
        if !(1.0..=64.0).contains(&latency.overlap) {
            return Err("latency_ns.overlap: 1 (one load at a time) to 64".to_owned());
        }
        let positive = |number: f64| number > 0.0 && number.is_finite();
        let shares = (0.5..=1.0).contains(&clock.smt_share) && (0.0..=1.0).contains(&clock.poll_share);
        let turbo = clock.turbo.is_sorted_by(|a, b| a.0 < b.0) && clock.turbo.iter().all(|(_, ghz)| positive(*ghz));
        if !positive(clock.ghz) || clock.pipelines < 1.0 || !clock.pipelines.is_finite() || !shares || !turbo {
            return Err("clock: GHz above 0, turbo in rising order of cores, pipelines from 1, smt_share 0.5 to 1, poll_share 0 to 1".to_owned());
        }
        if [band.llc_gbs, band.dram_gbs, band.link_gbs].iter().any(|gbs| !positive(*gbs)) || band.store_buffer == 0 {
            return Err("bandwidth: all of it is more than 0".to_owned());
        }
        let os_times = [os.switch_us, os.syscall_us, os.wake_us, os.timer_slack_us];
        if os.slice_us < 1.0
            || !os.slice_us.is_finite()
            || os_times.iter().chain(os.idle_us.iter().map(|(_, us)| us)).any(|us| !(0.0..=1e6).contains(us))
            || !os.idle_us.is_sorted_by(|a, b| a.0 < b.0)
        {
            return Err(
                "scheduler: slices of 1 us and more, times from 0 to 1,000,000 us, idle_us in rising order".to_owned()
            );
        }
        let possible = |wait: &Umwait| {
            let max_us = wait.max_us > 0.0 && wait.max_us <= 1e6;
            max_us && (0.0..=1e6).contains(&wait.wake_ns) && (0.0..=1e3).contains(&wait.wait_w)
        };
        if !self.umwait.as_ref().is_none_or(possible) {
            return Err("umwait: wake_ns from 0 to 1,000,000, max_us above 0, wait_w from 0".to_owned());
        }
        match &self.hypervisor {
            Some(vm) if !(vm.run_ms > 0.0 && vm.away_ms >= 0.0 && vm.run_ms + vm.away_ms <= 1e6) => {
                Err("hypervisor: run_ms is more than 0, away_ms not negative".to_owned())
            }
            _ => Ok(()),
        }
    }
}
