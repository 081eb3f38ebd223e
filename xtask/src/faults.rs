//! Whether the conformance suite finds out locks that have a fault.
//!
//! `tests/conformance/faulty.c` makes locks with one fault each. For each there is a check that must fail with it, and
//! pass without: a check that a faulty lock passes would be worth nothing.

use std::fmt::Display;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::child::Program;
use crate::conformance::BRIEF;
use crate::steps::{Tally, watched};
use crate::verdicts::{self, Verdict};

/// Locks with this fault fail these checks; with `right` instead of the fault, which has the same code, they pass them.
struct Fault {
    name: &'static str,
    right: &'static str,
    checks: &'static [&'static str],
    /// What the fault does to a program.
    ends: Ends,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// A check sees it.
    Wrong,
    /// It waits for ever.
    Hangs,
}

use Ends::{Hangs, Wrong};

const COND: &str = "cond-right";
const SEM: &str = "sem-right";
const RW: &str = "rw-right";
const MUTEX: &str = "own-mutex-right";
const GLIBC: &str = "none";

#[rustfmt::skip]
const FAULTS: [Fault; 29] = [
    Fault::new("cond-waiter-counts-itself-late", COND, Hangs, &["slow_motion.signal_at_any_point_of_a_wait"]),
    Fault::new("cond-waiter-looks-late", COND, Wrong, &["slow_motion.cond_waits_and_another_stopped_anywhere"]),
    Fault::new("cond-time-out-swallows-a-signal", COND, Wrong, &[
        "slow_motion.cond_time_out_and_another_stopped_anywhere",
    ]),
    Fault::new("cond-two-signals-count-as-one", COND, Wrong, &[
        "slow_motion.cond_signals_and_another_stopped_anywhere",
    ]),
    Fault::new("signal-waits-for-its-threads-unlock", GLIBC, Hangs, &[
        "cond_holder.a_default_mutexs_holder_signals_and_destroys",
        "cond_holder.a_default_mutexs_holder_signals_and_another_destroys",
        "cond_holder.a_default_mutexs_holder_signals_and_another_unlocks",
        "cond_holder.a_default_mutexs_holder_signals_and_waits",
    ]),
    Fault::new("sem-post-wakes-only-the-first", SEM, Wrong, &["slow_motion.sem_wait_stopped_anywhere_before_48"]),
    Fault::new("sem-private-only", SEM, Hangs, &["sem.shared_between_processes"]),
    Fault::new("sem-destroy-leaves-mark", SEM, Hangs, &["sem.destroyed_memory_becomes_the_c_librarys"]),
    Fault::new("rw-waiter-looks-late", RW, Wrong, &[
        "slow_motion.rw_rdlock_stopped_anywhere", "slow_motion.rw_timedwrlock_stopped_anywhere",
    ]),
    Fault::new("rw-two-unlocks-count-as-one", RW, Wrong, &["slow_motion.rw_unlock_and_another_stopped_anywhere"]),
    Fault::new("own-mutex-alone-too-long", MUTEX, Wrong, &[
        "alone.a_thread_holds_a_mutex_from_any_instruction_of_lock_on",
    ]),
    Fault::new("own-mutex-time-out-forgets-others", MUTEX, Wrong, &[
        "slow_motion.time_out_and_another_stopped_anywhere_lose_nobody",
    ]),
    Fault::new("own-mutex-unlock-looks-early", MUTEX, Wrong, &[
        "slow_motion.unlock_and_another_stopped_anywhere_lose_nobody",
    ]),
    Fault::new("own-mutex-unlock-waits-for-arrivals", MUTEX, Wrong, &["real_time.holder_outranks_who_joins"]),
    Fault::new("own-mutex-knows-its-process", MUTEX, Hangs, &["mapped.default_processes_contend_in_turn"]),
    Fault::new("mutex-destroyed-while-in-use", GLIBC, Wrong, &[
        "cond_busy.a_default_mutex_until_all_are_woken", "mutex_kinds.default_destroy_while_locked_is_ebusy",
    ]),
    Fault::new("mutex-not-robust", GLIBC, Hangs, &["passthrough.robust_lock_recovers"]),
    Fault::new("mutex-hides-its-owner", GLIBC, Wrong, &["owner.a_default_mutex_names_its_holder"]),
    Fault::new("mutex-unlock-leaves-its-owner", GLIBC, Wrong, &["mutex_foreign.libc_handle_locks_and_program_unlocks"]),
    Fault::new("mutex-try-says-again", GLIBC, Wrong, &["mutex_kinds.default_own_trylock_is_ebusy"]),
    Fault::new("lock-allocates", GLIBC, Wrong, &["malloc.threads_allocate"]),
    Fault::new("lock-maps-memory", GLIBC, Wrong, &["threads.address_space_exhausted"]),
    Fault::new("lock-opens-a-file", GLIBC, Wrong, &["sandbox.a_hundred_wait_for_a_mutex"]),
    Fault::new("lock-sets-errno", GLIBC, Wrong, &["errno_kept.uncontended_mutex_calls"]),
    Fault::new("lock-writes-behind-the-mutex", GLIBC, Wrong, &["mutex_static.neighbours_stay_untouched"]),
    Fault::new("release-looks-back", GLIBC, Wrong, &[
        "slow_motion.default_unlock_never_looks_back", "slow_motion.default_unlock_with_a_waiter_never_looks_back",
        "slow_motion.default_unlock_with_3_waiters_never_looks_back",
        "slow_motion.sem_post_never_looks_back", "slow_motion.sem_post_to_a_waiter_never_looks_back",
        "slow_motion.rw_static_unlock_never_looks_back",
        "slow_motion.rw_static_unlock_with_a_waiter_never_looks_back",
        "slow_motion.rw_unlock_with_3_waiters_never_looks_back",
        "slow_motion.spin_unlock_never_looks_back",
        "slow_motion.signal_inside_never_looks_back", "slow_motion.signal_inside_with_3_waiters_never_looks_back",
        "slow_motion.signal_outside_never_looks_back", "slow_motion.broadcast_inside_never_looks_back",
        "slow_motion.broadcast_outside_with_3_waiters_never_looks_back",
    ]),
    Fault::new("sleepers-look", GLIBC, Wrong, &[
        "exit.memory_gone_under_one_waiter", "exit.memory_gone_under_many_waiters", "exit.memory_reused_under_waiters",
        "rwlock_life.memory_gone_under_a_reader", "rwlock_life.memory_gone_under_readers",
        "rwlock_life.memory_gone_under_a_writer", "rwlock_life.memory_reused_under_a_writer",
        "rwlock_life.memory_gone_under_both", "rwlock_life.memory_reused_under_both",
        "sem_waits.memory_gone_under_waiters",
    ]),
    Fault::new("spin-excludes-nobody", GLIBC, Wrong, &["spin.two_threads_exclude"]),
    Fault::new("takes-a-key", GLIBC, Wrong, &["threads.a_program_gets_all_thread_specific_keys"]),
];

