//! All runs of a simulation, on all CPUs of the host, and their result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use flashlock_locks::catalogue::PRINCIPAL;
use flashlock_locks::catalogue::rw::RW_LOCKS;
use flashlock_measure::simulated::{Experiment, Sample, Timeline};
use flashlock_native::settings::split_list;
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{
    Better, Failed, Group, Method, Metric, Parameters, Point, Results, Run, SCHEMA, Simulated, VERSION,
};
use flashlock_report::units;
use flashlock_sim::{Description, Use, footprint};
use flashlock_workloads::catalogue::{Setup, Values, WorkloadInfo};
use indicatif::{ProgressBar, ProgressStyle};

use super::Args;
use super::budget::Budget;
use super::candidate::Candidate;
use crate::failure::Failure;
use crate::json;
use crate::launch::signals::Interruption;

/// The default baseline: the papers compare with it.
const BASELINE: &str = "mcs:wait=spin";
/// The number of time slices after which all threads have run.
const SLICES: f64 = 10.0;
/// How often the screen is updated during a run.
const TICK: Duration = Duration::from_millis(250);
/// How often to check for an interruption.
const GLANCE: Duration = Duration::from_millis(50);
/// The figures of a run: name, title, which values are better.
const METRICS: &[(&str, &str, Better)] = &[
    ("ops_per_us", "Operations per microsecond", Better::More),
    ("fairness", "Fairness factor: share of the busier half of the threads", Better::Less),
    ("lwss", "Average LWSS: threads among 1,000 acquisitions", Better::Less),
    ("mttr", "MTTR: acquisitions until a thread has the lock again, median", Better::Less),
    ("section_ns", "Time of a section from request to completion, mean, ns", Better::Less),
    ("in_sections", "Share of their time that threads spend in sections and waiting for them", Better::Less),
    ("lines_fetched", "Lines that cores had no copy of and fetched, per operation", Better::Less),
    ("atomics", "Atomic read-modify-writes per operation", Better::Less),
    ("use_rate", "Sections of a server's scan that runs any, per core", Better::Less),
    ("false_serialization", "Share of a server's scans with sections of several locks", Better::Less),
    ("gini", "Gini coefficient of the work done by each thread", Better::Less),
    ("rstddev", "RSTDDEV of the work done by each thread", Better::Less),
    ("node_moves", "Acquisitions on another NUMA node than the one before, share", Better::Less),
    ("acquisitions", "Lock acquisitions per operation", Better::Less),
    ("switches_per_1000", "Voluntary context switches per 1,000 acquisitions", Better::Less),
    ("alterations_per_1000", "Queue alterations per 1,000 acquisitions", Better::Less),
    ("cpus_used", "CPUs kept busy", Better::Less),
    ("llc_misses", "Lines from memory per operation", Better::Less),
    ("llc_misses_by_itself", "Of these, displaced by what the same core brought in", Better::Less),
    ("llc_misses_by_others", "Of these, displaced by what another core brought in", Better::Less),
    ("remote_lines", "Lines from other NUMA nodes per operation", Better::Less),
    ("watts", "Power above idle, W, an estimate", Better::Less),
    ("steps", "Steps of the simulation", Better::Less),
];

/// All runs of a command line.
pub(super) struct Sweep<'a> {
    args: &'a Args,
    machine: &'a Description,
    work: &'static WorkloadInfo,
    values: Values,
    locks: Vec<Candidate>,
    threads: Vec<u32>,
}

