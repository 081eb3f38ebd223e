//! The log of what happens to the locks of a simulated workload.

use std::cell::RefCell;
use std::ops::Range;

use flashlock_erased::any::AnyLock;
use flashlock_sim::{self as sim, Use};
use flashlock_workloads::{Lock, RwLock};

/// Which other threads may be in a section at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// No other thread.
    Alone,
    /// Other readers.
    Reader,
}

/// A section and the wait for it: under which lock, by which thread, where and when, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// When the thread asked for the lock.
    pub asked: u64,
    /// How much of the wait the thread polled.
    pub polled: u64,
    /// How much of it the thread slept.
    pub parked: u64,
    /// Locks are numbered in the order in which they were first acquired.
    pub lock: u32,
    /// The thread's number.
    pub thread: u32,
    /// Who else may be inside.
    pub entry: Entry,
    /// The CPU on which it began.
    pub cpu: u32,
    /// That CPU's NUMA node.
    pub node: u32,
    /// When the thread acquired the lock.
    pub begin: u64,
    /// When it released the lock.
    pub end: u64,
}

/// A wait that was not over at the end of the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// When the thread asked for the lock.
    pub asked: u64,
    /// The end of the measured time.
    pub end: u64,
    /// The lock's number.
    pub lock: u32,
    /// The thread's number.
    pub thread: u32,
    /// The thread's NUMA node.
    pub node: u32,
}

/// The contents of a timeline.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// In the order of their beginnings.
    pub sections: Vec<Section>,
    /// The waits that were not over.
    pub open: Vec<Open>,
}

/// The log of a run's acquisitions.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The measured time. Acquisitions before and after it are not logged.
    time: Range<u64>,
    locks: Vec<Noted>,
    /// The number of sections that were completed in the measured time, and their total time from request to
    /// completion, in ns. It may begin before the measured time.
    completed: (u64, u64),
    /// How much of the measured time all threads together spent in sections and waits, also in those that ended after
    /// it, in ns.
    inside: u64,
    /// All sections and waits, if requested.
    timeline: Option<Timeline>,
}

/// The log of one lock.
#[derive(Debug, Default)]
pub(super) struct Noted {
    address: usize,
    /// The threads, in the order of their acquisitions.
    pub(super) history: Vec<u32>,
    /// The number of acquisitions that followed one on another NUMA node.
    pub(super) moves: u64,
    last_node: Option<u32>,
    /// The threads in a logged section, and since when: one thread, or several readers.
    inside: Vec<(u32, u64)>,
    /// The total time that it was held; each reader's time counts.
    held: u64,
}

impl Log {
    /// An empty log.
    pub(super) fn new(time: Range<u64>, timeline: bool) -> Self {
        Self { time, timeline: timeline.then(Timeline::default), ..Self::default() }
    }

    /// The log of the lock that was held for the longest time: the lock that a workload with two locks is about.
    pub(super) fn busiest(&self) -> Option<&Noted> {
        self.locks.iter().max_by_key(|lock| lock.held)
    }

    /// The number of acquisitions of all locks.
    pub(super) fn acquisitions(&self) -> u64 {
        self.locks.iter().map(|lock| lock.history.len() as u64).sum()
    }

    /// The number of completed sections of all threads, and their total time from request to completion in ns.
    pub(super) fn completed(&self) -> (u64, u64) {
        self.completed
    }

    /// How much of the measured time all threads together spent in sections and waiting for them, in ns. Each wait ends
    /// before the run does, so those that last until after the measured time are included.
    pub(super) fn inside(&self) -> u64 {
        self.inside
    }

    /// Logs the completion of a section that was requested at `asked`.
    fn completes(&mut self, asked: u64) {
        let (now, time) = (sim::now(), &self.time);
        self.inside += now.min(time.end).saturating_sub(asked.max(time.start));
        if time.contains(&now) {
            let (sections, ns) = &mut self.completed;
            (*sections, *ns) = (*sections + 1, *ns + now - asked);
        }
    }

    /// All sections and waits, if requested.
    pub(super) fn into_timeline(self) -> Timeline {
        self.timeline.unwrap_or_default()
    }

    /// Logs an acquisition. `thread` has asked for the lock; the acting thread may be another one.
    fn acquired(&mut self, address: usize, asked: Asked, thread: u32, entry: Entry) {
        let (begin, node) = (sim::now(), sim::thread_node());
        if !self.time.contains(&begin) {
            return self.acquired_outside(address, asked, thread, node);
        }
        let number = self.number(address);
        let lock = &mut self.locks[number];
        lock.history.push(thread);
        lock.moves += u64::from(lock.last_node.replace(node).is_some_and(|last| last != node));
        lock.inside.push((thread, begin));
        if let Some(Timeline { sections, .. }) = &mut self.timeline {
            let (lock, cpu, now) = (number as u32, sim::thread_cpu(), Asked::now());
            // If another thread runs the section, `now` is that thread's. `--trace` refuses such locks.
            let polled = now.polled.saturating_sub(asked.polled);
            let parked = now.parked.saturating_sub(asked.parked);
            sections.push(Section {
                asked: asked.at,
                polled,
                parked,
                lock,
                thread,
                entry,
                cpu,
                node,
                begin,
                end: begin,
            });
        }
    }

