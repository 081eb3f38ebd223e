//! `cargo xtask atomics`: how many atomic read-modify-writes an uncontended acquisition and release execute, compared
//! with what the catalogue says; and that in a process with one thread it is none. A glibc that does not say that there
//! is one thread ([`UNTOLD`]) shows that this check can fail: under it the process executes as many as with two.
//!
//! The fast path of a delegated lock (`rcl`) is counted as well, on both sides: a request that is posted, run and
//! answered by the one servicing thread that has the turn. It must execute none, and no fence either.
//!
//! They are counted as they are executed, not as they stand in the code. The benchmark of uncontended pairs runs under
//! callgrind, which counts each instruction by its address while it is inside one function, with all that this calls.
//! The disassembly of the library says which of them are atomic: those with a `lock` prefix, and exchanges with memory,
//! which need none. (x86-64.) What happens once, at the start, is a small part of the number of calls, and so can be
//! separated from what each call does.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use flashlock_locks::catalogue::LOCKS;
use flashlock_locks::catalogue::rw::RW_LOCKS;
use flashlock_report::table;

use crate::child::output;
use crate::instructions::{LIBRARY, Profiled, callgrind, pair_program, profile};
use crate::locks::{self, Kind, Lock, Under};
use crate::steps::{Tally, watched};
use crate::workspace;

#[derive(Args)]
pub(crate) struct Options {
    /// Use these locks (may be repeated, or a list with commas); by default every interposable lock
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
}

/// How many pairs are executed. Nothing at the start of a process takes nearly as many atomic instructions.
const CALLS: u64 = 2_000;

/// Locks for which each acquisition takes a queue node, and each release gives one back, even if no thread waits: that
/// is an exchange with the thread's spare node, because a signal handler may come between. The catalogue counts the
/// lock's own words.
const TAKE_NODES: &[&str] = &["clh"];

/// A library of `tests/bench` that clears `__libc_single_threaded`.
const UNTOLD: &str = "untold.so";

/// How many threads the process has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    /// One more, which is asleep.
    Second,
    /// None.
    Alone,
    /// None, but glibc does not say so.
    Untold,
}

/// What is measured of one kind of pair: its functions, and how many atomic instructions they are to execute together.
struct Claim {
    company: Company,
    arguments: &'static [&'static str],
    functions: &'static [&'static str],
    atomics: u32,
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    if cfg!(not(target_arch = "x86_64")) {
        bail!("atomic instructions are told by their x86-64 names");
    }
    let mutexes: Vec<String> = options.lock.iter().filter(|name| *name != RCL).cloned().collect();
    let locks = match (options.lock.is_empty(), mutexes.is_empty()) {
        (true, _) => locks::interposable()?,
        (false, true) => Vec::new(),
        (false, false) => locks::select(&mutexes)?,
    };
    let pair = pair_program()?;
    let library = workspace::preload()?;
    let atomic = atomic_addresses(&disassembly(&library)?);
    let mut tally = Tally::default();
    let mut table = table::of_numbers(["lock", "process", "pair", "function", "atomics", "expected"]);
    for lock in &locks {
        for claim in claims(lock)? {
            let under = Under::lock(&lock.name)?;
            let seen = watched(&lock.name, || executed(&pair, &under, &claim, &atomic))?;
            tally += if seen == u64::from(claim.atomics) { Tally::PASSED } else { Tally::FAILED };
            let process = match claim.company {
                Company::Second => "a second thread",
                Company::Alone => "one thread",
                Company::Untold => "one thread, untold",
            };
            table.add_row([
                lock.name.clone(),
                process.to_owned(),
                claim.arguments.join(" "),
                claim.functions.join(" + "),
                seen.to_string(),
                claim.atomics.to_string(),
            ]);
        }
    }
    if options.lock.is_empty() || options.lock.iter().any(|name| name == RCL) {
        let seen = watched(RCL, rcl)?;
        tally += if seen == 0 { Tally::PASSED } else { Tally::FAILED };
        let row = [RCL, "a second thread", "post, run, answer", RCL_FUNCTION, &seen.to_string(), "0"];
        table.add_row(row.map(str::to_owned));
    }
    println!("atomic instructions of each call:\n{table}");
    if tally.failed > 0 {
        println!("the catalogue says otherwise, or a process with one thread executes some");
    }
    Ok(tally)
}

/// The lock that programs use without the preload, and what does its fast path: `crates/delegation/examples`.
const RCL: &str = "rcl";
const RCL_PROGRAM: &str = "post_and_answer";
const RCL_FUNCTION: &str = "flashlock_post_and_answer";

