//! One run: a workload with a lock and a number of threads, on a simulated machine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use flashlock_locks::event::Event;
use flashlock_sim::delegation::{Served, Servers};
use flashlock_sim::thread::Use;
use flashlock_sim::{self as sim, Description, Options, Outcome, Place, Sim, Simulation};
use flashlock_workloads::buffer_pool::{Buffers, ByCondition, ByPermits};
use flashlock_workloads::directory::Files;
use flashlock_workloads::history::{self, WINDOW};
use flashlock_workloads::key_value::Mix;
use flashlock_workloads::lock_torture::Habits;
use flashlock_workloads::producer_consumer::Traffic;
use flashlock_workloads::rand_array::Reads;
use flashlock_workloads::random::XorShift;
use flashlock_workloads::shared_lines::{ELEVEN, Job};
use flashlock_workloads::wait::{RawCond, RawSem, Waiting};
use flashlock_workloads::{
    BufferPool, Directory, KeyValue, LockTorture, ProducerConsumer, RandArray, Sections, SharedLines, Workload,
    sections,
};

use super::any_lock::{AnyLock, Kind, SERVERS};
use super::candidate::Candidate;
use super::ground::{LOG, Log, Preemption, Timeline, Watched};

/// What a lock guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    /// A search tree behind one lock, as in CNA (EuroSys 2019), section 7.1.1
    Kvmap,
    /// Random reads of a shared array and of private ones, as in Malthusian Locks (EuroSys 2017), section 6.1
    Randarray,
    /// The kernel's lock torture: random delays in the section, as in CNA, section 7.2.1
    Locktorture,
    /// The same with lock statistics: shared lines are written after each acquisition
    Lockstat,
    /// will-it-scale's open1, with threads: two locks. Lengths follow from one thread's speed; the number of lines is
    /// guessed
    Open1,
    /// will-it-scale's lock2, with threads: one lock
    Lock2,
    /// leveldb's readrandom: its database lock
    LeveldbReadrandom,
    /// Five buffers for all threads; threads wait on a condition variable, as in Malthusian Locks, section 6.11
    Buffers,
    /// The same; threads wait on a semaphore
    BuffersSem,
    /// A queue of 10,000 messages, three consumers (with fewer than six threads, half of them), and producers, as in
    /// Malthusian Locks, section 6.7
    Messages,
    /// Threads list a shared directory, or replace a file in it (only with --lookups below 100), as in ShflLocks'
    /// slides 79 and 80: for readers-writer locks
    Readdir,
    /// Sections that follow a chain of shared lines (--lines) and write them, with a delay between sections (--delay),
    /// as in RCL (USENIX ATC 2012), section 4.1
    RclLines,
    /// The same with eleven locks, two of them hot, as in RCL, figure 13
    RclLocks,
    /// 1 µs under the lock, 5 µs outside: the example of Malthusian Locks, section 1
    OneInSix,
}

impl Work {
    /// The minimum number of threads. With fewer, the workload waits for ever for messages that no thread sends.
    pub(super) fn fewest_threads(self) -> u32 {
        if self == Self::Messages { 2 } else { 1 }
    }

    /// Whether threads wait for something else while they hold the lock, so that they must release it meanwhile.
    pub(super) fn waits_inside(self) -> bool {
        matches!(self, Self::Buffers | Self::BuffersSem | Self::Messages)
    }

    /// Whether the lock is a kernel's spin lock, which disables preemption for its holder and its waiters.
    fn is_in_kernel(self) -> bool {
        matches!(self, Self::Locktorture | Self::Lockstat | Self::Open1 | Self::Lock2)
    }

    /// Whether some threads only read under the lock.
    pub(super) fn has_readers(self) -> bool {
        self == Self::Readdir
    }

    /// The default job of the workloads with shared lines.
    pub(super) fn job(self) -> Option<Job> {
        match self {
            Self::RclLines => Some(Job::LINES),
            Self::RclLocks => Some(Job::ELEVEN),
            _ => None,
        }
    }

    /// The default number of lookups of the map, or lists of the directory, per 100 operations. `None` if all
    /// operations are of one kind.
    pub(super) fn reads(self) -> Option<u32> {
        match self {
            Self::Kvmap => Some(Mix::PAPER.lookups),
            Self::Readdir => Some(Files::USUAL.lists),
            _ => None,
        }
    }

