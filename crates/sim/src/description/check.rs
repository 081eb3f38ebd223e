//! Checks that a [`Description`] is of a machine that can be simulated.

use std::fmt::{self, Debug, Display};

use super::{
    Cache, Clock, Description, Hypervisor, MAX_CORES, MAX_CPUS, MAX_NODES, Measured, Siblings, TLB_WAYS, Umwait,
};

/// The maximum size of all caches together. The simulation's directories take a tenth of it.
const MAX_CACHE_KIB: u64 = 1 << 24;
/// The maximum of times, in ns or µs, and of power.
const MOST: f64 = 1e6;
/// The maximum of times that are not costs, in us. Virtual time, in ps, can hold thousands of such.
const LONGEST_US: f64 = 1e9;
const TIMES: &str = "times are from 0 to 1,000,000 ns";
const TIMES_US: &str = "times are from 0 to 1,000,000 us";

/// A value that breaks a rule.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Table and key.
    pub(super) field: String,
    value: String,
    rule: String,
}

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.field, self.value, self.rule)
    }
}

/// Fails with the field, the value and the rule, unless `right`.
fn must(right: bool, field: &str, value: impl Debug, rule: &str) -> Result<(), Wrong> {
    // In a file, pairs are written as lists of two.
    let value = || format!("{value:?}").replace('(', "[").replace(')', "]");
    if right { Ok(()) } else { Err(Wrong { field: field.into(), value: value(), rule: rule.into() }) }
}

/// The same for numbers that must each be from `least` to `most`. The text `rule` says so.
fn all_from(least: f64, most: f64, rule: &str, fields: &[(&str, f64)]) -> Result<(), Wrong> {
    fields.iter().try_for_each(|(field, number)| must((least..=most).contains(number), field, number, rule))
}

