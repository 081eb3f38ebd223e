//! # What a servicing thread does
//!
//! It looks at the lines of all clients, again and again. It runs the sections whose locks are free, grants locks, and
//! answers "moved" for locks that are not its server's. When it finds nothing for a while it sleeps. It does all of
//! this only with the [turn](super::turn); without the turn, it waits for it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::client::Roster;
use super::names::{EACH, Names, words};
use super::slot::{EMPTY, Function, GRANT, Inline, MOVED, Request, Slot};
use super::turn::Worker;
use super::word::{self, Lock, is_held, server_of};
use crate::machine::{Machine, Manner, Patience, Word};
use crate::parts::counted::{park, wake};
use crate::parts::wait::WaitPolicy;

/// Values of [`Head::sleep`].
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const CLOSED: u32 = 2;

/// What clients look at when they post. It is on a line that is written when the server falls asleep or wakes up.
#[repr(C, align(64))]
struct Front<M: Machine> {
    sleep: M::Word,
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
    front: Front<M>,
    pub(super) turn: M::Word,
    range: M::Word,
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
    live: &'m [M::Word],
    /// Which of these clients have a request that a worker without the turn is running.
    pub(super) busy: &'m [M::Word],
    /// The clients' lines.
    slots: &'m [Slot<M>],
    /// The servicing threads.
    pub(super) workers: &'m [Worker<M>],
}

impl<M: Machine> Clone for Server<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Server<'_, M> {}

/// A client's bit in its word of `busy`.
pub(super) const fn mark(client: u32) -> u32 {
    1 << (client % EACH)
}

/// What one scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Sections that were run.
    pub sections: u32,
    /// Locks that were granted, and requests that were answered with "moved".
    pub others: u32,
    /// Whether the sections were of more than one lock.
    pub mixed: bool,
    /// Whether the turn was lost. Then the scan ended there.
    pub lost: bool,
}

impl Pass {
    /// Whether anything was done.
    pub fn did_something(&self) -> bool {
        self.lost || self.sections + self.others > 0
    }
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
    /// 3. One thread at a time [looks](Server::look), or [revokes](Server::revoke).
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
        assert!(groups <= super::names::MOST as usize && self.workers.len() <= super::turn::WORKERS as usize);
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

    /// Whether a worker that [works](Roster::works) again must call the manager.
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

    /// The request of this client number, if something can be done about it.
    fn waiting(&self, client: u32) -> Option<(u32, Request<M>, u32)> {
        let slot = &self.slots[client as usize];
        let kind = slot.posted()?;
        // SAFETY: just seen, and no other thread acts on it (invariants 1 and 3). The lock is valid: its client waits.
        let (request, seen) = unsafe {
            let request = slot.request();
            let seen = (*request.lock).word.load(Acquire);
            (request, seen)
        };
        let can = server_of(seen) != self.number() || !is_held(seen);
        can.then_some((kind, request, seen))
    }

    /// Calls `look` for each client whose line must be looked at, until it returns true. Returns whether it did. It
    /// begins at `first`, and goes round: so nobody waits for clients that are served again and again.
    fn each_client(&self, look: impl FnMut(u32) -> bool) -> bool {
        self.each_client_of(words(self.head.range.load(Relaxed)), look)
    }

    /// The same, of so many groups.
    fn each_client_of(&self, groups: usize, mut look: impl FnMut(u32) -> bool) -> bool {
        let first = self.head.first.load(Relaxed);
        let (at, before) = match (first / EACH) as usize {
            at if at < groups => (at, (1 << (first % EACH)) - 1),
            _ => (0, 0),
        };
        let mut group = |group: usize, which: u32| {
            // Acquire: the thread that has cleared a bit has answered before.
            let mut bits = self.live[group].load(Relaxed) & !self.busy[group].load(Acquire) & which;
            while bits != 0 {
                if look(group as u32 * EACH + bits.trailing_zeros()) {
                    return true;
                }
                bits &= bits - 1;
            }
            false
        };
        (at..groups).any(|here| group(here, if here == at { !before } else { u32::MAX }))
            || (0..at).any(|here| group(here, u32::MAX))
            || before != 0 && group(at, before)
    }

    /// One scan, by the worker with the turn.
    pub fn pass<R: Roster<M>>(&self, me: u32, roster: &R) -> Pass {
        let mut pass = Pass::default();
        let mut first = core::ptr::null();
        self.each_client(|client| {
            let Some((kind, request, seen)) = self.waiting(client) else { return false };
            let slot = &self.slots[client as usize];
            // SAFETY: its client waits for the answer.
            let lock = unsafe { &*request.lock };
            if server_of(seen) != self.number() {
                pass.others += 1;
                slot.answer(MOVED);
            } else if lock.take(seen) && kind == GRANT {
                pass.others += 1;
                slot.answer(EMPTY);
            } else {
                pass.mixed |= pass.sections > 0 && !core::ptr::eq(first, request.lock);
                first = request.lock;
                pass.sections += 1;
                pass.lost = !self.section(me, client, &request, roster);
            }
            pass.lost
        });
        pass
    }

