//! One run: a workload with a lock and a number of threads, on a simulated machine.

mod log;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use flashlock_erased::any::{AnyLock, Kind, SERVERS};
use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_sim::delegation::{Served, Servers};
use flashlock_sim::thread::Use;
use flashlock_sim::{self as sim, Description, Options, Outcome, Place, Sim, Simulation};
use flashlock_workloads::Workload;
use flashlock_workloads::catalogue::{Runner, Setup, WorkloadInfo};
use flashlock_workloads::history::{self, WINDOW};
use flashlock_workloads::random::XorShift;
use flashlock_workloads::wait::Waiting;

pub use log::{Entry, Open, Section, Timeline};
use log::{LOG, Log, Preemption, Watched};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// On which machine.
    pub machine: &'a Description,
    /// Which workload.
    pub work: &'static WorkloadInfo,
    /// The number of threads, the seed, and the workload's parameters.
    pub setup: Setup,
    /// The number of servers, for a lock that has servers.
    pub servers: u32,
    /// The time before what counts, in ns of virtual time.
    pub warm_up: u64,
    /// The time that counts, in ns of virtual time.
    pub length: u64,
    /// The seed of where threads start.
    pub placement: u64,
    /// How they are spread over the CPUs.
    pub place: Place,
    /// Whether all sections and waits are wanted.
    pub trace: bool,
}

/// The operations of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// All of them, which the workload's check needs.
    all: u64,
    /// Those that ended in the measured time.
    counted: u64,
    /// Whether its operations count at all. If not, it is no thread to which others are unfair.
    counts: bool,
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
pub struct Sample {
    /// The figures, by the metrics' names.
    pub figures: BTreeMap<String, f64>,
    /// All sections and waits, if requested.
    pub timeline: Timeline,
}

impl Experiment<'_> {
    /// Runs the experiment under a lock.
    ///
    /// # Errors
    ///
    /// What went wrong; if threads hang, further lines say what each of them waits for.
    pub fn run(&self, kind: &'static Kind, tunables: &'static Tunables) -> Result<Sample, String> {
        let (seed, placement, place) = (self.setup.seed, self.placement, self.place);
        let mut simulation = Simulation::new(self.machine, Options { seed, placement, place, tunables });
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
        let counts = Rc::new(RefCell::new(vec![Done::default(); threads as usize]));
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
                counts.borrow_mut()[number as usize].counts = shared.counts(&client);
                sim::delay(begins as f64);
                while sim::now() < to {
                    shared.operate(&mut client);
                    let done = &mut counts.borrow_mut()[number as usize];
                    done.all += 1;
                    done.counted += u64::from(done.counts && (from..to).contains(&sim::now()));
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
        placed.get_mut().check(counts.iter().map(|done| done.all).sum())?;
        let counted: Vec<u64> = counts.iter().filter(|done| done.counts).map(|done| done.counted).collect();
        if counted.iter().all(|counted| *counted == 0) {
            let ms = self.length as f64 / 1e6;
            return Err(format!("no operation was done in the {ms} ms that count: a longer --millis is needed"));
        }
        let log = LOG.take();
        let figures = self.figures(&outcome, &log, counted);
        Ok(Sample { figures, timeline: log.into_timeline() })
    }

    /// `counts`: the operations of each thread whose operations count, in the measured time.
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
        put("in_sections", (log.inside() > 0).then(|| log.inside() as f64 / length / clients));
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