    /// The number of lines that so many threads touch, if it is large: those of the arrays.
    pub(super) fn lines(self, threads: u32) -> u64 {
        let (arrays, each) = match self {
            Self::Randarray => (1 + u64::from(threads), Reads::PAPER.lines()),
            Self::Buffers | Self::BuffersSem => {
                (u64::from(Buffers::PAPER.count) + u64::from(threads), Buffers::PAPER.lines())
            }
            _ => return 0,
        };
        arrays * u64::from(each)
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub(super) struct Experiment<'a> {
    pub(super) machine: &'a Description,
    pub(super) work: Work,
    /// For the map: lookups or lists per 100 operations ([`Work::reads`]), and ns of work outside.
    pub(super) lookups: u32,
    pub(super) external: u32,
    /// For workloads with shared lines: the job ([`Work::job`]).
    pub(super) job: Job,
    /// The number of servers, for a lock that has servers.
    pub(super) servers: u32,
    pub(super) threads: u32,
    /// In ns of virtual time.
    pub(super) warm_up: u64,
    pub(super) length: u64,
    pub(super) seed: u64,
    pub(super) placement: u64,
    pub(super) place: Place,
    /// How waiters for condition variables and semaphores wait.
    pub(super) waiting: Waiting,
    pub(super) trace: bool,
}

/// While this exists, the run's lock may have servers.
struct Hosted;

impl Drop for Hosted {
    fn drop(&mut self) {
        SERVERS.set(None);
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub(super) struct Sample {
    /// The figures, by the metrics' names.
    pub(super) figures: BTreeMap<String, f64>,
    /// All sections and waits, if requested.
    pub(super) timeline: Timeline,
}

impl Experiment<'_> {
    /// Runs the experiment. The error says what went wrong.
    pub(super) fn run(&self, lock: &Candidate) -> Result<Sample, String> {
        let (seed, placement, place, tunables) = (self.seed, self.placement, self.place, lock.tunables);
        let mut simulation = Simulation::new(self.machine, Options { seed, placement, place, tunables });
        let kind = lock.kind();
        let _servers = self.with_servers(&mut simulation, kind);
        // A lock whose waiters sleep is not a spin lock, neither in a kernel nor here.
        let spins = self.work.is_in_kernel() && self.waiting == Waiting::Polling;
        let preemption = if spins { Preemption::Off } else { Preemption::On };
        // Each lock belongs to the next server.
        let any = |number| match kind {
            Kind::Served { .. } => AnyLock::of_server(kind, 1 + number % self.servers),
            _ => AnyLock::new(kind),
        };
        let numbers = Cell::new(0);
        let watched = |name| Watched::new(name, any(numbers.replace(numbers.get() + 1)), preemption);
        let one = || watched("the lock");
        let steps = |steps: &[sections::Step]| Sections::<_, Sim>::new(watched("lock A"), watched("lock B"), steps);
        match self.work {
            Work::Kvmap => {
                let mix = Mix { lookups: self.lookups, external: self.external, ..Mix::PAPER };
                self.drive(simulation, kind, KeyValue::<_, Sim>::new(one(), mix, self.seed))
            }
            Work::Randarray => self.drive(simulation, kind, RandArray::<_, Sim>::new(one(), Reads::PAPER)),
            Work::Locktorture | Work::Lockstat => {
                let habits = if self.work == Work::Lockstat { Habits::LOCKSTAT } else { Habits::PAPER };
                self.drive(simulation, kind, LockTorture::<_, Sim>::new(one(), habits.in_little_time(), self.threads))
            }
            Work::Open1 => self.drive(simulation, kind, steps(&sections::OPEN1)),
            Work::Lock2 => self.drive(simulation, kind, steps(&sections::LOCK2)),
            Work::LeveldbReadrandom => self.drive(simulation, kind, steps(&sections::LEVELDB_READRANDOM)),
            Work::Buffers => {
                let supply = ByCondition(RawCond::<Sim>::new(self.waiting));
                self.drive(simulation, kind, BufferPool::<_, _, Sim>::new(one(), supply, Buffers::PAPER))
            }
            Work::BuffersSem => {
                let supply = ByPermits(RawSem::<Sim>::new(Buffers::PAPER.count, self.waiting));
                self.drive(simulation, kind, BufferPool::<_, _, Sim>::new(one(), supply, Buffers::PAPER))
            }
            Work::Messages => {
                // Three threads take messages, as in the paper, if then at least half of the threads send messages.
                let consumers = Traffic::PAPER.consumers.min(self.threads / 2);
                let traffic = Traffic { consumers, ..Traffic::PAPER };
                let conditions = [(); 2].map(|()| RawCond::<Sim>::new(self.waiting));
                self.drive(simulation, kind, ProducerConsumer::<_, _, Sim>::new(one(), conditions, traffic))
            }
            Work::Readdir => {
                let files = Files { lists: self.lookups, ..Files::USUAL };
                self.drive(simulation, kind, Directory::<_, Sim>::new(one(), files))
            }
            Work::RclLines => self.drive(simulation, kind, SharedLines::<_, Sim>::new(one, self.job)),
            Work::RclLocks => self.drive(simulation, kind, SharedLines::<_, Sim, ELEVEN>::new(one, self.job)),
            Work::OneInSix => self.drive(simulation, kind, steps(&sections::ONE_IN_SIX)),
        }
    }

    /// Makes servers, if the lock has servers. They exist as long as the returned value.
    fn with_servers(&self, simulation: &mut Simulation, kind: &Kind) -> Hosted {
        if matches!(kind, Kind::Served { .. }) {
            SERVERS.set(Some(Servers::new(simulation, self.servers)));
        }
        Hosted
    }

    /// Spawns the servers' threads, on CPUs of their own. Clients must be spawned before, so that they have the same
    /// CPUs as with any other lock.
    fn serve(&self, simulation: &mut Simulation, kind: &'static Kind, cpus: &[u32]) {
        let (Kind::Served { serve, .. }, Some(servers)) = (kind, SERVERS.with_borrow(Clone::clone)) else { return };
        let time = (self.warm_up, self.warm_up + self.length);
        for (number, &cpu) in (1..).zip(cpus) {
            let servers = Rc::clone(&servers);
            simulation.spawn_on(cpu, move || serve(&servers, number, time));
        }
    }

    fn drive<W: Workload + 'static>(
        &self,
        mut simulation: Simulation,
        kind: &'static Kind,
        workload: W,
    ) -> Result<Sample, String> {
        let mut shared = Rc::new(simulation.place("the workload", workload));
        let counts = Rc::new(RefCell::new(vec![[0_u64; 2]; self.threads as usize]));
        let (from, to, seed) = (self.warm_up, self.warm_up + self.length, self.seed);
        LOG.set(Log::new(from..to, self.trace));
        simulation.measure(from..to);
        let servers = SERVERS.with_borrow(Clone::clone);
        let apart: Vec<u32> = servers.iter().flat_map(|_| 0..self.servers).map(|_| simulation.reserve_cpu()).collect();
        let left = Rc::new(Cell::new(self.threads));
        for number in 0..self.threads {
            let (shared, counts) = (Rc::clone(&shared), Rc::clone(&counts));
            let (servers, left) = (servers.clone(), Rc::clone(&left));
            // A queue of threads that come back at once keeps its order for ever. If threads started in order of their
            // numbers, the queue would be in order of their places.
            let begins = XorShift::new(!seed, number).bits() % (from / 4).max(1);
            simulation.spawn(move || {
                let mut client = shared.client(seed, number);
                sim::delay(begins as f64);
                while sim::now() < to {
                    shared.operate(&mut client);
                    let [all, counted] = &mut counts.borrow_mut()[number as usize];
                    *all += 1;
                    *counted += u64::from(shared.counts(&client) && (from..to).contains(&sim::now()));
                }
                shared.retire(client);
                left.set(left.get() - 1);
                if let (0, Some(servers)) = (left.get(), servers) {
                    servers.close();
                }
            });
        }
        self.serve(&mut simulation, kind, &apart);
        let outcome = simulation.run().map_err(|stuck| stuck.to_string())?;
        let counts = counts.borrow();
        // All threads have returned, and each has dropped its reference.
        let placed = Rc::get_mut(&mut shared).ok_or("a thread still has the workload: it was not checked")?;
        placed.get_mut().check(counts.iter().map(|[all, _]| all).sum())?;
        if counts.iter().all(|[_, counted]| *counted == 0) {
            let ms = self.length as f64 / 1e6;
            return Err(format!("no operation was done in the {ms} ms that count: a longer --millis is needed"));
        }
        let log = LOG.take();
        let figures = self.figures(&outcome, &log, counts.iter().map(|[_, counted]| *counted).collect());
        Ok(Sample { figures, timeline: log.into_timeline() })
    }