impl Description {
    /// Whether it can be simulated. The error names the field and its value, and says what it must be.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let is_word = |name: &str| !name.contains(|c: char| c.is_whitespace() || c.is_control());
        must(!self.name.is_empty(), "name", &self.name, "it must not be empty")?;
        must(is_word(&self.name), "name", &self.name, "it must be one word")?;
        self.check_shape()?;
        self.check_lists()?;
        self.check_caches()?;
        self.check_latencies()?;
        self.clock.check()?;
        self.check_rest()?;
        self.measured_ns.as_ref().map_or(Ok(()), |all| all.check(self.latency_ns.transfer.len() as u32))?;
        self.umwait.as_ref().map_or(Ok(()), Umwait::check)?;
        self.hypervisor.as_ref().map_or(Ok(()), Hypervisor::check)
    }

    fn check_shape(&self) -> Result<(), Wrong> {
        let shape = &self.topology;
        let sizes = [
            ("topology.packages", shape.packages),
            ("topology.nodes_per_package", shape.nodes_per_package),
            ("topology.cores_per_node", shape.cores_per_node),
            ("topology.threads_per_core", shape.threads_per_core),
        ];
        sizes.iter().try_for_each(|(field, size)| must(*size > 0, field, size, "1 or more"))?;
        let product = sizes.iter().try_fold(1_u32, |all, (_, size)| all.checked_mul(*size)).unwrap_or(u32::MAX);
        let fits = product <= MAX_CPUS && self.cores() <= MAX_CORES && self.nodes() <= MAX_NODES;
        let most = format!(
            "packages, nodes of each, their cores and threads: 1 to {MAX_CPUS} hardware threads on up to {MAX_CORES} \
             cores and {MAX_NODES} nodes can be simulated"
        );
        must(fits, "topology", sizes.map(|(_, size)| size), &most)?;
        let (nodes, rows) = (self.nodes() as usize, &shape.distances);
        let square = rows.is_empty() || rows.len() == nodes && rows.iter().all(|row| row.len() == nodes);
        let rule = format!("{nodes} rows of {nodes} numbers are needed, or none");
        must(square, "topology.distances", rows, &rule)?;
        // There cannot be more distances than ordered pairs of nodes.
        let (most, kinds) = (rows.iter().flatten().max().copied().unwrap_or(0), nodes as u32 * (nodes as u32 - 1));
        must(most <= kinds, "topology.distances", rows, &format!("{kinds} at most, for so many nodes"))?;
        for (a, row) in rows.iter().enumerate() {
            for (b, distance) in row.iter().enumerate() {
                let rule = format!("from node {a} to node {b} it must be 0 if they are one, and only then");
                must((*distance == 0) == (a == b), "topology.distances", rows, &rule)?;
            }
        }
        Ok(())
    }

    /// Checks the lists by distance.
    fn check_lists(&self) -> Result<(), Wrong> {
        let latency = &self.latency_ns;
        let nodes = 0..self.nodes();
        let pairs = nodes.clone().flat_map(|a| nodes.clone().map(move |b| (a, b)));
        let needed = 1 + pairs.map(|(a, b)| self.distance(a, b)).max().unwrap_or(0) as usize;
        let enough = format!("{needed} numbers are needed, one for each distance");
        for (field, list) in [
            ("latency_ns.llc", &latency.llc),
            ("latency_ns.transfer", &latency.transfer),
            ("latency_ns.clean", &latency.clean),
            ("latency_ns.upgrade", &latency.upgrade),
            ("latency_ns.dram", &latency.dram),
        ] {
            must(list.len() >= needed, field, list, &enough)?;
            must(list.iter().all(|ns| (0.0..=MOST).contains(ns)), field, list, TIMES)?;
            must(list.is_sorted(), field, list, "what is farther away takes no less time")?;
        }
        Ok(())
    }

    fn check_caches(&self) -> Result<(), Wrong> {
        let caches = &self.cache;
        for (field, Cache { kib, ways }) in
            [("cache.l1", caches.l1), ("cache.l2", caches.l2), ("cache.llc", caches.llc)]
        {
            let lines = u64::from(kib) * 16;
            let sets = ways != 0 && lines != 0 && lines.is_multiple_of(u64::from(ways)) && kib <= 1 << 20;
            let rule = format!("{kib} KiB (up to 1,048,576) do not make sets of {ways} lines of 64 bytes");
            must(sets, field, format_args!("{{ kib = {kib}, ways = {ways} }}"), &rule)?;
        }
        let private = (u64::from(caches.l1.kib) + u64::from(caches.l2.kib)) * u64::from(self.cores());
        let all = private + u64::from(caches.llc.kib) * u64::from(self.nodes());
        let rule = format!("KiB of all caches of all cores and nodes: {MAX_CACHE_KIB} at most");
        must(all <= MAX_CACHE_KIB, "cache", all, &rule)?;
        let (l1, l2) = (caches.l1.kib, caches.l2.kib);
        let rule = format!("KiB: the second level includes the first, and has no less than its {l1}");
        must(l2 >= l1, "cache.l2.kib", l2, &rule)?;
        let (pages, size) = (caches.tlb.entries, caches.tlb.page_kib);
        must((1..=1 << 16).contains(&pages), "cache.tlb.entries", pages, "1 to 65,536 pages")?;
        let whole = pages < TLB_WAYS || pages.is_multiple_of(TLB_WAYS);
        must(whole, "cache.tlb.entries", pages, &format!("sets of {TLB_WAYS} pages, or one smaller one"))?;
        must((4..=1 << 22).contains(&size), "cache.tlb.page_kib", size, "pages of 4 to 4,194,304 KiB")
    }

    /// Checks the latencies of one number each.
    fn check_latencies(&self) -> Result<(), Wrong> {
        let (latency, band) = (&self.latency_ns, &self.bandwidth);
        let times = [
            ("latency_ns.l1", latency.l1),
            ("latency_ns.l2", latency.l2),
            ("latency_ns.rmw", latency.rmw),
            ("latency_ns.store", latency.store),
            ("latency_ns.pause", latency.pause),
            ("latency_ns.reorder", latency.reorder),
            ("cache.tlb.walk_ns", self.cache.tlb.walk_ns),
            ("bandwidth.line_ns", band.line_ns),
            ("clock.step_ns", self.clock.step_ns),
        ];
        all_from(0.0, MOST, TIMES, &times)?;
        must(latency.l1 > 0.0, "latency_ns.l1", latency.l1, "a hit takes more than 0 ns")?;
        must(latency.pause > 0.0, "latency_ns.pause", latency.pause, "a poll takes more than 0 ns")?;
        let rule = format!("a hit in the second level takes no less than one in the first ({:?} ns)", latency.l1);
        must(latency.l2 >= latency.l1, "latency_ns.l2", latency.l2, &rule)?;
        all_from(1.0, 64.0, "1 (one load at a time) to 64", &[("latency_ns.overlap", latency.overlap)])
    }

    /// Checks bandwidths, scheduler and power.
    fn check_rest(&self) -> Result<(), Wrong> {
        let (band, os, power) = (&self.bandwidth, &self.scheduler, &self.power);
        let bands = [
            ("bandwidth.llc_gbs", band.llc_gbs),
            ("bandwidth.dram_gbs", band.dram_gbs),
            ("bandwidth.link_gbs", band.link_gbs),
        ];
        all_from(1e-3, 1e9, "0.001 to 1,000,000,000 GB/s", &bands)?;
        must(band.store_buffer > 0, "bandwidth.store_buffer", band.store_buffer, "1 or more stores")?;
        let slice = [("scheduler.slice_us", os.slice_us)];
        all_from(1.0, LONGEST_US, "slices are from 1 to 1,000,000,000 us", &slice)?;
        let times = [
            ("scheduler.switch_us", os.switch_us),
            ("scheduler.syscall_us", os.syscall_us),
            ("scheduler.wake_us", os.wake_us),
            ("scheduler.timer_slack_us", os.timer_slack_us),
        ];
        all_from(0.0, MOST, TIMES_US, &times)?;
        let idle = &os.idle_us;
        must(idle.iter().all(|(_, us)| (0.0..=MOST).contains(us)), "scheduler.idle_us", idle, TIMES_US)?;
        let is_time = |after: &f64| (0.0..=LONGEST_US).contains(after);
        let rising = idle.is_sorted_by(|a, b| a.0 < b.0) && idle.iter().all(|(after, _)| is_time(after));
        must(rising, "scheduler.idle_us", idle, "for how long it was idle, from 0 to 1e9 us, in rising order")?;
        let watts = [("power.busy_w", power.busy_w), ("power.poll_w", power.poll_w)];
        all_from(0.0, MOST, "from 0 to 1,000,000 W", &watts)?;
        let joules = [("power.local_nj", power.local_nj), ("power.remote_nj", power.remote_nj)];
        all_from(0.0, MOST, "from 0 to 1,000,000 nJ", &joules)
    }
}

