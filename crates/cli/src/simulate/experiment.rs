//! One run: a workload with a lock and a number of threads, on a simulated machine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use flashlock_erased::any::{AnyLock, Kind, SERVERS};
use flashlock_locks::machine::event::Event;
use flashlock_sim::delegation::{Served, Servers};
use flashlock_sim::thread::Use;
use flashlock_sim::{self as sim, Description, Options, Outcome, Place, Sim, Simulation};
use flashlock_workloads::Workload;
use flashlock_workloads::catalogue::{Runner, Setup, WorkloadInfo};
use flashlock_workloads::history::{self, WINDOW};
use flashlock_workloads::random::XorShift;
use flashlock_workloads::wait::Waiting;

use super::candidate::Candidate;
use super::log::{LOG, Log, Preemption, Timeline, Watched};

/// The settings of a run.
#[derive(Clone, Debug)]
pub(super) struct Experiment<'a> {
    pub(super) machine: &'a Description,
    pub(super) work: &'static WorkloadInfo,
    /// The number of threads, the seed, and the workload's parameters.
    pub(super) setup: Setup,
    /// The number of servers, for a lock that has servers.
    pub(super) servers: u32,
    /// In ns of virtual time.
    pub(super) warm_up: u64,
    pub(super) length: u64,
    pub(super) placement: u64,
    pub(super) place: Place,
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
        let (seed, placement, place, tunables) = (self.setup.seed, self.placement, self.place, lock.tunables);
        let mut simulation = Simulation::new(self.machine, Options { seed, placement, place, tunables });
        let kind = lock.kind();
        let _servers = self.with_servers(&mut simulation, kind);
        // A lock whose waiters sleep is not a spin lock, neither in a kernel nor here.
        let spins = self.work.traits.in_kernel && self.setup.waiting == Waiting::Polling;
        let preemption = if spins { Preemption::Off } else { Preemption::On };
        self.work.id.start(OnSimulated { experiment: self, simulation, kind, preemption, locks: 0 })
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
        let threads = self.setup.threads;
        let mut shared = Rc::new(simulation.place("the workload", workload));
        let counts = Rc::new(RefCell::new(vec![[0_u64; 2]; threads as usize]));
        let (from, to, seed) = (self.warm_up, self.warm_up + self.length, self.setup.seed);
        LOG.set(Log::new(from..to, self.trace));
        simulation.measure(from..to);
        let servers = SERVERS.with_borrow(Clone::clone);
        let apart: Vec<u32> = servers.iter().flat_map(|_| 0..self.servers).map(|_| simulation.reserve_cpu()).collect();
        let left = Rc::new(Cell::new(threads));
        for number in 0..threads {
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
        let clients = f64::from(self.setup.threads);
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

/// Runs a workload of the catalogue on a simulated machine.
struct OnSimulated<'a> {
    experiment: &'a Experiment<'a>,
    simulation: Simulation,
    kind: &'static Kind,
    preemption: Preemption,
    /// How many locks were made.
    locks: u32,
}

impl Runner for OnSimulated<'_> {
    type Machine = Sim;
    type Lock = Watched;
    type Backend = Sim;
    type Outcome = Result<Sample, String>;

    fn setup(&self) -> &Setup {
        &self.experiment.setup
    }

    fn lock(&mut self, name: &'static str) -> Watched {
        // Each lock belongs to the next server.
        let server = 1 + self.locks % self.experiment.servers;
        self.locks += 1;
        let any = match self.kind {
            Kind::Served { .. } => AnyLock::of_server(self.kind, server),
            _ => AnyLock::new(self.kind),
        };
        Watched::new(name, any, self.preemption)
    }

    fn run<W: Workload + 'static>(self, workload: W) -> Result<Sample, String> {
        self.experiment.drive(self.simulation, self.kind, workload)
    }
}

#[cfg(test)]
mod tests {
    use flashlock_locks::catalogue::LOCKS;
    use flashlock_sim::description::Hypervisor;
    use flashlock_workloads::catalogue::{Values, WORKLOADS, WorkloadId};

    use super::*;

