//! # Exceptions: what a lock cannot do that glibc's can
//!
//! In terms of the project's own checks, and in groups, because many locks share them. A row of the catalogue names the
//! groups that hold for its lock.

/// A check of the project's own conformance or torture suite to which a lock gives another answer than glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The check, as the suite names it (`torture.` before a torture scenario); `*` stands for anything.
    pub check: &'static str,
    /// Why this lock cannot do it.
    pub reason: &'static str,
}

/// Each check, for the reason that stands before it.
macro_rules! group {
    ($($reason:literal: $($check:literal),+;)+) => { &[$($(Exception { check: $check, reason: $reason }),+),+] };
}

/// Of locks whose word is not glibc's.
pub const FOREIGN_CODE: &[Exception] = group! {
    "its word does not follow glibc's protocol, so code that bypasses flashlock must not use its mutexes":
        "mutex_foreign.*", "slow_motion.*foreign*";
};

/// Of locks whose release chooses the next holder.
pub const NOT_RUNNING: &[Exception] = group! {
    "the release hands the lock to one waiter, whether that waiter is running or not":
        "signals.frozen_*", "slow_motion.*stopped_anywhere_stops_nobody_else", "torture.freeze-waiter";
    "the lock may be handed to the thread whose signal handler waits":
        "signals.handler_blocks_on_another_mutex_inside_a_lock";
    "a waiter whose signal handler forks has a place in the child that no release there knows":
        "fork.a_wait_goes_on_in_a_child_of_its_handler";
};

/// Of locks without a place for sleepers.
pub const ONE_BY_ONE: &[Exception] = group! {
    "a broadcast releases its waiters one after another, so a frozen waiter delays the others": "signals.frozen_*";
};

/// Of locks whose waiters poll for as long as they wait.
pub const POLLS: &[Exception] = group! {
    "waiters poll the lock, so its memory must stay mapped while they wait":
        "exit.memory_*_under_*waiter*";
};

/// Of locks whose waiters sleep on the lock's word.
pub const SLEEPS_ON_WORD: &[Exception] = group! {
    "a waiter whose sleep a signal interrupts looks at the lock's word, as with glibc":
        "exit.memory_reused_under_interrupted_waiters";
};

/// Of a readers-writer lock that prefers as glibc's does.
pub const STARVES_WRITERS: &[Exception] = group! {
    "readers that overlap each other keep writers out for ever, as with glibc": "rwlock_order.kind_0_writer*";
    "waiting writers are counted, even those that do not exist in a forked child, as with glibc":
        "rwlock_life.kind_2_fork_with_writers_*";
};
