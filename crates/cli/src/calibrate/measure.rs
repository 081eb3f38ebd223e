//! All measurements, in order.

use std::fs;

use flashlock_native::topology::Topology;
use flashlock_report::units;
use flashlock_sim::Description;
use flashlock_sim::description::{Cache, Measured, Siblings};
use indicatif::{ProgressBar, ProgressStyle};

use super::pairs::{self, Remote, Travel};
use super::shape::{self, Shape};
use super::sheet::Sheet;
use super::{DEFAULTS, Effort, TICK, cpu, kernel, own, plausible};
use crate::failure::Failure;

/// What cannot be true is measured so often.
const TRIES: usize = 3;

/// A machine under measurement.
pub(super) struct Session {
    effort: Effort,
    shape: Shape,
    /// Begins as the machine that has the defaults.
    pub(super) found: Description,
    pub(super) sheet: Sheet,
    progress: ProgressBar,
}

impl Session {
    /// Ready to begin.
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
            // What is farther than all that is known is taken to be as far as the farthest of it.
            let farthest = list.last().copied().unwrap_or_default();
            list.resize(distances, farthest);
        }
        let mut sheet = Sheet::default();
        sheet.remarks.clone_from(&shape.remarks);
        if machine.virtualised == Some(true) {
            let remark = "a virtual machine: its shape and caches are what the hypervisor shows, and its loads find pages twice, \
                          once for the hypervisor";
            sheet.remarks.push(remark.to_owned());
        }
        let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {msg}").map_err(Failure::new)?;
        let pairs: usize = (0..distances as u32).map(|distance| shape.pairs(distance, effort.pairs()).len()).sum();
        let pairs = pairs + shape.siblings().len().min(effort.pairs());
        let progress = ProgressBar::new((5 + distances + pairs) as u64).with_style(style);
        progress.enable_steady_tick(TICK);
        Ok(Self { effort, shape, found, sheet, progress })
    }

    /// Measures everything that this process may.
    pub(super) fn run(&mut self) {
        let home = self.home();
        self.step("caches of this machine");
        self.caches(home.unwrap_or(0));
        self.step("operations on own lines");
        self.operations(home);
        self.step("loads from caches and memory");
        self.loads(home);
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
        for name in ["smt_share", "poll_share", "step_ns", "reorder", "overlap", "bandwidth", "power"] {
            self.sheet.miss(name);
        }
        self.progress.finish_and_clear();
    }

    fn step(&self, what: &str) {
        self.progress.inc(1);
        self.progress.set_message(what.to_owned());
    }

    /// The CPU where things are measured that take one: the first that can be had.
    fn home(&mut self) -> Option<u32> {
        let mut cpus = self.shape.nodes.iter().flat_map(|node| &node.usable).flatten().copied();
        let home = cpus.find(|&cpu| cpu::on(cpu, || ()).is_some());
        if home.is_none() {
            self.sheet
                .remarks
                .push("threads cannot be bound to CPUs here, so nearly nothing could be measured".to_owned());
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
                    let bytes = units::bytes(u64::from(size.kib) << 10);
                    self.sheet.tell(format!("{name} size"), bytes, "the kernel says so");
                }
                None => self.sheet.miss(format!("{name} size")),
            }
        }
        match inclusive() {
            Some(inclusive) => caches.inclusive = inclusive,
            None => self.sheet.miss("whether the last level is inclusive"),
        }
        self.sheet.miss("TLB size");
    }

    fn operations(&mut self, home: Option<u32>) {
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
        sheet.put("atomic addition", here(own::rmw), "ns", "to a line of its own", &mut latency.rmw);
        sheet.put("store", here(own::store), "ns", "to a line of its own", &mut latency.store);
        sheet.put("pause", here(own::pause), "ns", "the polling hint, in a loop", &mut latency.pause);
        let how = "a line in each of 8,192 pages, less 8,192 lines side by side";
        sheet.put("page walk", here(own::page_walk), "ns", how, &mut found.cache.tlb.walk_ns);
    }

    fn loads(&mut self, home: Option<u32>) {
        let effort = self.effort;
        let bytes = |cache: Cache| cache.kib as usize * 1024;
        let [l1, l2, llc] = [self.found.cache.l1, self.found.cache.l2, self.found.cache.llc].map(bytes);
        let load = |bytes: usize| cpu::on(home?, || own::load(effort, bytes))?;
        let memory = self.effort.memory(llc);
        if memory.is_none() {
            self.sheet.remarks.push(
                "memory was not measured: it takes more than twice the last level, and a quarter of what is free"
                    .into(),
            );
        }
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
        sheet.put("L1 load", in_l1, "ns", "random walk through half of it", &mut latency.l1);
        sheet.put("L2 load", in_l2, "ns", "random walk through half of it", &mut latency.l2);
        let how = "random walk through 8 times the L2, or half of it";
        sheet.put("last-level load", in_llc, "ns", how, &mut latency.llc[0]);
        sheet.put("memory load", in_memory, "ns", "random walk through 4 times the last level", &mut latency.dram[0]);
    }

    /// What travels between all these pairs of CPUs, or a sample; `between` says which they are, `of` what is made of it.
    fn travels(&mut self, between: &str, all: &[[u32; 2]], of: &'static str) -> Vec<Travel> {
        let pairs = shape::sample(all, self.effort.pairs());
        let (wanted, rounds) = (pairs.len(), self.effort.rounds_of(pairs.len()));
        let travel = |(number, pair): (usize, &[u32; 2])| {
            self.step(&format!("lines between CPUs, {between}: pair {} of {wanted}", number + 1));
            pairs::travel(rounds, *pair)
        };
        let travels: Vec<Travel> = pairs.iter().enumerate().filter_map(travel).collect();
        let (all, measured) = (all.len(), travels.len());
        if measured < all {
            self.sheet.remarks.push(format!("lines between CPUs, {between}: {measured} of {all} pairs"));
        }
        if measured > 0 {
            let pairs = format!("{} of {}", units::count(measured as u64), units::count(all as u64));
            self.sheet.tell(format!("pairs, {between}"), pairs, of);
        }
        travels
    }

    /// What travels so far: the median of pairs of CPUs.
    fn lines(&mut self, distance: u32) {
        let how = "of CPUs of different cores; the figures of lines between CPUs are their medians";
        let travels = self.travels(&format!("distance {distance}"), &self.shape.all_pairs(distance), how);
        let of_pairs = |of: fn(&Travel) -> f64| middle(travels.iter().map(of));
        let Self { found, sheet, shape, .. } = self;
        let latency = &mut found.latency_ns;
        let at = distance as usize;
        let name =
            |what: &str| if shape.farthest() == 0 { what.to_owned() } else { format!("{what}, distance {distance}") };
        let how = "random walk through 16 KiB that the other has just written";
        sheet.put(name("modified line, load"), of_pairs(|all| all.load), "ns", how, &mut latency.transfer[at]);
        let measured = found.measured_ns.get_or_insert_default();
        let how = "the same with compare-and-swap";
        sheet.note(name("modified line, CAS"), of_pairs(|all| all.cas), how, distance, &mut measured.cas);
        let rmw = latency.rmw;
        let upgrade = of_pairs(|all| all.shared).map(|ns| ns - rmw).filter(|ns| *ns > 0.0);
        let how = "compare-and-swap on lines that both have read, less one on an own line";
        sheet.put(name("shared line made own"), upgrade, "ns", how, &mut latency.upgrade[at]);
        let how = "half a round trip of a word that both change by CAS";
        let handover = of_pairs(|all| all.handover);
        sheet.note(name("hand-over"), handover, how, distance, &mut measured.cas_ping_pong);
        let how = "the same, but each polls and then stores";
        let stores = of_pairs(|all| all.stores);
        sheet.note(name("hand-over by stores"), stores, how, distance, &mut measured.store_ping_pong);
        if distance > 0 {
            self.remote(distance);
        }
    }

    /// What the hardware threads of a core see of each other. The simulation gives them one cache, and takes none of it.
    fn siblings(&mut self) {
        let all = self.shape.siblings();
        if all.is_empty() {
            return;
        }
        let how = "of hardware threads of one core; the figures of siblings are their medians";
        let travels = self.travels("siblings", &all, how);
        let of_pairs = |of: fn(&Travel) -> f64| middle(travels.iter().map(of));
        let measured = || {
            Some(Siblings {
                load: of_pairs(|all| all.load)?,
                cas: of_pairs(|all| all.cas)?,
                cas_ping_pong: of_pairs(|all| all.handover)?,
                store_ping_pong: of_pairs(|all| all.stores)?,
            })
        };
        let Some(found) = measured() else { return self.sheet.miss("lines between siblings") };
        let found = self.found.measured_ns.get_or_insert_default().siblings.insert(found);
        for (what, ns, how) in [
            ("load", &mut found.load, "of a line that the other hardware thread of the core has just written"),
            ("CAS", &mut found.cas, "the same with compare-and-swap"),
            ("hand-over", &mut found.cas_ping_pong, "half a round trip of a word that both change by CAS"),
            ("hand-over by stores", &mut found.store_ping_pong, "the same, but each polls and then stores"),
        ] {
            self.sheet.put(format!("siblings: {what}"), Some(*ns), "ns", how, ns);
        }
    }

    /// What a CPU sees of a node so far away.
    fn remote(&mut self, distance: u32) {
        let (effort, pairs) = (self.effort, self.shape.pairs(distance, 2));
        let Self { found, sheet, .. } = self;
        let [l2, llc] = [found.cache.l2, found.cache.llc].map(|cache| cache.kib as usize * 1024);
        let (within, memory) = ((4 * l2).min(llc / 2), effort.memory(llc));
        let seen = pairs.iter().filter_map(|&pair| pairs::remote(effort, pair, within, memory));
        let seen: Vec<Remote> = seen.collect();
        let latency = &mut found.latency_ns;
        let at = distance as usize;
        let name = |what: &str| format!("{what}, distance {distance}");
        let load = middle(seen.iter().map(|remote| remote.llc));
        sheet.put(name("last-level load"), load, "ns", "what the other wrote, 4 times its L2", &mut latency.llc[at]);
        let load = middle(seen.iter().filter_map(|remote| remote.dram));
        sheet.put(name("memory load"), load, "ns", "memory that the other made", &mut latency.dram[at]);
    }

    /// What a system call takes, in µs.
    fn calls(&mut self, home: Option<u32>) -> f64 {
        let effort = self.effort;
        let Self { found, sheet, .. } = self;
        let os = &mut found.scheduler;
        let here = |measure: fn(Effort) -> Option<f64>| cpu::on(home?, || measure(effort))?;
        sheet.put("system call", here(kernel::syscall), "µs", "a futex wake-up of nobody", &mut os.syscall_us);
        let syscall = os.syscall_us;
        // Less than the calls alone, it was not measured.
        let switch = home.and_then(|cpu| (0..TRIES).find_map(|_| kernel::switch(effort, cpu).filter(|us| *us > 0.0)));
        let how = "two threads of one CPU that yield to each other, less the calls";
        sheet.put("context switch", switch, "µs", how, &mut os.switch_us);
        let slice = home.and_then(|cpu| kernel::slice(effort, cpu)).filter(|us| *us >= 1.0);
        sheet.put(
            "time slice",
            slice,
            "µs",
            "how long one of two busy threads of one CPU is not running",
            &mut os.slice_us,
        );
        sheet.put(
            "timer slack",
            here(kernel::timer_slack),
            "µs",
            "what a sleep of 200 µs takes longer",
            &mut os.timer_slack_us,
        );
        syscall
    }

    fn wake_ups(&mut self, home: Option<u32>, syscall: f64) {
        let effort = self.effort;
        let pair = (0..=self.shape.farthest()).find_map(|distance| self.shape.pairs(distance, 1).first().copied());
        let here = || home.map(|home| [home, home]);
        let Self { found, sheet, .. } = self;
        let os = &mut found.scheduler;
        let woken = |idle| kernel::wake_up(effort, pair.or_else(here)?, idle);
        let wakes: Vec<_> = kernel::IDLE_US.iter().map(|&idle| (idle, woken(idle))).collect();
        if let Some(local) = home.and_then(|home| kernel::wake_up(effort, [home, home], 0)) {
            sheet.show(
                "wake-up on one CPU",
                (local.call - syscall).max(0.0),
                "µs",
                "the same, of a thread of the waker's CPU",
            );
        }
        let call =
            wakes.first().and_then(|(_, wake)| wake.as_ref()).map(|wake| wake.call - syscall).filter(|us| *us > 0.0);
        sheet.put("wake-up", call, "µs", "a futex wake-up of a sleeping thread, less the call", &mut os.wake_us);
        if pair.is_none() || wakes.iter().any(|(_, wake)| wake.is_none()) {
            sheet.miss("how long an idle CPU takes to wake up (a second core is needed)");
            return;
        }
        let busy = os.switch_us + syscall;
        os.idle_us.clear();
        let mut longest = 0.0;
        for (idle, wake) in wakes {
            // Who has been idle for longer does not wake up sooner; if it seems so, it is noise.
            longest = wake.map_or(longest, |wake| (wake.latency - busy).max(longest));
            let mut us = 0.0;
            let name = format!("idle CPU, after {idle} µs");
            sheet.put(name, Some(longest), "µs", "from wake-up to running, less call and switch", &mut us);
            os.idle_us.push((f64::from(idle), us));
        }
    }
}

