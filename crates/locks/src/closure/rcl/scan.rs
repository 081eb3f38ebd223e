//! # What a servicing thread does
//!
//! It looks at the lines of all clients, again and again. It runs the sections whose locks are free, grants locks, and
//! answers "moved" for locks that are not its server's. When it finds nothing for a while it sleeps. It does all of
//! this only with the [turn](super::turn); without the turn, it waits for it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::names::{EACH, words};
use super::roster::Roster;
use super::server::{ASLEEP, AWAKE, CLOSED, Server, mark};
use super::slot::{EMPTY, GRANT, MOVED, Request};
use super::word::{Lock, is_held, server_of};
use crate::machine::{Machine, Manner, Patience, Word};
use crate::parts::counted::park;
use crate::parts::wait::WaitPolicy;

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

impl<M: Machine> Server<'_, M> {
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

    /// The part of a scan that runs no section: answers requests for free locks with the lock, and those for locks that
    /// are not this server's. By the manager, with the turn.
    pub(super) fn grant(&self) {
        self.each_client(|client| {
            if let Some((kind, request, seen)) = self.waiting(client) {
                let slot = &self.slots[client as usize];
                // SAFETY: its client waits for the answer.
                let lock = unsafe { &*request.lock };
                if server_of(seen) != self.number() {
                    slot.answer(MOVED);
                } else if kind == GRANT && lock.take(seen) {
                    slot.answer(EMPTY);
                }
            }
            false
        });
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

    /// Open -> closed, by the thread with the turn. Waiting requests are answered with "moved". A client that posts
    /// later finds the server closed, or its request is seen here, or by the worker that clears its mark.
    pub(super) fn shut(&self) {
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
            roster.serves();
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
