//! All measurements, in order.

use flashlock_measure::costs::effort::{Effort, free_memory};
use flashlock_measure::costs::own;
use flashlock_measure::cpu;
use flashlock_native::topology::Topology;
use flashlock_report::units;
use flashlock_sim::Description;
use flashlock_sim::description::{Cache, Latency, Measured};
use indicatif::{ProgressBar, ProgressStyle};

use super::shape::{self, Shape};
use super::sheet::Sheet;
use super::{DEFAULTS, TICK, order, plausible};
use crate::failure::Failure;

/// How often an implausible figure is measured.
pub(super) const TRIES: usize = 3;

/// A machine under measurement.
pub(super) struct Session {
    pub(super) effort: Effort,
    pub(super) shape: Shape,
    /// It starts as the description of the machine with the defaults.
    pub(super) found: Description,
    pub(super) sheet: Sheet,
    progress: ProgressBar,
}

impl Session {
    /// A session that is ready to begin.
    pub(super) fn new(effort: Effort, machine: &Topology) -> Result<Self, Failure> {
        let shape = Shape::of(machine);
        let mut found = Description::find(DEFAULTS).map_err(Failure::new)?;
        found.topology = shape.topology.clone();
        found.clock.turbo.clear();
        let distances = shape.farthest() as usize + 1;
        let latency = &mut found.latency_ns;
        for list in
            [&mut latency.llc, &mut latency.transfer, &mut latency.clean, &mut latency.upgrade, &mut latency.dram]
        {
            // Distances beyond the known ones are assumed to be like the farthest known one.
            let farthest = list.last().copied().unwrap_or_default();
            list.resize(distances, farthest);
        }
        let mut sheet = Sheet::default();
        shape.remarks.iter().for_each(|remark| sheet.remark(remark));
        if machine.virtualised == Some(true) {
            let remark = "a virtual machine: its shape and caches are what the hypervisor shows, and its loads find \
                          pages twice, once for the hypervisor";
            sheet.remark(remark);
        }
        let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {msg}").map_err(Failure::new)?;
        let pairs: usize = (0..distances as u32).map(|distance| shape.pairs(distance, effort.pairs()).len()).sum();
        let pairs = pairs + shape.siblings().len().min(effort.pairs());
        let progress = ProgressBar::new((5 + distances + pairs) as u64).with_style(style);
        progress.enable_steady_tick(TICK);
        Ok(Self { effort, shape, found, sheet, progress })
    }

    /// Measures everything that this process is allowed to.
    pub(super) fn run(&mut self) {
        let home = self.home();
        self.step("caches of this machine");
        self.caches(home.unwrap_or(0));
        self.step("operations on own lines");
        let addition = self.operations(home);
        self.step("loads from caches and memory");
        self.loads(home);
        self.addition(addition);
        self.found.measured_ns = None;
        for distance in 0..=self.shape.farthest() {
            self.step(&format!("lines between CPUs, distance {distance}"));
            self.lines(distance);
        }
        self.siblings();
        self.found.measured_ns = self.found.measured_ns.take().filter(|all| *all != Measured::default());
        self.step("the system's calls and switches");
        let calls = self.calls(home);
        self.step("waking threads up");
        self.wake_ups(home, calls);
        self.timed_sleeps(home);
        for name in ["smt_share", "poll_share", "step_ns", "reorder", "overlap", "bandwidth", "power"] {
            self.sheet.miss(name);
        }
        self.progress.finish_and_clear();
    }

    pub(super) fn step(&self, what: &str) {
        self.progress.inc(1);
        self.progress.set_message(what.to_owned());
    }

    /// The CPU on which single-CPU measurements run: the first available one.
    fn home(&mut self) -> Option<u32> {
        let mut cpus = self.shape.nodes.iter().flat_map(|node| &node.usable).flatten().copied();
        let home = cpus.find(|&cpu| cpu::on(cpu, || ()).is_some());
        if home.is_none() {
            self.sheet.remark("threads cannot be bound to CPUs here, so almost nothing could be measured");
        }
        home
    }

    fn caches(&mut self, cpu: u32) {
        let found = shape::caches(cpu);
        let of = |level: u32| found.iter().find(|cache| cache.level == level).map(|cache| cache.size);
        let last = found.last().filter(|cache| cache.level >= 3).map(|cache| cache.size);
        let caches = &mut self.found.cache;
        for (name, size, into) in
            [("L1", of(1), &mut caches.l1), ("L2", of(2), &mut caches.l2), ("last level", last, &mut caches.llc)]
        {
            match size {
                Some(size) => {
                    *into = size;
                    let bytes = u64::from(size.kib) << 10;
                    let (name, text) = (format!("{name} size"), units::bytes(bytes));
                    self.sheet.tell(name, bytes as f64, "bytes", text, "reported by the kernel");
                }
                None => self.sheet.miss(format!("{name} size")),
            }
        }
        match shape::inclusive() {
            Some(inclusive) => caches.inclusive = inclusive,
            None => self.sheet.miss("whether the last-level cache is inclusive"),
        }
        self.sheet.miss("TLB size");
    }