impl<'a> Sweep<'a> {
    /// The runs for a command line.
    pub(super) fn new(args: &'a Args, machine: &'a Description) -> Result<Self, Failure> {
        let work = args.workload.info();
        let mut names: Vec<String> = args.locks.iter().flat_map(|list| split_list(list)).collect();
        if names.is_empty() && work.traits.has_readers {
            names = RW_LOCKS.iter().map(|lock| lock.name.to_owned()).collect();
        }
        if names.is_empty() {
            names = [BASELINE]
                .into_iter()
                .chain(PRINCIPAL.iter().map(|lock| lock.info().name))
                .map(str::to_owned)
                .collect();
        }
        let mut locks: Vec<Candidate> = Vec::new();
        for name in &names {
            let lock = Candidate::parse(name)?;
            if locks.iter().all(|other| other.text != lock.text) {
                locks.push(lock);
            }
        }
        let fewest = work.traits.fewest_threads;
        let threads = match args.threads.as_slice() {
            [] => usual_threads(fewest, machine.cpus()),
            wanted => sorted(wanted),
        };
        if let Some(few) = threads.first().filter(|few| **few < fewest) {
            let (name, few) = (work.name, units::counted(u64::from(*few), "thread"));
            return Err(Failure::usage(format_args!(
                "--threads: with {few} {name} waits for ever, for some of its threads wait for what others do: \
                 {fewest} at least"
            )));
        }
        locks.iter().try_for_each(|lock| lock.check(work, machine, &threads, args.trace.is_some()))?;
        if args.trace.is_some() && (locks.len() > 1 || threads.len() > 1) {
            return Err(Failure::usage(
                "--trace shows one run: name one lock and one number of threads, --locks cna --threads 8",
            ));
        }
        if args.plot.is_some() && locks.len() == 1 && threads.len() == 1 {
            return Err(Failure::usage(
                "--plot compares: name several locks or several numbers of threads, --locks mcs,cna --threads 1,8",
            ));
        }
        let values = args.parameters.values(work)?;
        Self::check_servers(args, machine, &locks)?;
        Ok(Self { args, machine, work, values, locks, threads })
    }

    /// Checks the number of servers: they need CPUs of their own, and a lock that has servers.
    fn check_servers(args: &Args, machine: &Description, locks: &[Candidate]) -> Result<(), Failure> {
        let cpus = machine.cpus();
        if args.servers.is_some() && !locks.iter().any(Candidate::is_served) {
            return Err(Failure::usage("--servers: none of these locks has servers; rcl has"));
        }
        if locks.iter().any(Candidate::is_served) && args.servers.unwrap_or(1) >= cpus {
            let cpus = units::counted(u64::from(cpus), "CPU");
            return Err(Failure::usage(format_args!(
                "--servers: each server has a CPU for itself, and {} has {cpus}: with rcl one must be left for threads",
                machine.name
            )));
        }
        Ok(())
    }

