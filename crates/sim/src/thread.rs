//! # Simulated threads and CPUs
//!
//! What the kernel knows of each.

use std::collections::VecDeque;

use flashlock_locks::machine::{Handle, Local};
use flashlock_locks::wait::polling::Contention;

use crate::Ps;
use crate::access::{Look, Reads};
use crate::power::Draw;

/// Names a thread, by its number.
pub(crate) type Tid = u32;

/// What time goes to.
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
    /// Waiting until a line's server or a bus was free.
    Queueing,
    /// Polling a word that did not change.
    Polling,
    /// Asleep.
    Parked,
    /// System calls, waking others, context switches, a CPU that wakes up from idleness.
    System,
    /// Waiting for a CPU: in its queue, or while a hypervisor has taken it away.
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

    /// As a word.
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

    /// Whether a thread that uses its time so has a CPU.
    #[inline]
    pub fn has_cpu(self) -> bool {
        !matches!(self, Self::Parked | Self::Runnable)
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// On a CPU, with an event at this time that lets it go on. With what, says [`Doing`].
    Busy { until: Ps },
    /// On a CPU, polling a line since then; it looks again when the line changes. `every` is 0 if it waits for the
    /// change without polling.
    Polling { line: u32, since: Ps, next: Ps, every: Ps },
    /// Wants a CPU since then. `rest`: how much of what it was doing is left.
    Ready { since: Ps, rest: Ps },
    /// Asleep since then, on the word at this address, or for a time (0).
    Asleep { since: Ps, address: usize },
    /// Has returned.
    Done,
}

/// What a busy thread is in the middle of; or one that wants a CPU again, which it had lost then. Times rise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    /// Since when; what was before is booked.
    pub(crate) since: Ps,
    /// It gets its CPU until then,
    pub(crate) switched: Ps,
    /// then waits for others until then,
    pub(crate) queued: Ps,
    /// and then does this.
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
    /// Whether it sleeps no more because its time had come.
    pub(crate) timed_out: bool,
    /// The address that it polled or slept on last.
    pub(crate) waited_for: usize,
    /// The next one that polls the same line.
    pub(crate) next_poller: Option<Tid>,
    /// When its stores will have left the store buffer.
    pub(crate) stores: VecDeque<Ps>,
    pub(crate) reads: Reads,
    /// What it has loaded since it began to look at many words.
    pub(crate) look: Look,
    /// The line that it last waited for, and since when.
    pub(crate) last_miss: (u32, Ps),
    pub(crate) times: [Ps; Use::ALL.len()],
    pub(crate) nodes: Vec<Handle>,
    pub(crate) random: u64,
    pub(crate) locals: [u32; Local::COUNT],
    pub(crate) contention: Contention,
    /// What locks are told of it. The simulated scheduler treats all threads alike.
    pub(crate) priority: i32,
    /// What it says that it wants, and has, in words: for those who look at a run that hangs.
    pub(crate) wants: Option<&'static str>,
    pub(crate) has: Vec<&'static str>,
    /// Whether it does not lose its CPU when its slice is over.
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
            locals: [0; Local::COUNT],
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
    /// Those that want it.
    pub(crate) queue: VecDeque<Tid>,
    /// Since when `current` runs, or since when nobody does.
    pub(crate) since: Ps,
    /// Ends of slices of earlier generations are void.
    pub(crate) generation: u32,
    /// Whether an end of the current slice is under way, or has come to a thread that keeps its CPU.
    pub(crate) armed: bool,
    /// The latter.
    pub(crate) overdue: bool,
    /// Until when `current` is on its way to this CPU, and what the CPU draws from then on.
    pub(crate) switched: Ps,
    pub(crate) draw: Draw,
}