    /// Runs the section of a client whose lock was taken, releases the lock, and answers. Returns whether this worker
    /// still has the turn.
    #[inline(always)]
    fn section<R: Roster<M>>(&self, me: u32, client: u32, request: &Request<M>, roster: &R) -> bool {
        let (worker, slot) = (&self.workers[me as usize], &self.slots[client as usize]);
        worker.slot.store(client, Relaxed); // Published by `at`.
        worker.step();
        // SAFETY: `exec` has posted the function to be called so; its client waits. The lock is held (invariant 1).
        unsafe { (request.function)(request.context) };
        worker.step();
        M::light_fence();
        let mine = self.has_turn(me) || self.keeps_turn(me);
        // SAFETY: the pointer was read before; its client waits, until the answer.
        unsafe { (*request.lock).release(if mine { self.number() } else { 0 }, roster) };
        slot.answer(EMPTY);
        if !mine {
            self.unmark(client);
        }
        mine
    }

    /// Clears the mark of a request that was busy and has been answered: the client's next request may be looked at. If
    /// the server has been closed meanwhile, nobody may have looked at that one: [`shut`](Server::shut) passes over
    /// marks. It is answered here, unless it is marked, too: then it is being run.
    #[cold]
    fn unmark(&self, client: u32) {
        self.busy[(client / EACH) as usize].fetch_and(!mark(client), Release);
        M::light_fence();
        if self.head.front.sleep.load(Relaxed) != CLOSED {
            return self.ring();
        }
        self.await_closing();
        if !self.is_marked(client) {
            self.dismiss(client);
        }
    }

    /// Whether a worker without the turn runs this client's request. Acquire: it has answered before it cleared the
    /// mark. Once no worker has the turn any more, no mark is set any more.
    fn is_marked(&self, client: u32) -> bool {
        self.busy[(client / EACH) as usize].load(Acquire) & mark(client) != 0
    }

    /// Answers "moved" to the client of a closed server, if it has posted a request.
    fn dismiss(&self, client: u32) {
        let slot = &self.slots[client as usize];
        if slot.is_posted() {
            slot.answer(MOVED);
        }
    }

    /// A worker that is inside a section takes another lock of this server, if it has the turn and the lock is free.
    pub(super) fn take_inside(&self, me: u32, lock: &Lock<M>) -> bool {
        // Outside: the worker cannot lose the turn while it takes a lock.
        self.workers[me as usize].outside(|| {
            M::light_fence();
            (self.has_turn(me) || self.keeps_turn(me)) && {
                let seen = lock.word.load(Acquire);
                server_of(seen) == self.number() && lock.take(seen)
            }
        })
    }

    /// After a scan that found nothing: waits by policy `W` until there may be something to do, or the server is to be
    /// closed.
    fn idle<W: WaitPolicy, R: Roster<M>>(&self, me: u32, roster: &R, note: &mut impl FnMut(&Pass)) {
        let sleep = &self.head.front.sleep;
        if W::SPINS {
            let looks = |_| {
                let pass = self.pass(me, roster);
                note(&pass);
                pass.did_something() || self.is_closing() || !self.has_turn(me)
            };
            if M::poll_until(sleep, Relaxed, W::patience(None, Patience::Budget), Manner::Scans, looks).is_some() {
                return;
            }
        }
        sleep.swap(ASLEEP, AcqRel);
        M::heavy_fence();
        if self.is_closing() || self.each_client(|client| self.waiting(client).is_some()) {
            sleep.swap(AWAKE, AcqRel);
            roster.works(); // The manager may have seen the server asleep.
            return;
        }
        roster.idles();
        park::<M>(sleep, ASLEEP, None);
        // After a spurious wake-up it looks again, too.
        sleep.swap(AWAKE, AcqRel);
        roster.works();
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

    /// Open -> closed, by the worker with the turn. Waiting requests are answered with "moved". A client that posts
    /// later finds the server closed, or its request is seen here, or by the worker that clears its mark.
    fn shut(&self) {
        self.head.front.sleep.swap(CLOSED, AcqRel);
        M::heavy_fence();
        // Of all clients: one may be out of the range (see `names`), and nobody looks again.
        self.each_client_of(self.live.len(), |client| {
            self.dismiss(client);
            false
        });
        self.close_turn();
    }

    /// What a servicing thread runs; returns when the server is closed. `note` is called with each scan.
    pub fn work<W: WaitPolicy, R: Roster<M>>(&self, me: u32, roster: &R, mut note: impl FnMut(&Pass)) {
        while self.await_turn(me) {
            loop {
                if self.is_closing() {
                    self.shut();
                    break;
                }
                let pass = self.pass(me, roster);
                note(&pass);
                if pass.lost {
                    break;
                }
                if !pass.did_something() {
                    self.idle::<W, R>(me, roster, &mut note);
                }
                if !self.has_turn(me) && !self.keeps_turn(me) {
                    break;
                }
            }
        }
    }
}