    fn figures(&self, outcome: &Outcome, log: &Log, mut counts: Vec<u64>) -> BTreeMap<String, f64> {
        let operations: u64 = counts.iter().sum();
        let (acquisitions, busiest) = (log.acquisitions() as f64, log.busiest());
        let history = busiest.map(|lock| lock.history.as_slice()).unwrap_or_default();
        let length = self.length as f64;
        let each = |all: f64| (operations > 0).then(|| all / operations as f64);
        let busy: f64 = Use::ALL.iter().zip(outcome.times).filter(|(usage, _)| usage.has_cpu()).map(|(_, ns)| ns).sum();
        let traffic = &outcome.traffic;
        let count = |event: Event| outcome.counts[event as usize] as f64;
        let mut figures: BTreeMap<String, f64> = BTreeMap::new();
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                figures.insert(name.to_owned(), value);
            }
        };
        put("ops_per_us", Some(operations as f64 * 1e3 / length));
        put("acquisitions", (operations > 0).then(|| acquisitions / operations as f64));
        put("steps", Some(outcome.events as f64));
        let (sections, ns) = log.completed();
        let clients = f64::from(self.threads);
        put("section_ns", (sections > 0).then(|| ns as f64 / sections as f64));
        put("in_sections", (sections > 0).then(|| ns as f64 / length / clients));
        put("lines_fetched", each((traffic.local + traffic.remote + traffic.memory - traffic.upgrades) as f64));
        put("atomics", each(traffic.atomics as f64));
        let served =
            SERVERS.with_borrow(|servers| servers.iter().flat_map(|servers| servers.served()).collect::<Vec<_>>());
        let most = |of: &dyn Fn(&Served) -> f64| served.iter().map(of).reduce(f64::max);
        put("use_rate", most(&|one| one.use_rate(self.machine.cores())));
        put("false_serialization", most(&Served::false_serialization));
        put("gini", history::gini(&counts));
        put("rstddev", history::rstddev(&counts));
        put("fairness", history::fairness_factor(&mut counts));
        put("lwss", history::average_lwss(history, WINDOW));
        put("mttr", history::mttr(history));
        put("node_moves", busiest.map(|lock| lock.moves as f64 / lock.history.len() as f64));
        put("switches_per_1000", (acquisitions > 0.0).then(|| outcome.voluntary_switches as f64 * 1e3 / acquisitions));
        put("alterations_per_1000", (acquisitions > 0.0).then(|| count(Event::Alteration) * 1e3 / acquisitions));
        put("cpus_used", Some(busy / length));
        put("llc_misses", each(traffic.memory as f64));
        put("llc_misses_by_itself", each(traffic.displaced_by_itself as f64));
        put("llc_misses_by_others", each(traffic.displaced_by_others as f64));
        put("remote_lines", each(traffic.remote as f64));
        put("watts", Some(outcome.joules * 1e9 / length));
        for (usage, ns) in Use::ALL.iter().zip(outcome.times) {
            put(&format!("{}_ns", usage.name()), each(ns));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use flashlock_locks::catalogue::LOCKS;
    use flashlock_sim::description::Hypervisor;

    use super::*;

    /// A run of a millisecond, with few threads.
    fn short(machine: &Description, work: Work, threads: u32) -> Experiment<'_> {
        Experiment {
            machine,
            work,
            lookups: work.reads().unwrap_or_default(),
            external: 0,
            job: work.job().unwrap_or(Job::LINES),
            servers: 1,
            threads,
            warm_up: 250_000,
            length: 1_000_000,
            seed: 1,
            placement: 1,
            place: Place::Spread,
            waiting: Waiting::Sleeping,
            trace: false,
        }
    }

