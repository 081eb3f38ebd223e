//! # Simulated threads and CPUs
//!
//! The kernel's record of each thread and of each CPU.

use std::cell::Cell;
use std::collections::VecDeque;

use flashlock_locks::machine::polling::Contention;
use flashlock_locks::machine::{Handle, Kept};

use crate::Ps;
use crate::access::{Look, Reads};
use crate::power::Draw;

/// A thread's number, which names it.
pub(crate) type Tid = u32;

/// What a thread spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Instructions, and accesses that the core's own caches serve.
    Compute,
    /// Waiting for lines from the same node.
    Local,
    /// Waiting for lines from another node.
    Remote,
    /// Waiting for lines from memory.
    Memory,
    /// Waiting until a line's server or a bus is free.
    Queueing,
    /// Polling a word that did not change.
    Polling,
    /// Asleep.
    Parked,
    /// System calls, waking other threads, context switches, and the wake-up of an idle CPU.
    System,
    /// Waiting for a CPU: in its queue, or while a hypervisor has taken the CPU away.
    Runnable,
}

impl Use {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::Compute,
        Self::Local,
        Self::Remote,
        Self::Memory,
        Self::Queueing,
        Self::Polling,
        Self::Parked,
        Self::System,
        Self::Runnable,
    ];

    /// The name, as one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Memory => "memory",
            Self::Queueing => "queueing",
            Self::Polling => "polling",
            Self::Parked => "parked",
            Self::System => "system",
            Self::Runnable => "runnable",
        }
    }

    /// Whether a thread has a CPU while it spends its time this way.
    #[inline]
    pub fn has_cpu(self) -> bool {
        !matches!(self, Self::Parked | Self::Runnable)
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On a CPU, with an event at `until` that lets it continue. [`Doing`] says what it is doing.
    Busy { until: Ps },
    /// On a CPU, polling a line since `since`; it looks again when the line changes. `every` is 0 if it waits for the
    /// change without polling.
    Polling { line: u32, since: Ps, next: Ps, every: Ps },
    /// Waits for a CPU since `since`. `rest`: how much of its interrupted work is left.
    Ready { since: Ps, rest: Ps },
    /// Asleep since `since`, on the word at this address, or only for a time (address 0).
    Asleep { since: Ps, address: usize },
    /// The thread has returned.
    Done,
}

/// What a busy thread is in the middle of, or what a thread that lost its CPU was in the middle of. The times ascend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    /// Since when. All earlier time is booked.
    pub(crate) since: Ps,
    /// The CPU switches to it until then,
    pub(crate) switched: Ps,
    /// then it waits for other threads until then,
    pub(crate) queued: Ps,
    /// and from then on its time counts as this.
    pub(crate) usage: Use,
}

impl Doing {
    pub(crate) fn new(since: Ps, usage: Use) -> Self {
        Self { since, switched: since, queued: since, usage }
    }
}

pub(crate) struct Thread {
    pub(crate) state: State,
    pub(crate) doing: Doing,
    /// Events of earlier generations are void.
    pub(crate) generation: u32,
    pub(crate) cpu: u32,
    /// Whether its last sleep ended by time-out.
    pub(crate) timed_out: bool,
    /// The address that it last polled or slept on.
    pub(crate) waited_for: usize,
    /// The next thread in the list of those that poll the same line.
    pub(crate) next_poller: Option<Tid>,
    /// When each of its stores leaves the store buffer.
    pub(crate) stores: VecDeque<Ps>,
    pub(crate) reads: Reads,
    /// The loads of its latest look, if it is scanning many words.
    pub(crate) look: Look,
    /// The line that it last waited for, and since when.
    pub(crate) last_miss: (u32, Ps),
    pub(crate) times: [Ps; Use::ALL.len()],
    pub(crate) nodes: Vec<Handle>,
    pub(crate) random: u64,
    pub(crate) kept: [Cell<u32>; Kept::OF_THREAD],
    pub(crate) contention: Contention,
    /// The priority that locks see. The simulated scheduler treats all threads alike.
    pub(crate) priority: i32,
    /// What it waits for and what it has, in its own words: for the report of a run that hangs.
    pub(crate) wants: Option<&'static str>,
    pub(crate) has: Vec<&'static str>,
    /// Whether it keeps its CPU when its slice is over.
    pub(crate) keeps_cpu: bool,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

impl Thread {
    pub(crate) fn new(cpu: u32, random: u64) -> Self {
        Self {
            state: State::Ready { since: 0, rest: 0 },
            doing: Doing::new(0, Use::Compute),
            generation: 0,
            cpu,
            timed_out: false,
            waited_for: 0,
            next_poller: None,
            stores: VecDeque::new(),
            reads: Reads::default(),
            look: Look::default(),
            last_miss: (u32::MAX, 0),
            times: [0; Use::ALL.len()],
            nodes: Vec::new(),
            random: random | 1,
            kept: Default::default(),
            contention: Contention::default(),
            priority: 0,
            wants: None,
            has: Vec::new(),
            keeps_cpu: false,
            voluntary: 0,
            involuntary: 0,
        }
    }
}

/// A hardware thread.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) current: Option<Tid>,
    /// The threads that wait for this CPU.
    pub(crate) queue: VecDeque<Tid>,
    /// Since when `current` has run, or since when the CPU has been idle.
    pub(crate) since: Ps,
    /// Ends of slices of earlier generations are void.
    pub(crate) generation: u32,
    /// Whether the end of the current slice is scheduled, or has come while the thread keeps its CPU.
    pub(crate) armed: bool,
    /// Whether the end of the slice has come while the thread keeps its CPU.
    pub(crate) overdue: bool,
    /// Until when the CPU switches to `current`, and what the CPU draws from then on.
    pub(crate) switched: Ps,
    pub(crate) draw: Draw,
}