    /// An acquisition outside the measured time: only a wait that lasted beyond the end of that time is logged.
    fn acquired_outside(&mut self, address: usize, asked: Asked, thread: u32, node: u32) {
        let end = self.time.end;
        if self.timeline.is_none() || asked.at >= end || sim::now() < end {
            return;
        }
        let lock = self.number(address) as u32;
        self.timeline.iter_mut().for_each(|all| all.open.push(Open { asked: asked.at, end, lock, thread, node }));
    }

    fn released(&mut self, address: usize, thread: u32) {
        let Some(number) = self.known(address) else { return };
        let (now, lock) = (sim::now(), &mut self.locks[number]);
        let Some(inside) = lock.inside.iter().position(|&(who, _)| who == thread) else { return }; // Not logged.
        let (_, begin) = lock.inside.swap_remove(inside);
        lock.held += now.min(self.time.end) - begin;
        let its_own = |section: &&mut Section| section.lock == number as u32 && section.thread == thread;
        if let Some(section) = self.timeline.iter_mut().flat_map(|all| &mut all.sections).rev().find(its_own) {
            section.end = now;
        }
    }

    /// The number of a lock, which may be new.
    fn number(&mut self, address: usize) -> usize {
        self.known(address).unwrap_or_else(|| {
            self.locks.push(Noted { address, ..Noted::default() });
            self.locks.len() - 1
        })
    }

    fn known(&self, address: usize) -> Option<usize> {
        self.locks.iter().position(|lock| lock.address == address)
    }
}

/// When a thread asked for a lock, and how long it had polled and slept until then.
#[derive(Clone, Copy)]
struct Asked {
    at: u64,
    polled: u64,
    parked: u64,
}

impl Asked {
    fn now() -> Self {
        Self { at: sim::now(), polled: sim::thread_time(Use::Polling), parked: sim::thread_time(Use::Parked) }
    }
}

thread_local! {
    /// The log of the run on this host thread.
    pub(super) static LOG: RefCell<Log> = RefCell::default();
}

/// A lock whose acquisitions are logged.
#[repr(C)]
pub(super) struct Watched {
    lock: AnyLock,
    preemption: Preemption,
    /// The name in reports.
    name: &'static str,
}

// It starts a cache line, and shares it with nothing.
const _: () = assert!(size_of::<Watched>() <= 64);

/// Whether the holder and the waiters of the lock may lose their CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preemption {
    On,
    /// They may not, because it is a kernel's spin lock.
    Off,
}

impl Preemption {
    fn begin(self) {
        if self == Self::Off {
            sim::disable_preemption();
        }
    }

    fn end(self) {
        if self == Self::Off {
            sim::enable_preemption();
        }
    }
}

impl Watched {
    /// A free lock.
    pub(super) fn new(name: &'static str, lock: AnyLock, preemption: Preemption) -> Self {
        Self { lock, preemption, name }
    }

    /// The acting thread, which asked for the lock at `asked`, acquires it.
    fn taken(&self, asked: Asked, thread: u32, entry: Entry) {
        sim::takes(self.name);
        LOG.with_borrow_mut(|log| log.acquired(self.address(), asked, thread, entry));
    }

    /// The holder `thread`, or another thread on its behalf, releases the lock.
    fn given_back(&self, thread: u32) {
        LOG.with_borrow_mut(|log| log.released(self.address(), thread));
        sim::gives_back(self.name);
    }

    fn address(&self) -> usize {
        (&raw const self.lock).addr()
    }

    /// Logs a section, which `run` runs.
    fn noted(&self, run: fn(&AnyLock, &mut dyn FnMut()), entry: Entry, inside: impl FnOnce()) {
        let (asked, thread) = (Asked::now(), sim::thread_number());
        let mut inside = Some(inside);
        self.preemption.begin();
        sim::wants(Some(self.name));
        run(&self.lock, &mut || {
            self.taken(asked, thread, entry);
            inside.take().into_iter().for_each(|inside| inside());
            self.given_back(thread);
        });
        // Another thread may have run it.
        sim::wants(None);
        LOG.with_borrow_mut(|log| log.completes(asked.at));
        self.preemption.end();
    }
}

// SAFETY: it behaves like the lock that it watches.
unsafe impl Lock for Watched {
    fn acquire(&self) {
        let asked = Asked::now();
        self.preemption.begin();
        sim::wants(Some(self.name));
        self.lock.lock();
        self.taken(asked, sim::thread_number(), Entry::Alone);
    }

    fn release(&self) {
        self.given_back(sim::thread_number());
        self.lock.unlock();
        self.preemption.end();
    }

    fn section(&self, inside: impl FnOnce() + Send) {
        self.noted(AnyLock::section, Entry::Alone, inside);
    }
}

// SAFETY: as above.
unsafe impl RwLock for Watched {
    fn shared(&self, inside: impl FnOnce() + Send) {
        let entry = if self.lock.has_readers() { Entry::Reader } else { Entry::Alone };
        self.noted(AnyLock::shared, entry, inside);
    }
}