    /// Threads start at different times within the warm-up.
    #[test]
    fn only_the_time_that_counts_is_counted() {
        let mut machine = Description::find("2x18x2").unwrap();
        let lock = Candidate::parse("mcs:wait=spin").unwrap();
        let figures = |work, threads| short(&machine, work, threads).run(&lock).unwrap().figures;
        let (one, all) = (figures(Work::Kvmap, 1)["compute_ns"], figures(Work::Kvmap, 72)["compute_ns"]);
        assert!((0.5..2.0).contains(&(all / one)), "an operation computes {one} ns alone, and {all} with all CPUs");
        for threads in [1, 2, 8, 32] {
            let found = figures(Work::OneInSix, threads);
            let cpus = found["cpus_used"];
            assert!((cpus / f64::from(threads) - 1.0).abs() < 1e-6, "{cpus} CPUs used by {threads} threads");
            let times: f64 = Use::ALL.iter().map(|usage| found[&format!("{}_ns", usage.name())]).sum();
            let together = f64::from(threads) * 1e3 / found["ops_per_us"];
            assert!((times / together - 1.0).abs() < 1e-6, "{times} ns of {together}");
        }
        // CPUs that a hypervisor takes away for half of the time, and more threads than CPUs.
        machine.hypervisor = Some(Hypervisor { run_ms: 0.2, away_ms: 0.2 });
        for (threads, expected) in [(1, 0.5), (8, 4.0), (90, 36.0)] {
            let found = short(&machine, Work::Kvmap, threads).run(&lock).unwrap().figures;
            let cpus = found["cpus_used"];
            assert!((cpus / expected - 1.0).abs() < 0.3, "{cpus} CPUs used by {threads} threads");
            let times: f64 = Use::ALL.iter().map(|usage| found[&format!("{}_ns", usage.name())]).sum();
            let together = f64::from(threads) * 1e3 / found["ops_per_us"];
            assert!((times / together - 1.0).abs() < 1e-6, "{times} ns of {together}");
        }
    }