    /// A run of a millisecond, with few threads.
    fn short(machine: &Description, work: WorkloadId, threads: u32) -> Experiment<'_> {
        let work = work.info();
        let (ghz, values) = (machine.clock.ghz, Values::new(work));
        Experiment {
            machine,
            work,
            setup: Setup { threads, seed: 1, waiting: Waiting::Sleeping, ghz, values },
            servers: 1,
            warm_up: 250_000,
            length: 1_000_000,
            placement: 1,
            place: Place::Spread,
            trace: false,
        }
    }

    /// Threads start at different times within the warm-up.
    #[test]
    fn only_the_time_that_counts_is_counted() {
        let mut machine = Description::find("2x18x2").unwrap();
        let lock = Candidate::parse("mcs:wait=spin").unwrap();
        let figures = |work, threads| short(&machine, work, threads).run(&lock).unwrap().figures;
        let (one, all) = (figures(WorkloadId::Kvmap, 1)["compute_ns"], figures(WorkloadId::Kvmap, 72)["compute_ns"]);
        assert!((0.5..2.0).contains(&(all / one)), "an operation computes {one} ns alone, and {all} with all CPUs");
        for threads in [1, 2, 8, 32] {
            let found = figures(WorkloadId::OneInSix, threads);
            let cpus = found["cpus_used"];
            assert!((cpus / f64::from(threads) - 1.0).abs() < 1e-6, "{cpus} CPUs used by {threads} threads");
            let times: f64 = Use::ALL.iter().map(|usage| found[&format!("{}_ns", usage.name())]).sum();
            let together = f64::from(threads) * 1e3 / found["ops_per_us"];
            assert!((times / together - 1.0).abs() < 1e-6, "{times} ns of {together}");
        }
        // CPUs that a hypervisor takes away for half of the time, and more threads than CPUs.
        machine.hypervisor = Some(Hypervisor { run_ms: 0.2, away_ms: 0.2 });
        for (threads, expected) in [(1, 0.5), (8, 4.0), (90, 36.0)] {
            let found = short(&machine, WorkloadId::Kvmap, threads).run(&lock).unwrap().figures;
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

    /// A new row is run here without anything being added.
    #[test]
    fn every_workload_of_the_catalogue_runs_under_each_kind_of_lock() {
        let machine = small();
        for work in WORKLOADS {
            let traits = work.traits;
            let kinds = [
                ("null", traits.fewest_threads == 1, 1),
                ("mcs", true, 3),
                ("shfl-rw", traits.has_readers, 3),
                ("cc-synch", !traits.waits_inside, 3),
            ];
            for (lock, _, threads) in kinds.into_iter().filter(|(_, applies, _)| *applies) {
                let candidate = Candidate::parse(lock).unwrap();
                candidate.check(work, &machine, &[threads], false).unwrap_or_else(|_| panic!("{} {lock}", work.name));
                let run = short(&machine, work.id, threads).run(&candidate);
                let figures = run.unwrap_or_else(|error| panic!("{} under {lock}: {error}", work.name)).figures;
                assert!(figures["ops_per_us"] > 0.0, "{} under {lock}", work.name);
                assert!(figures["acquisitions"] > 0.9, "{} under {lock}: {figures:?}", work.name);
            }
        }
    }

    /// There are more threads than CPUs, and their last operations last until long after the measured time. Of a few
    /// operations, the section is in the measured time and the end is not. There are more such operations if one thread
    /// runs the requests of others, which then wait for a CPU.
    #[test]
    fn each_operation_has_one_acquisition() {
        let machine = small();
        for (lock, few) in [("mcs:wait=spin", 2.5), ("mcs", 2.5), ("flat-combining", 9.5)] {
            let lock = Candidate::parse(lock).unwrap();
            let experiment = Experiment { trace: true, ..short(&machine, WorkloadId::Kvmap, 9) };
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
            let mut run = short(&machine, work, threads);
            run.setup.waiting = lock.waiting();
            run.run(lock).unwrap_or_else(|error| panic!("{}, {threads}: {error}", lock.text)).figures["ops_per_us"]
        };
        let mcs = Candidate::parse("mcs:wait=spin").unwrap();
        for work in [WorkloadId::Locktorture, WorkloadId::Lockstat, WorkloadId::Open1, WorkloadId::Lock2] {
            let (few, many) = (speed(work, 4, &mcs), speed(work, 9, &mcs));
            assert!(many > 0.7 * few, "{work:?}: {few} with a CPU for each thread, {many} with more threads");
        }
        let (few, many) =
            (speed(WorkloadId::LeveldbReadrandom, 4, &mcs), speed(WorkloadId::LeveldbReadrandom, 9, &mcs));
        assert!(many < 0.5 * few, "a program's threads are: {few} and {many}");
        // None of them waits for ever for a CPU that a waiter keeps.
        for lock in LOCKS.iter().filter(|lock| lock.waits.contains(&"spin")) {
            let spins = Candidate::parse(&format!("{}:wait=spin", lock.name)).unwrap();
            assert!(
                speed(WorkloadId::Lockstat, 9, &spins) > 0.0 && speed(WorkloadId::Open1, 9, &spins) > 0.0,
                "{}",
                spins.text
            );
        }
    }

    #[test]
    fn a_deadlock_is_called_one() {
        let machine = Description::find("2x18x2").unwrap();
        // A single consumer waits for ever for a message.
        let mut alone = short(&machine, WorkloadId::Messages, 1);
        let error = alone.run(&Candidate::parse("shfl").unwrap()).unwrap_err();
        assert!(error.starts_with("deadlock or lost wake-up after") && error.contains("thread 0 sleeps on"), "{error}");
        alone.setup.waiting = Waiting::Polling;
        let error = alone.run(&Candidate::parse("shfl").unwrap()).unwrap_err();
        assert!(error.starts_with("no progress for 10 s of virtual time"), "{error}");
    }
}