/// The median.
fn middle(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect();
    flashlock_report::statistics::Spread::of(&numbers).map(|all| all.median)
}

/// Whether the last-level cache holds all that the levels before it hold, as the processor says.
#[cfg(target_arch = "x86_64")]
fn inclusive() -> Option<bool> {
    use core::arch::x86_64::__cpuid_count;
    const KINDS: u32 = 31;
    // Intel's leaf, then AMD's, which is built the same way.
    let leaf = [4, 0x8000_001d].into_iter().find(|&leaf| {
        let highest = __cpuid_count(leaf & 0x8000_0000, 0).eax;
        leaf <= highest && __cpuid_count(leaf, 0).eax & KINDS != 0
    })?;
    let caches = (0..8).map(|index| __cpuid_count(leaf, index)).take_while(|cache| cache.eax & KINDS != 0);
    let last = caches.max_by_key(|cache| cache.eax >> 5 & 7)?;
    Some(last.edx & 2 != 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn inclusive() -> Option<bool> {
    None
}

/// Memory that can be had without driving others out, in bytes.
pub(super) fn free_memory() -> Option<usize> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a machine that seems to have one core with two hardware threads, whatever CPUs these really are.
    #[test]
    fn siblings_are_measured_where_there_are_any() {
        let of = |threads| {
            let machine = Topology::imagined([1, 1, threads]).expect("a machine");
            let mut session = Session::new(Effort { quick: true }, &machine).expect("a session");
            session.siblings();
            (session.found.measured_ns.and_then(|all| all.siblings), session.sheet.text("t", "d", 80))
        };
        let can_be_had = (0..2).all(|cpu| cpu::on(cpu, || ()).is_some());
        let (found, text) = of(2);
        assert_eq!(found.is_some(), can_be_had);
        assert_eq!(text.contains("siblings: hand-over by stores"), can_be_had, "{text}");
        assert_eq!(text.contains("lines between siblings"), !can_be_had, "{text}");
        assert!(found.is_none_or(|all| all.cas_ping_pong > 0.0 && all.store_ping_pong > 0.0));
        let (found, text) = of(1);
        assert!(found.is_none() && !text.contains("siblings"), "{text}");
    }
}
