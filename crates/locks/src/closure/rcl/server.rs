//! # A server: where its words are
//!
//! Its parts, and what clients and the manager do with them: joining, posting requests and waiting for the answers,
//! waking the server, closing it. [`scan`](super::scan) is what its servicing threads do.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::names::{EACH, Names, words};
use super::slot::{EMPTY, Function, Inline, Slot};
use super::word::{self, Lock};
use super::worker::Worker;
use crate::machine::copied::copied;
use crate::machine::{Machine, Word};
use crate::parts::counted::wake;
use crate::parts::wait::WaitPolicy;

/// Values of [`Head::sleep`].
pub(super) const AWAKE: u32 = 0;
pub(super) const ASLEEP: u32 = 1;
pub(super) const CLOSED: u32 = 2;

/// What clients look at when they post. It is on a line that is written when the server falls asleep or wakes up.
#[repr(C, align(64))]
pub(super) struct Front<M: Machine> {
    pub(super) sleep: M::Word,
    /// The server's number, not 0.
    number: M::Word,
    /// [`Memory::epoch`](crate::machine::Memory::epoch) of the process in which it was opened.
    epoch: M::Word,
    /// 1: the server is to be closed.
    closing: M::Word,
    /// 1: the manager sleeps until it is called, because the server has long had nothing to do.
    quiet: M::Word,
}

/// The words of a server, all-zero at first.
#[repr(C, align(64))]
pub struct Head<M: Machine> {
    pub(super) front: Front<M>,
    pub(super) turn: M::Word,
    pub(super) range: M::Word,
    /// The slot at which a scan begins: the one after that of the worker that lost the turn last. Only the manager
    /// writes it, before another worker has the turn.
    pub(super) first: M::Word,
}

impl<M: Machine> Head<M> {
    /// The words of a server that was not opened.
    pub fn new() -> Self {
        let zero = || M::Word::new(0);
        let front = Front { sleep: zero(), number: zero(), epoch: zero(), closing: zero(), quiet: zero() };
        Self { front, turn: zero(), range: zero(), first: zero() }
    }

    /// Its words and their names, for checkers.
    pub fn words(&self) -> [(&M::Word, &'static str); 4] {
        let Front { sleep, quiet, .. } = &self.front;
        [(sleep, "sleep"), (quiet, "quiet"), (&self.turn, "turn"), (&self.range, "range")]
    }
}

impl<M: Machine> Default for Head<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// A server: where its parts are.
pub struct Server<'m, M: Machine> {
    /// Its own words.
    pub(super) head: &'m Head<M>,
    /// Which client numbers are taken.
    pub(super) live: &'m [M::Word],
    /// Which of these clients have a request that a worker without the turn is running.
    pub(super) busy: &'m [M::Word],
    /// The clients' lines.
    pub(super) slots: &'m [Slot<M>],
    /// The servicing threads.
    pub(super) workers: &'m [Worker<M>],
}