    /// Operations on own lines. Returns the time of an atomic addition, in ns.
    fn operations(&mut self, home: Option<u32>) -> Option<f64> {
        let effort = self.effort;
        let here = |measure: fn(Effort) -> Option<f64>| cpu::on(home?, || measure(effort))?;
        let Self { found, sheet, .. } = self;
        let latency = &mut found.latency_ns;
        sheet.put(
            "clock",
            here(own::clock),
            "GHz",
            "a chain of operations of one cycle, one thread",
            &mut found.clock.ghz,
        );
        let addition = here(own::rmw);
        sheet.put("store", here(own::store), "ns", "to a line of its own", &mut latency.store);
        sheet.put("pause", here(own::pause), "ns", "the polling hint, in a loop", &mut latency.pause);
        let how = "a line in each of 8,192 pages, minus 8,192 adjacent lines";
        sheet.put("page walk", here(own::page_walk), "ns", how, &mut found.cache.tlb.walk_ns);
        addition
    }

    /// What an atomic addition of `ns` takes beyond its load. Loads must be known.
    fn addition(&mut self, ns: Option<f64>) {
        let latency = &mut self.found.latency_ns;
        let beyond = ns.map(|ns| beyond_load(latency, ns));
        let how = "to a line of its own, minus an L1 load";
        self.sheet.put("atomic addition", beyond, "ns", how, &mut latency.rmw);
    }

    fn loads(&mut self, home: Option<u32>) {
        let effort = self.effort;
        let bytes = |cache: Cache| cache.kib as usize * 1024;
        let [l1, l2, llc] = [self.found.cache.l1, self.found.cache.l2, self.found.cache.llc].map(bytes);
        let load = |bytes: usize| cpu::on(home?, || own::load(effort, bytes))?;
        let memory = effort
            .memory(llc, free_memory())
            .map_err(|why| self.sheet.remark(format!("memory was not measured: {why}")));
        let memory = memory.ok();
        let Self { found, sheet, .. } = self;
        let latency = &mut found.latency_ns;
        let within = (8 * l2).min(llc / 2);
        let all = || [load(l1 / 2), load((l2 / 2).max(2 * l1).min(l2)), load(within), memory.and_then(load)];
        let mut loads = all();
        for _ in 1..TRIES {
            if plausible::in_order(loads) {
                break;
            }
            loads = all();
        }
        let [in_l1, in_l2, in_llc, in_memory] = loads;
        sheet.put(order::L1, in_l1, "ns", "random walk through half of it", &mut latency.l1);
        sheet.put(order::L2, in_l2, "ns", "random walk through half of it", &mut latency.l2);
        let how = "random walk through 8 times the L2, or half of it";
        let named = |what| order::named(what, 0, latency.llc.len());
        let (last, behind) = (named(order::LLC), named(order::DRAM));
        sheet.put(last, in_llc, "ns", how, &mut latency.llc[0]);
        let how = "random walk through 4 times the last-level cache, or the memory that may be used";
        sheet.put(behind, in_memory, "ns", how, &mut latency.dram[0]);
    }
}

/// What a read-modify-write of an own line, of `ns` in all, takes beyond its load, in ns. The simulation adds the load.
fn beyond_load(latency: &Latency, ns: f64) -> f64 {
    (ns - latency.l1).max(0.0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::atomic::Ordering::Relaxed;

    use flashlock_locks::machine::Word as _;
    use flashlock_sim::{self as sim, Options, Simulation, Word};

    use super::super::distances::upgrade;
    use super::*;

    /// The ns of `act` on a simulated machine, on a word that another core has read, too, if `shared`.
    fn simulated(machine: &Description, shared: bool, act: impl Fn(&Word) + 'static) -> f64 {
        let mut simulation = Simulation::new(machine, Options::default());
        let word = Rc::new(simulation.place("word", Word::new(0)));
        let (took, theirs) = (Rc::new(Cell::new(0)), Rc::clone(&word));
        let told = Rc::clone(&took);
        simulation.spawn(move || {
            word.fetch_add(1, Relaxed);
            sim::delay(10e3);
            if shared {
                word.load(Relaxed);
            }
            let begin = sim::now();
            act(&word);
            told.set(sim::now() - begin);
        });
        simulation.spawn(move || {
            sim::delay(5e3);
            if shared {
                theirs.load(Relaxed);
            }
        });
        simulation.run().expect("it ends");
        took.get() as f64
    }

    #[test]
    fn simulated_operations_cost_what_was_measured() {
        const TIMES: u32 = 1000;
        let mut machine = Description::find(DEFAULTS).expect("a machine");
        machine.topology.packages = 1;
        let latency = &mut machine.latency_ns;
        latency.rmw = beyond_load(latency, 7.25);
        latency.upgrade[0] = upgrade(latency, 60.0).expect("it takes time");
        let loop_ns = simulated(&machine, false, |word| {
            for _ in 0..TIMES {
                word.fetch_add(1, Relaxed);
            }
        });
        let each = loop_ns / f64::from(TIMES);
        assert!((each - 7.25).abs() < 0.01, "an addition takes {each} ns");
        let one = simulated(&machine, true, |word| {
            word.fetch_add(1, Relaxed);
        });
        assert!((one - 60.0).abs() <= 1.0, "a word that another core has read takes {one} ns");
        assert_eq!(beyond_load(&machine.latency_ns, 1.0), 0.0);
    }
}