impl Clock {
    fn check(&self) -> Result<(), Wrong> {
        const GHZ: &str = "GHz from 0.001 to 1,000,000,000";
        let possible = |ghz: f64| (1e-3..=1e9).contains(&ghz);
        must(possible(self.ghz), "clock.ghz", self.ghz, GHZ)?;
        must(self.turbo.iter().all(|(_, ghz)| possible(*ghz)), "clock.turbo", &self.turbo, GHZ)?;
        must(self.turbo.is_sorted_by(|a, b| a.0 < b.0), "clock.turbo", &self.turbo, "in rising order of cores")?;
        let pipelines = self.pipelines >= 1.0 && self.pipelines.is_finite();
        must(pipelines, "clock.pipelines", self.pipelines, "1 or more")?;
        all_from(0.5, 1.0, "a share from 0.5 to 1", &[("clock.smt_share", self.smt_share)])?;
        all_from(0.0, 1.0, "a share from 0 to 1", &[("clock.poll_share", self.poll_share)])
    }
}

impl Umwait {
    fn check(&self) -> Result<(), Wrong> {
        all_from(0.0, MOST, TIMES, &[("umwait.wake_ns", self.wake_ns)])?;
        let max_us = self.max_us > 0.0 && self.max_us <= MOST;
        must(max_us, "umwait.max_us", self.max_us, "more than 0, up to 1,000,000 us")?;
        all_from(0.0, 1e3, "from 0 to 1,000 W", &[("umwait.wait_w", self.wait_w)])
    }
}

impl Hypervisor {
    fn check(&self) -> Result<(), Wrong> {
        all_from(1e-3, MOST, "0.001 to 1,000,000 ms", &[("hypervisor.run_ms", self.run_ms)])?;
        all_from(0.0, MOST, "0 to 1,000,000 ms", &[("hypervisor.away_ms", self.away_ms)])
    }
}

impl Measured {
    /// `known`: the number of distances.
    fn check(&self, known: u32) -> Result<(), Wrong> {
        for (field, list) in self.lists() {
            let rises = list.is_sorted_by(|a, b| a.0 < b.0) && list.iter().all(|(distance, _)| *distance < known);
            must(rises, field, list, &format!("distances in rising order, below {known}"))?;
            must(list.iter().all(|(_, ns)| (0.0..=MOST).contains(ns)), field, list, TIMES)?;
        }
        let Some(Siblings { load, cas, cas_ping_pong, store_ping_pong }) = self.siblings else { return Ok(()) };
        let siblings = [
            ("measured_ns.siblings.load", load),
            ("measured_ns.siblings.cas", cas),
            ("measured_ns.siblings.cas_ping_pong", cas_ping_pong),
            ("measured_ns.siblings.store_ping_pong", store_ping_pong),
        ];
        all_from(0.0, MOST, TIMES, &siblings)
    }
}