impl Fault {
    const fn new(name: &'static str, right: &'static str, ends: Ends, checks: &'static [&'static str]) -> Self {
        Self { name, right, checks, ends }
    }

    /// Runs the checks with that fault.
    fn run(&self, program: &Path, fault: &str, seconds: impl Display, timeout: u64) -> Result<verdicts::Verdicts> {
        let mut command = Command::new(program);
        command.args(["--timeout", &timeout.to_string()]).args(self.checks);
        command.env("CONFORMANCE_SECONDS", seconds.to_string()).env("FAULT", fault);
        command.env("LD_PRELOAD", program.with_file_name("faulty.so"));
        let checks: Vec<String> = self.checks.iter().map(|&check| check.to_owned()).collect();
        let limit = Duration::from_secs(60 + timeout * checks.len() as u64);
        verdicts::read(&Program::new(command, limit).run()?, &checks)
    }

    /// A line for each check that does not distinguish the fault from what is right.
    fn missed(&self, program: &Path) -> Result<Vec<String>> {
        // A check that searches for as long as it may ends when it has found something.
        let (searches, hangs) = if self.ends == Hangs { (1, PATIENCE) } else { (SEARCH, 2 * SEARCH) };
        let mut missed = Vec::new();
        for (check, verdict) in self.run(program, self.name, searches, hangs)? {
            match verdict {
                Verdict::Failed(reason) => println!("ok {} is found by {check}: {reason}", self.name),
                Verdict::Passed => missed.push(format!("{check} does not find {}", self.name)),
                Verdict::Skipped(why) => missed.push(format!("{check} was skipped: {why}")),
            }
        }
        for (check, verdict) in self.run(program, self.right, BRIEF, 2 * SEARCH)? {
            if let Verdict::Failed(reason) = verdict {
                missed.push(format!("{check} fails without {}: {reason}", self.name));
            }
        }
        Ok(missed)
    }
}

/// For how long (s) a check may search for a fault. On a quiet machine it takes seconds.
const SEARCH: u64 = 300;
/// How long (s) a check that must hang is waited for. One that does not hang takes less than a second here; should it
/// take longer, it counts as hanging, so a slow machine cannot fail this.
const PATIENCE: u64 = 30;

/// All faults at once: their checks sleep, mostly.
pub(crate) fn run(program: &Path) -> Result<Tally> {
    let missed = watched("faults that the suite must find", || {
        thread::scope(|scope| {
            let threads: Vec<_> = FAULTS.iter().map(|fault| scope.spawn(|| fault.missed(program))).collect();
            let join = |(thread, fault): (thread::ScopedJoinHandle<'_, _>, &Fault)| -> Result<_> {
                let missed = thread.join().map_err(|_| anyhow!("it panicked"));
                missed.flatten().with_context(|| fault.name)
            };
            threads.into_iter().zip(&FAULTS).map(join).collect::<Result<Vec<Vec<String>>>>()
        })
    })?;
    let mut tally = Tally::default();
    for lines in missed {
        lines.iter().for_each(|line| println!("not ok {line}"));
        tally += if lines.is_empty() { Tally::PASSED } else { Tally::FAILED };
    }
    Ok(tally)
}
