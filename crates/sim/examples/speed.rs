//! How fast simulated time passes: events per second of host CPU time, and the most memory that the process had.
//!
//! `cargo run --release -p flashlock-sim --example speed [MACHINE [LOCK [THREADS [ACQUISITIONS]]]]`; by default some locks on
//! machines of 72 and 512 CPUs, each in a process of its own.

use std::process::{Command, ExitCode};
use std::rc::Rc;

use flashlock_locks::for_each_lock;
use flashlock_locks::machine::Word as _;
use flashlock_locks::raw::RawLock;
use flashlock_sim::{Description, Options, Outcome, Region, Sim, Simulation, Word, compute};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [machine, lock, threads, rounds] => one(machine, lock, threads.parse().ok(), rounds.parse().ok()),
        _ => several(&arguments),
    }
}

/// Each in a process of its own: memory is the process's.
fn several(arguments: &[&str]) -> ExitCode {
    println!(
        "{:10} {:14} {:>8} {:>12} {:>9} {:>12} {:>7}",
        "machine", "lock", "threads", "events", "CPU s", "events/s", "MiB"
    );
    let wanted = |at: usize, name: &str| arguments.get(at).is_none_or(|only| *only == name);
    let mut status = ExitCode::SUCCESS;
    for (machine, cpus) in [("2x18x2", "72"), ("2x128x2", "512")] {
        for lock in ["mcs", "cna", "tas", "shfl"] {
            let threads = arguments.get(2).copied().unwrap_or(cpus);
            if wanted(0, machine) && wanted(1, lock) {
                let this = std::env::current_exe().expect("this program has a file");
                let done = Command::new(this).args([machine, lock, threads, "200000"]).status();
                if !done.is_ok_and(|status| status.success()) {
                    status = ExitCode::FAILURE;
                }
            }
        }
    }
    status
}

fn one(machine: &str, lock: &str, threads: Option<u32>, all: Option<u32>) -> ExitCode {
    let (Ok(machine), Some(run), Some(threads), Some(all)) = (Description::find(machine), run_of(lock), threads, all)
    else {
        eprintln!("speed: MACHINE LOCK THREADS ACQUISITIONS are needed, all of them known or numbers");
        return ExitCode::FAILURE;
    };
    let before = cpu_seconds();
    let outcome = run(&machine, threads, all.div_ceil(threads));
    let seconds = cpu_seconds() - before;
    let rate = outcome.events as f64 / seconds;
    println!(
        "{:10} {lock:14} {threads:>8} {:>12} {seconds:>9.2} {rate:>12.0} {:>7.0}",
        machine.name,
        outcome.events,
        peak_mib()
    );
    ExitCode::SUCCESS
}

type Run = fn(&Description, u32, u32) -> Outcome;

/// By name, with the waiting policy that is its default.
fn run_of(lock: &str) -> Option<Run> {
    let mut found = None;
    macro_rules! all {
        ($(($variant:ident, $name:literal, [$wait:ident => $type:ty $(, $more:ident => $other:ty)*], $facts:tt)),* $(,)?) => {
            $(if lock == $name {
                found = Some(run::<$type> as Run);
            })*
        };
    }
    for_each_lock!(all);
    found
}

/// Short sections on four shared lines, in a loop, with a little work outside.
fn run<L: RawLock<Sim>>(machine: &Description, threads: u32, rounds: u32) -> Outcome {
    let mut simulation = Simulation::new(machine, Options::default());
    let lock = Rc::new(simulation.place("lock", (Word::new(0), L::new_queue())));
    let data = Rc::new(Region::new(4));
    for _ in 0..threads {
        let (lock, data) = (Rc::clone(&lock), Rc::clone(&data));
        simulation.spawn(move || {
            for _ in 0..rounds {
                L::lock(&lock.0, &lock.1);
                (0..4).for_each(|line| data.read(line));
                data.write(0);
                compute(50.0);
                L::unlock(&lock.0, &lock.1);
                compute(200.0);
            }
        });
    }
    simulation.run().unwrap_or_else(|stuck| panic!("{stuck}"))
}

/// Of this process so far.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux says how long a process had a CPU");
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("the first number is in ns") / 1e9
}

fn peak_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux says how much memory a process had");
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak is among it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("in KiB") / 1024.0
}