/// How many atomic instructions and fences a section takes if one servicing thread runs it and no thread sleeps.
fn rcl() -> Result<u64> {
    workspace::build()?;
    let program = workspace::path("target/release/examples").join(RCL_PROGRAM);
    let program = workspace::require(program, "its build succeeded, so its name has changed")?;
    let text = disassembly(&program)?;
    let mut atomic = atomic_addresses(&text);
    atomic.extend(addresses(&text, |instruction, _| instruction == "mfence"));
    let options = ["--dump-instr=yes", &format!("--toggle-collect={RCL_FUNCTION}")];
    let Profiled { profile, stdout: said } = profile(&program, &options, &[&CALLS.to_string()], &mut |_| ())?;
    if said.trim() != format!("sections={CALLS} membarrier=true") {
        bail!("{RCL_PROGRAM} said: {said} (without membarrier there are fences)");
    }
    let counts = counts(&profile, RCL_PROGRAM)?;
    // Tens of instructions a section: else something else was counted.
    if counts.values().sum::<u64>() < 50 * CALLS {
        bail!("callgrind saw no {CALLS} sections in {RCL_FUNCTION}");
    }
    let sum = counts.iter().filter(|(address, _)| atomic.contains(address)).map(|(_, count)| count).sum();
    whole(sum, CALLS).with_context(|| format!("{sum} atomic instructions in {CALLS} sections"))
}

const MUTEX: &[&str] = &["pthread_mutex_lock", "pthread_mutex_unlock"];
const TRY_MUTEX: &[&str] = &["pthread_mutex_trylock", "pthread_mutex_unlock"];
const READ: &[&str] = &["pthread_rwlock_rdlock", "pthread_rwlock_unlock"];
const WRITE: &[&str] = &["pthread_rwlock_wrlock", "pthread_rwlock_unlock"];

/// What the catalogue says of a lock: of a mutex's acquisition and release; of a readers-writer lock's pairs. And
/// what holds of all in a process with one thread.
fn claims(lock: &Lock) -> Result<Vec<Claim>> {
    let missing = || format!("{} is not in the catalogue that this task was built with", lock.name);
    let second = |arguments, functions, atomics| Claim { company: Company::Second, arguments, functions, atomics };
    let alone = |arguments, functions| Claim { company: Company::Alone, arguments, functions, atomics: 0 };
    Ok(match lock.kind {
        Kind::Mutex => {
            let info = LOCKS.iter().find(|info| info.name == lock.name).with_context(missing)?;
            let node = u32::from(TAKE_NODES.contains(&info.name));
            let mut claims = vec![
                second(&["--kind", "default"], &MUTEX[..1], info.atomics_lock + node),
                second(&["--kind", "default"], &MUTEX[1..], info.atomics_unlock + node),
                alone(&["--kind", "default"], MUTEX),
            ];
            if lock.default {
                claims.extend([
                    alone(&["--kind", "default", "--trylock"], TRY_MUTEX),
                    alone(&["--kind", "recursive"], MUTEX),
                    alone(&["--kind", "errorcheck"], MUTEX),
                    alone(&["--kind", "sem"], &["sem_wait", "sem_post"]),
                    // Other processes may share it.
                    Claim { atomics: 1, ..alone(&["--kind", "spin"], &["pthread_spin_lock", "pthread_spin_unlock"]) },
                    Claim {
                        company: Company::Untold,
                        atomics: info.atomics_lock + info.atomics_unlock,
                        ..alone(&["--kind", "default"], MUTEX)
                    },
                ]);
            }
            claims
        }
        Kind::Rw => {
            let info = RW_LOCKS.iter().find(|info| info.name == lock.name).with_context(missing)?;
            vec![
                second(&["--kind", "read"], READ, info.atomics_read),
                second(&["--kind", "write"], WRITE, info.atomics_write),
                alone(&["--kind", "read"], READ),
                alone(&["--kind", "write"], WRITE),
            ]
        }
    })
}

