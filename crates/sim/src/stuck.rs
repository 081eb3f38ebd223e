//! # The report of a run that hangs
//!
//! It covers runs in which no thread can continue, or no thread makes progress. For each thread it says where the
//! thread waits, which the kernel knows, and what the thread waits for and has, which the thread itself has declared.
//! Without those declarations it would say little, because with most locks each waiter polls a line of its own.

use std::fmt;

use crate::arena::{Arena, LINE, NODES};
use crate::kernel::Kernel;
use crate::machine::Word;
use crate::thread::State;

/// How the hang was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No event is left: a deadlock or a lost wake-up.
    Deadlock,
    /// Some thread still runs or polls, but for so long, in ns of virtual time, no thread has made progress. The cause
    /// is polling for an event that never comes, or a machine on which no thread gets to run.
    NoProgress(u64),
}

/// The run hangs: some threads have not returned, and never will, or not within reasonable time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The reason.
    pub why: Why,
    /// When, in ns of virtual time.
    pub at_ns: u64,
    /// For each thread, what it waits for, in words.
    pub threads: Vec<String>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at_ns;
        match self.why {
            Why::Deadlock => {
                write!(f, "deadlock or lost wake-up after {at} ns: nobody can ever go on")?;
            }
            Why::NoProgress(ns) => {
                let seconds = ns as f64 / 1e9;
                write!(
                    f,
                    "no progress for {seconds} s of virtual time, stopped after {at} ns: a deadlock of who polls, or a \
                     machine too slow"
                )?;
            }
        }
        self.threads.iter().try_for_each(|thread| write!(f, "\n  {thread}"))
    }
}

impl std::error::Error for Stuck {}

/// A placed object: the address of its first byte, its length, its name.
pub(crate) type Name = (usize, usize, String);

/// Describes what each unfinished thread waits for.
pub(crate) fn report(kernel: &Kernel, why: Why, names: &[Name]) -> Stuck {
    let threads = kernel.threads.iter().enumerate().filter(|(_, thread)| thread.state != State::Done);
    let described = threads.map(|(tid, thread)| {
        let what = match thread.state {
            State::Asleep { address: 0, .. } => "sleeps for a time".to_owned(),
            State::Asleep { since, address } => {
                let word: *const Word = std::ptr::with_exposed_provenance(address);
                // SAFETY: threads sleep only on words of the arena (`Waiting::park` has read the word), and those are
                // valid for ever (`arena`, invariants 1 and 2).
                let holds = unsafe { &*word }.peek();
                format!("sleeps on {} (which holds {holds}) since {} ns", place(kernel, names, address), since / 1000)
            }
            State::Polling { line, since, .. } => {
                let address = kernel.arena.address(line);
                format!("polls the line of {} since {} ns", place(kernel, names, address), since / 1000)
            }
            State::Ready { since, .. } => format!("wants CPU {} since {} ns", thread.cpu, since / 1000),
            State::Busy { .. } if thread.waited_for != 0 => {
                format!("looks at {} again and again", place(kernel, names, thread.waited_for))
            }
            State::Busy { .. } => format!("is busy on CPU {}", thread.cpu),
            State::Done => unreachable!("filtered"),
        };
        let wants = thread.wants.map(|lock| format!(", wants {lock}")).unwrap_or_default();
        let has = thread.has.iter().map(|lock| format!(", has {lock}"));
        format!("thread {tid} {what}{wants}{}", has.collect::<String>())
    });
    Stuck { why, at_ns: kernel.now / 1000, threads: described.collect() }
}

/// Describes what lies at an address.
fn place(kernel: &Kernel, names: &[Name], address: usize) -> String {
    let offset = address - kernel.arena.address(0);
    if offset < NODES as usize * LINE {
        return format!("queue node {}, byte {}", Arena::handle_word((offset / LINE) as u32), offset % LINE);
    }
    match names.iter().find(|(first, bytes, _)| (*first..first + bytes).contains(&address)) {
        Some((first, _, name)) => format!("{name}, byte {}", address - first),
        None => format!("line {}", offset / LINE),
    }
}