    /// Runs everything, or as much as is done when the user interrupts. Returns the result, and the first run's
    /// timeline if requested.
    pub(super) fn run(&'static self) -> Result<(Results, Timeline), Failure> {
        let rounds = self.args.seeds * self.args.placements;
        let mut results = self.results();
        let jobs = results.points.len() * rounds as usize;
        let style =
            ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len} runs, {elapsed}").map_err(Failure::new)?;
        let bar = ProgressBar::new(jobs as u64).with_style(style);
        // Before there are other threads: those must not be interrupted, because one that simulates could be busy for
        // minutes.
        let interruption = Interruption::begin();
        bar.enable_steady_tick(TICK);
        let mut done = Vec::with_capacity(jobs);
        let outcomes = self.start(jobs, rounds);
        while done.len() < jobs {
            match outcomes.recv_timeout(GLANCE) {
                Ok(outcome) => {
                    done.push(outcome);
                    bar.inc(1);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(
                        "a simulation ended without a result: a fault of flashlock; please report it",
                    ));
                }
            }
            if interruption.has_come() {
                results.method.interrupted = true;
                break;
            }
        }
        if results.method.interrupted {
            interruption.end_at_the_next();
        } else {
            drop(interruption);
        }
        bar.finish_and_clear();
        done.sort_by_key(|(job, _)| *job);
        let mut timeline = Timeline::default();
        for (job, outcome) in done {
            let (point, round) = (&mut results.points[job / rounds as usize], (job % rounds as usize) as u32);
            match outcome {
                Ok(sample) => {
                    // Only a single lock with a single number of threads has a timeline.
                    if round == 0 {
                        timeline = sample.timeline;
                    }
                    point.runs.push(Run { round, values: sample.figures });
                }
                Err(what) => {
                    // If a run hangs, further lines say what each thread waits for.
                    let (how, output) = what.split_once('\n').unwrap_or((&what, ""));
                    point.failures.push(Failed {
                        round,
                        how: how.to_owned(),
                        output: output.to_owned(),
                        ..Failed::default()
                    });
                }
            }
        }
        results.derive();
        results.judge();
        Ok((results, timeline))
    }

    /// Runs all jobs on all CPUs, in detached threads: if the caller does not wait for them, the process ends while
    /// they run. Each job and its outcome arrive in the order of completion.
    fn start(&'static self, jobs: usize, rounds: u32) -> Receiver<(usize, Result<Sample, String>)> {
        let (sender, outcomes) = mpsc::channel();
        let (next, budget) = (Arc::new(AtomicUsize::new(0)), Arc::new(Budget::new()));
        let workers = thread::available_parallelism().map_or(1, usize::from).min(jobs);
        for _ in 0..workers {
            let (sender, next, budget) = (sender.clone(), Arc::clone(&next), Arc::clone(&budget));
            thread::spawn(move || {
                // All points once, then again, so that after an interruption there is something of each point. The
                // longest runs, with the most threads, start first.
                let points = jobs / rounds as usize;
                while let Some(place) = Some(next.fetch_add(1, Relaxed)).filter(|place| *place < jobs) {
                    let (point, round) = (points - 1 - place % points, (place / points) as u32);
                    let job = point * rounds as usize + round as usize;
                    let outcome = budget.within(self.memory(point), || self.one(point, round));
                    if sender.send((job, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        outcomes
    }

    /// An estimate of a run's memory, in bytes.
    fn memory(&self, point: usize) -> u64 {
        let threads = self.threads[point / self.locks.len()];
        footprint(self.machine, threads, self.work.traits.arrays.of(threads))
    }

    /// Runs one simulation.
    fn one(&self, point: usize, round: u32) -> Result<Sample, String> {
        let (cell, lock) = (point / self.locks.len(), point % self.locks.len());
        let lock = &self.locks[lock];
        let length = (self.millis(self.threads[cell]) * 1e6) as u64;
        let experiment = Experiment {
            machine: self.machine,
            work: self.work,
            setup: Setup {
                threads: self.threads[cell],
                seed: self.args.seed.wrapping_add(u64::from(round / self.args.placements)),
                waiting: lock.waiting(),
                ghz: self.machine.clock.ghz,
                values: self.values.clone(),
            },
            servers: self.args.servers.unwrap_or(1),
            warm_up: length / 4,
            length,
            placement: self.args.seed.wrapping_add(u64::from(round)),
            place: self.args.place.into(),
            trace: self.args.trace.is_some() && round == 0,
        };
        experiment.run(lock.kind(), lock.tunables)
    }

    /// The result before anything is run.
    fn results(&self) -> Results {
        let cells: Vec<String> = self.threads.iter().map(u32::to_string).collect();
        let names: Vec<String> = self.locks.iter().map(|lock| lock.text.clone()).collect();
        let title = self.work.name.to_owned();
        let point = |cell: &String, lock: &String| Point {
            group: title.clone(),
            cell: cell.clone(),
            lock: lock.clone(),
            ..Point::default()
        };
        let metric =
            |&(name, title, better): &(&str, &str, Better)| Metric { name: name.into(), title: title.into(), better };
        let time = |usage: &Use| Metric {
            name: format!("{}_ns", usage.name()),
            title: format!("Time of all threads per operation: {}, ns", usage.name()),
            better: Better::Less,
        };
        let millis = self.millis(1);
        Results {
            provenance: Provenance::now(SCHEMA, VERSION, json::command(), self.simulated()),
            name: "simulate".into(),
            title: format!("{title} on {}, simulated", self.machine.name),
            about: self.about(millis),
            metrics: METRICS.iter().map(metric).chain(Use::ALL.iter().map(time)).collect(),
            points: cells.iter().flat_map(|cell| names.iter().map(|lock| point(cell, lock))).collect(),
            groups: vec![Group { title: title.clone(), axis: "threads".into(), cells, merit: METRICS[0].0.into() }],
            locks: names.clone(),
            method: Method {
                rounds: self.args.seeds * self.args.placements,
                seconds: Some(millis / 1e3),
                seed: self.args.seed,
                interrupted: false,
                simulated: Some(Simulated {
                    machine: self.machine.name.clone(),
                    latencies: self.args.latencies,
                    seeds: self.args.seeds,
                    placements: self.args.placements,
                    place: Some(self.args.place.name()),
                    parameters: self.parameters(),
                    warm_up: millis / 4e3,
                    crowded_seconds: self.crowded_millis().filter(|long| *long > millis).map(|long| long / 1e3),
                }),
            },
            ..Results::default()
        }
    }

    /// The parameters that results show.
    fn parameters(&self) -> Parameters {
        let shown = self.values.all().filter(|(parameter, _)| parameter.said.is_some());
        Parameters(shown.map(|(parameter, value)| (parameter.name.to_owned(), value)).collect())
    }

    /// A description of the simulation, in sentences.
    fn about(&self, millis: f64) -> String {
        let work = self.work.summary;
        let mix: String = self.values.said().iter().map(|what| format!(", {what}")).collect();
        let latencies = match self.args.latencies {
            1.0 => String::new(),
            factor => format!(", with latencies {factor} times as long"),
        };
        let placed = self.args.place.remark();
        let (machine, warm_up) = (&self.machine.title, millis / 4.0);
        let longer = self.longer(millis).unwrap_or_default();
        format!(
            "{work}{mix}. Machine: {machine}{latencies}{placed}. Each run: {millis} ms of virtual time, after \
             {warm_up} ms that do not count.{longer}"
        )
    }

    /// How long a run with so many threads measures, in ms. If threads must take turns, it is long enough for all of
    /// them to have run.
    fn millis(&self, threads: u32) -> f64 {
        let usual = self.work.millis;
        let crowded = threads > self.machine.cpus();
        self.args.millis.unwrap_or_else(|| if crowded { usual.max(self.all_have_run()) } else { usual })
    }

    /// How long runs with more threads than CPUs measure, if there are any.
    fn crowded_millis(&self) -> Option<f64> {
        let crowd = self.threads.last().copied().filter(|threads| *threads > self.machine.cpus())?;
        Some(self.millis(crowd))
    }

    fn all_have_run(&self) -> f64 {
        SLICES * self.machine.scheduler.slice_us / 1e3
    }

    /// A remark on runs with more threads than CPUs: threads without a CPU wait until a time slice is over.
    fn longer(&self, millis: f64) -> Option<String> {
        let (crowded, enough) = (self.crowded_millis()?, self.all_have_run());
        let cpus = units::counted(u64::from(self.machine.cpus()), "thread");
        match crowded {
            long if long > millis => {
                Some(format!(" With more than {cpus} {long} ms, because they take turns in time slices."))
            }
            short if short < enough => Some(format!(
                " With more than {cpus} that is short, because they take turns in time slices: --millis {enough} says \
                 more of them."
            )),
            _ => None,
        }
    }

    /// The machine's description for the result file.
    fn simulated(&self) -> Machine {
        let shape = &self.machine.topology;
        Machine {
            cpu: Some(format!("simulated: {}", self.machine.title)),
            cpus: self.machine.cpus() as usize,
            usable_cpus: self.machine.cpus() as usize,
            cores: Some(self.machine.cores() as usize),
            packages: Some(shape.packages as usize),
            numa_nodes: Some(self.machine.nodes() as usize),
            ..Machine::default()
        }
    }
}

/// Powers of two, the number of CPUs, and half as many again, but none below `fewest`.
fn usual_threads(fewest: u32, cpus: u32) -> Vec<u32> {
    let powers = std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|threads| *threads < cpus);
    let all = powers.chain([cpus, cpus + cpus / 2]).map(|threads| threads.max(fewest));
    sorted(&all.collect::<Vec<_>>())
}

fn sorted(threads: &[u32]) -> Vec<u32> {
    let mut threads = threads.to_vec();
    threads.sort_unstable();
    threads.dedup();
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_numbers_of_threads() {
        assert_eq!(usual_threads(1, 6), [1, 2, 4, 6, 9]);
        assert_eq!(usual_threads(2, 6), [2, 4, 6, 9]);
        assert_eq!((usual_threads(1, 1), usual_threads(2, 1)), (vec![1], vec![2]));
        assert_eq!(sorted(&[4, 1, 4]), [1, 4]);
    }
}