/// How many atomic instructions of the library a pair of calls executes in these functions, with all that they call.
fn executed(pair: &Path, under: &Under, claim: &Claim, atomic: &HashSet<u64>) -> Result<u64> {
    let inside: Vec<String> = claim.functions.iter().map(|function| format!("--toggle-collect={function}")).collect();
    let options: Vec<&str> = std::iter::once("--dump-instr=yes").chain(inside.iter().map(String::as_str)).collect();
    let count = CALLS.to_string();
    let mut arguments = [claim.arguments, &["--count", &count]].concat();
    if claim.company != Company::Second {
        arguments.push("--single");
    }
    let others = match claim.company {
        Company::Untold => vec![workspace::require(pair.with_file_name(UNTOLD), "see tests/bench/build.sh")?],
        _ => Vec::new(),
    };
    let profile = callgrind(pair, under, &others, &options, &arguments)?;
    let counts = counts(&profile, LIBRARY)?;
    let names = claim.functions.join(" and ");
    if counts.values().sum::<u64>() < CALLS {
        bail!("callgrind saw no {CALLS} calls of {names} in {LIBRARY}: is it preloaded?");
    }
    let sum: u64 = counts.iter().filter(|(address, _)| atomic.contains(address)).map(|(_, count)| count).sum();
    whole(sum, CALLS).with_context(|| format!("{names}: {sum} atomic instructions in {CALLS} calls"))
}

/// How many for each call, except for a few at the start.
fn whole(sum: u64, calls: u64) -> Result<u64> {
    const FEW: u64 = 20;
    if sum % calls > FEW {
        bail!("not a whole number for each call");
    }
    Ok(sum / calls)
}

/// How often each address of the library was executed, from callgrind's output with `--dump-instr=yes`: lines of
/// address, line, count. The one after `calls=` is the called function's, which has its own.
fn counts(profile: &str, library: &str) -> Result<BTreeMap<u64, u64>> {
    let (mut inside, mut called, mut counts) = (false, false, BTreeMap::new());
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            inside = object.contains(library);
        } else if line.starts_with("calls=") {
            called = true;
        } else if let Some(rest) = line.strip_prefix("0x") {
            if inside && !called {
                let mut words = rest.split_whitespace();
                let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
                let count = words.nth(1).and_then(|word| word.parse::<u64>().ok());
                let (address, count) =
                    address.zip(count).with_context(|| format!("not a line of callgrind's output: {line}"))?;
                *counts.entry(address).or_insert(0) += count;
            }
            called = false;
        }
    }
    Ok(counts)
}

fn disassembly(library: &Path) -> Result<String> {
    output("objdump", &[Path::new("--disassemble"), Path::new("--no-show-raw-insn"), library])
}

/// The addresses of a disassembly's atomic instructions.
fn atomic_addresses(disassembly: &str) -> HashSet<u64> {
    let exchanges = |instruction: &str, operands: &str| instruction.starts_with("xchg") && operands.contains('(');
    addresses(disassembly, |instruction, operands| instruction == "lock" || exchanges(instruction, operands))
}

/// The addresses of those of its instructions.
fn addresses(disassembly: &str, is_one: impl Fn(&str, &str) -> bool) -> HashSet<u64> {
    let found = |line: &str| {
        let (address, instruction) = line.trim_start().split_once(":\t")?;
        let (instruction, operands) = instruction.trim().split_once(' ').unwrap_or((instruction.trim(), ""));
        let address = u64::from_str_radix(address, 16).ok()?;
        is_one(instruction, operands).then_some(address)
    };
    disassembly.lines().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_instructions_are_told() {
        let text = "\
0000000000001000 <f>:
    1000:\tmov    (%rdi),%eax
    1002:\tlock cmpxchg %ecx,(%rdi)
    1006:\txchg   %eax,(%rdi)
    1008:\txchg   %ax,%ax
    100a:\txchg   %eax,0x20(%rip)        # 2000 <g>
    1010:\tret
";
        assert_eq!(atomic_addresses(text), HashSet::from([0x1002, 0x1006, 0x100a]));
    }

    #[test]
    fn fences_are_told() {
        let fences =
            addresses("    1000:\tmfence\n    1003:\tmov    %eax,%ebx\n", |instruction, _| instruction == "mfence");
        assert_eq!(fences, HashSet::from([0x1000]));
    }

    #[test]
    fn executions_are_counted_by_address_and_library() {
        let profile = "positions: instr line\n\nob=/x/program\nfn=main\n0x1002 1 5\n\n\
            ob=/x/libflashlock_preload.so\nfn=f\n0x1000 0 7\ncfn=g\ncalls=7 0x1010\n0x1002 0 70\n0x1002 0 7\n\n\
            fn=g\n0x1002 3 2\n";
        let counts = counts(profile, "libflashlock_preload").expect("valid");
        assert_eq!(counts, BTreeMap::from([(0x1000, 7), (0x1002, 9)]));
    }

    #[test]
    fn a_start_is_not_a_call_and_half_a_call_is_none() {
        assert_eq!(
            (whole(2_003, 2_000).ok(), whole(0, 2_000).ok(), whole(4_000, 2_000).ok()),
            (Some(1), Some(0), Some(2))
        );
        assert!(whole(3_000, 2_000).is_err());
    }
}