    /// Four CPUs, with slices that are longer than an operation.
    fn small() -> Description {
        let mut machine = Description::find("2x18x2").unwrap();
        (machine.topology.cores_per_node, machine.topology.threads_per_core) = (2, 1);
        machine.scheduler.slice_us = 50.0;
        machine
    }

    /// There are more threads than CPUs, and their last operations last until long after the measured time. Of a few
    /// operations, the section is in the measured time and the end is not. There are more such operations if one thread
    /// runs the requests of others, which then wait for a CPU.
    #[test]
    fn each_operation_has_one_acquisition() {
        let machine = small();
        for (lock, few) in [("mcs:wait=spin", 2.5), ("mcs", 2.5), ("flat-combining", 9.5)] {
            let lock = Candidate::parse(lock).unwrap();
            let experiment = Experiment { trace: true, ..short(&machine, Work::Kvmap, 9) };
            let Sample { figures, timeline: Timeline { sections, .. } } = experiment.run(&lock).unwrap();
            let operations = figures["ops_per_us"] * 1e3;
            let acquisitions = figures["acquisitions"] * operations;
            assert!(
                (acquisitions - operations).abs() < few,
                "{}: {acquisitions} in {operations} operations",
                lock.text
            );
            assert!((acquisitions - sections.len() as f64).abs() < 0.5, "{}: {acquisitions}", lock.text);
            let time = experiment.warm_up..experiment.warm_up + experiment.length;
            let odd = sections.iter().find(|section| !time.contains(&section.begin) || section.end <= section.begin);
            assert_eq!(odd, None, "{}", lock.text);
        }
    }

    /// With a kernel's spin lock, no thread waits for a preempted thread.
    #[test]
    fn kernels_do_not_preempt_around_their_locks() {
        let machine = small();
        let speed = |work, threads, lock: &Candidate| {
            let run = Experiment { waiting: lock.waiting(), ..short(&machine, work, threads) }.run(lock);
            run.unwrap_or_else(|error| panic!("{} with {threads} threads: {error}", lock.text)).figures["ops_per_us"]
        };
        let mcs = Candidate::parse("mcs:wait=spin").unwrap();
        for work in [Work::Locktorture, Work::Lockstat, Work::Open1, Work::Lock2] {
            let (few, many) = (speed(work, 4, &mcs), speed(work, 9, &mcs));
            assert!(many > 0.7 * few, "{work:?}: {few} with a CPU for each thread, {many} with more threads");
        }
        let (few, many) = (speed(Work::LeveldbReadrandom, 4, &mcs), speed(Work::LeveldbReadrandom, 9, &mcs));
        assert!(many < 0.5 * few, "a program's threads are: {few} and {many}");
        // None of them waits for ever for a CPU that a waiter keeps.
        for lock in LOCKS.iter().filter(|lock| lock.waits.contains(&"spin")) {
            let spins = Candidate::parse(&format!("{}:wait=spin", lock.name)).unwrap();
            assert!(speed(Work::Lockstat, 9, &spins) > 0.0 && speed(Work::Open1, 9, &spins) > 0.0, "{}", spins.text);
        }
    }

    #[test]
    fn a_deadlock_is_called_one() {
        let machine = Description::find("2x18x2").unwrap();
        // A single consumer waits for ever for a message.
        let alone = short(&machine, Work::Messages, 1);
        let error = alone.run(&Candidate::parse("shfl").unwrap()).unwrap_err();
        assert!(error.starts_with("deadlock or lost wake-up after") && error.contains("thread 0 sleeps on"), "{error}");
        let polls = Experiment { waiting: Waiting::Polling, ..alone };
        let error = polls.run(&Candidate::parse("shfl").unwrap()).unwrap_err();
        assert!(error.starts_with("no progress for 10 s of virtual time"), "{error}");
    }
}