copied!(Server<'_, M>);

/// A client's bit in its word of `busy`.
pub(super) const fn mark(client: u32) -> u32 {
    1 << (client % EACH)
}

impl<'m, M: Machine> Server<'m, M> {
    /// The server with these parts. Each word of `live` goes with one word of `busy` and 32 slots.
    ///
    /// # Safety
    /// The parts belong together: they were new when a server was first made of them, and only functions of this module
    /// change them. Who is passed the server keeps these rules:
    /// 1. A worker's number (`me`) is that of one thread.
    /// 2. A client's number is that of the thread that has [joined](Server::join). It [leaves](Server::leave) once,
    ///    when it has no request.
    /// 3. One thread at a time [looks](Server::look), [revokes](Server::revoke), or [stands in](Server::stand_in).
    /// 4. [`open`](Server::open) comes first, once; [`pass`](Server::pass) is called by the worker with the turn.
    pub const unsafe fn new(
        head: &'m Head<M>,
        (live, busy): (&'m [M::Word], &'m [M::Word]),
        slots: &'m [Slot<M>],
        workers: &'m [Worker<M>],
    ) -> Self {
        Self { head, live, busy, slots, workers }
    }

    fn names(&self) -> Names<'m, M> {
        Names { range: &self.head.range, live: self.live }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.head.front.number.load(Relaxed)
    }

    /// Unused -> open, by one thread, before any other thread knows the server.
    ///
    /// # Panics
    /// If the number is 0 or too large, or the parts do not fit each other.
    pub fn open(&self, number: u32) {
        assert!((1..word::SERVERS).contains(&number), "a server's number");
        let groups = self.live.len();
        assert!(groups == self.busy.len() && groups * EACH as usize == self.slots.len(), "parts of a server");
        assert!(groups <= super::names::MOST as usize && self.workers.len() <= super::worker::WORKERS as usize);
        self.head.front.epoch.store(M::epoch(), Relaxed);
        self.head.front.number.store(number, Relaxed);
    }

    /// A client number for the calling thread; none if there are too many clients.
    pub fn join(&self) -> Option<u32> {
        self.names().take()
    }

    /// Gives a client number back. Its client has no request.
    pub fn leave(&self, client: u32) {
        self.names().give(client);
    }

    /// How many lines a scan looks at: those of the clients in the range.
    pub fn clients(&self) -> u32 {
        let live = &self.live[..words(self.head.range.load(Relaxed))];
        live.iter().map(|bits| bits.load(Relaxed).count_ones()).sum()
    }

    /// How many lines the range has room for.
    pub fn range(&self) -> u32 {
        words(self.head.range.load(Relaxed)) as u32 * EACH
    }

    /// Whether the server no longer serves: it was closed, or belongs to the process that this one was forked from.
    #[inline]
    pub fn is_closed(&self) -> bool {
        let front = &self.head.front;
        front.sleep.load(Acquire) == CLOSED || front.epoch.load(Relaxed) != M::epoch()
    }

    /// Whether it sleeps because there is nothing to do.
    pub fn is_asleep(&self) -> bool {
        self.head.front.sleep.load(Relaxed) == ASLEEP
    }

    /// The manager announces that it must be called from now on ([`must_call`](Server::must_call)). Returns whether it
    /// may sleep until then: the server is asleep, and a worker that finds something to do later sees the announcement.
    pub fn falls_quiet(&self) -> bool {
        self.head.front.quiet.store(1, Relaxed);
        M::heavy_fence();
        let may = self.is_asleep();
        if !may {
            self.ends_quiet();
        }
        may
    }

    /// The manager looks from now on, without being called.
    pub fn ends_quiet(&self) {
        self.head.front.quiet.store(0, Relaxed);
    }

    /// Whether a worker that [works](super::Roster::works) again must call the manager.
    pub fn must_call(&self) -> bool {
        M::light_fence();
        self.head.front.quiet.load(Relaxed) != 0
    }

    /// Where a client's small context travels.
    pub(super) fn inline(&self, client: u32) -> *mut Inline {
        self.slots[client as usize].inline()
    }

    /// Wakes the server if it sleeps, because there may be something to do. The caller has executed a light fence
    /// before.
    #[inline(always)]
    pub(super) fn ring(&self) {
        if self.head.front.sleep.load(Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let sleep = &self.head.front.sleep;
        if sleep.compare_exchange(ASLEEP, AWAKE, Release, Relaxed).is_ok() {
            wake::<M>(&raw const *sleep, 1);
        }
    }

    /// Posts a client's request, and wakes the server if it sleeps. False if the server is closed: then there is no
    /// request.
    ///
    /// # Safety
    /// The client number is the caller's, and has no request. Until the request is answered, which
    /// [`wait`](Server::wait) waits for, the lock is valid, and any thread may call the function with the context,
    /// once, under the lock. (If `kind` is `GRANT`, the function is not called.) The function does not unwind.
    #[inline(always)]
    pub unsafe fn post(
        &self,
        client: u32,
        (kind, lock): (u32, &Lock<M>),
        (function, context): (Function, *mut ()),
    ) -> bool {
        let slot = &self.slots[client as usize];
        slot.post(kind, lock, function, context);
        M::light_fence();
        match self.head.front.sleep.load(Relaxed) {
            AWAKE => {}
            CLOSED => return self.was_noticed(client),
            _ => self.wake(),
        }
        true
    }

    /// For a client that has posted a request, and then found the server closed. Whether the request was answered, or
    /// will be: the worker with the turn may have seen it before it closed the server. If not, nobody will act on it,
    /// and it is withdrawn.
    #[cold]
    fn was_noticed(&self, client: u32) -> bool {
        self.await_closing();
        // From now on only workers without the turn act on requests, and only on marked ones (invariant 3). A worker
        // that clears the mark after this fence sees the request.
        M::heavy_fence();
        let slot = &self.slots[client as usize];
        let noticed = self.is_marked(client) || !slot.is_posted();
        if !noticed {
            slot.answer(EMPTY);
        }
        noticed
    }

    /// Waits until a client's request was answered. Returns whether it was done; if not, the lock is no longer this
    /// server's. `blocks` is called before the thread sleeps.
    #[inline]
    pub fn wait<W: WaitPolicy>(&self, client: u32, blocks: impl FnOnce()) -> bool {
        let slept = || {
            if self.names().ensure(client) {
                // Versions had repeated, and the server may have looked at fewer lines.
                M::light_fence();
                self.ring();
            }
            blocks();
        };
        self.slots[client as usize].wait::<W>(slept) == EMPTY
    }

    /// Whether a worker without the turn runs this client's request. Acquire: it has answered before it cleared the
    /// mark. Once no worker has the turn any more, no mark is set any more.
    pub(super) fn is_marked(&self, client: u32) -> bool {
        self.busy[(client / EACH) as usize].load(Acquire) & mark(client) != 0
    }

    /// Whether it was asked to close.
    pub fn is_closing(&self) -> bool {
        self.head.front.closing.load(Relaxed) != 0
    }

    /// Asks for the server to be closed. The worker with the turn does it when it notices.
    pub fn close(&self) {
        self.head.front.closing.store(1, Relaxed);
        M::heavy_fence();
        self.ring();
    }
}
