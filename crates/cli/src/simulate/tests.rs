//! What a run says, whatever the workload, the lock and the number of threads.

use flashlock_locks::catalogue::LOCKS;
use flashlock_sim::description::Hypervisor;
use flashlock_workloads::catalogue::{Values, WORKLOADS, WorkloadId};

use flashlock_measure::simulated::{Experiment, Sample, Timeline};
use flashlock_sim::thread::Use;
use flashlock_sim::{Description, Place};
use flashlock_workloads::catalogue::Setup;
use flashlock_workloads::wait::Waiting;

use super::candidate::Candidate;

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
    let figures = |work, threads| short(&machine, work, threads).run(lock.kind(), lock.tunables).unwrap().figures;
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
        let found = short(&machine, WorkloadId::Kvmap, threads).run(lock.kind(), lock.tunables).unwrap().figures;
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
            let run = short(&machine, work.id, threads).run(candidate.kind(), candidate.tunables);
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
        let Sample { figures, timeline: Timeline { sections, .. } } =
            experiment.run(lock.kind(), lock.tunables).unwrap();
        let operations = figures["ops_per_us"] * 1e3;
        let acquisitions = figures["acquisitions"] * operations;
        assert!((acquisitions - operations).abs() < few, "{}: {acquisitions} in {operations} operations", lock.text);
        assert!((acquisitions - sections.len() as f64).abs() < 0.5, "{}: {acquisitions}", lock.text);
        let time = experiment.warm_up..experiment.warm_up + experiment.length;
        let odd = sections.iter().find(|section| !time.contains(&section.begin) || section.end <= section.begin);
        assert_eq!(odd, None, "{}", lock.text);
    }
}

/// `mcscr` sets most threads aside: their waits begin before the measured time, or end after it.
#[test]
fn threads_that_are_set_aside_are_in_sections_all_the_time() {
    let machine = Description::find("2x18x2").unwrap();
    let mcscr = Candidate::parse("mcscr:wait=spin").unwrap();
    for (threads, length) in [(48, 50_000), (48, 1_000_000), (64, 200_000)] {
        let run = Experiment { length, ..short(&machine, WorkloadId::Kvmap, threads) };
        let share = run.run(mcscr.kind(), mcscr.tunables).unwrap().figures["in_sections"];
        assert!((0.95..=1.0).contains(&share), "{share} of the time with {threads} threads in {length} ns");
    }
}

/// A producer's operations do not count, and no consumer has an advantage under a FIFO lock.
#[test]
fn threads_whose_operations_do_not_count_are_not_treated_unfairly() {
    let machine = Description::find("2x18x2").unwrap();
    let mcs = Candidate::parse("mcs:wait=spin").unwrap();
    let figures = short(&machine, WorkloadId::Messages, 16).run(mcs.kind(), mcs.tunables).unwrap().figures;
    let of = |name: &str| figures[name];
    let found = ["fairness", "gini", "rstddev"].map(of);
    assert!(found[0] < 0.6 && found[1] < 0.1 && found[2] < 0.2, "{found:?}");
}

/// With a kernel's spin lock, no thread waits for a preempted thread.
#[test]
fn kernels_do_not_preempt_around_their_locks() {
    let machine = small();
    let speed = |work, threads, lock: &Candidate| {
        let mut run = short(&machine, work, threads);
        run.setup.waiting = lock.waiting();
        run.run(lock.kind(), lock.tunables).unwrap_or_else(|error| panic!("{}, {threads}: {error}", lock.text)).figures
            ["ops_per_us"]
    };
    let mcs = Candidate::parse("mcs:wait=spin").unwrap();
    for work in [WorkloadId::Locktorture, WorkloadId::Lockstat, WorkloadId::Open1, WorkloadId::Lock2] {
        let (few, many) = (speed(work, 4, &mcs), speed(work, 9, &mcs));
        assert!(many > 0.7 * few, "{work:?}: {few} with a CPU for each thread, {many} with more threads");
    }
    let (few, many) = (speed(WorkloadId::LeveldbReadrandom, 4, &mcs), speed(WorkloadId::LeveldbReadrandom, 9, &mcs));
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
    let shfl = Candidate::parse("shfl").unwrap();
    // A single consumer waits for ever for a message.
    let mut alone = short(&machine, WorkloadId::Messages, 1);
    let error = alone.run(shfl.kind(), shfl.tunables).unwrap_err();
    assert!(error.starts_with("deadlock or lost wake-up after") && error.contains("thread 0 sleeps on"), "{error}");
    alone.setup.waiting = Waiting::Polling;
    let error = alone.run(shfl.kind(), shfl.tunables).unwrap_err();
    assert!(error.starts_with("no progress for 10 s of virtual time"), "{error}");
}
