//! # What a client does
//!
//! [`exec`] runs a section under a lock, whatever the lock is at the moment: ordinary, a server's, or a lock of the
//! server that the calling thread belongs to.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::roster::Roster;
use super::slot::{Function, GRANT, Inline, RUN};
use super::word::{Lock, is_held, server_of};
use crate::machine::event::Event;
use crate::machine::{Machine, Patience, Word};
use crate::parts::counted::about;
use crate::parts::wait::WaitPolicy;

/// A section: a function and its argument.
pub struct Section<'a> {
    function: Function,
    context: Context<'a>,
}

enum Context<'a> {
    Pointer(*mut ()),
    /// A context of at most this size travels in the client's line, and comes back.
    Inline(&'a mut Inline),
}

impl<'a> Section<'a> {
    /// A section whose function is called with this pointer.
    ///
    /// # Safety
    /// Any thread may make that call, once, until [`exec`] returns. The function does not unwind.
    pub const unsafe fn new(function: Function, context: *mut ()) -> Self {
        Self { function, context: Context::Pointer(context) }
    }

    /// A section whose function is called with a pointer to a copy of these bytes. The copy is copied back.
    ///
    /// # Safety
    /// As for [`new`](Section::new). The function keeps no pointer to the bytes.
    pub const unsafe fn inline(function: Function, bytes: &'a mut Inline) -> Self {
        Self { function, context: Context::Inline(bytes) }
    }

    /// Runs the section in the calling thread.
    ///
    /// # Safety
    /// Its lock is held, and the section has not been run.
    pub unsafe fn call(&mut self) {
        let context = match &mut self.context {
            Context::Pointer(context) => *context,
            Context::Inline(bytes) => (&raw mut **bytes).cast(),
        };
        // SAFETY: the promises of the section's maker and of the caller.
        unsafe { (self.function)(context) }
    }
}

/// The function of a request for `GRANT`. It is never called, but a slot must hold a valid function.
unsafe fn nothing(_: *mut ()) {}

/// Runs a section under the lock; no other section of that lock runs meanwhile. A servicing thread runs it. The calling
/// thread runs it itself if the lock is ordinary, or if the thread is a servicing thread of the lock's server. Do not
/// call this in a section of the same lock.
///
/// # Safety
/// The lock is valid until every call of this has returned. Only functions of this module change its words.
#[inline]
pub unsafe fn exec<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, mut section: Section<'_>, roster: &R) {
    about::<M, _, _>(lock, || {
        M::trace(Event::Acquire);
        loop {
            let number = server_of(lock.word.load(Acquire));
            let held = if number == 0 {
                hold::<M, W, R>(lock, roster)
            } else if roster.worker().is_some_and(|(of, _)| of == number) {
                acquire_from::<M, W, R>(lock, number, roster)
            } else if run_there::<M, W, R>(lock, number, &mut section, roster) {
                return;
            } else {
                false
            };
            if held {
                // SAFETY: held; no other thread runs it.
                unsafe { section.call() };
                // SAFETY: as above.
                return unsafe { release(lock, roster) };
            }
        }
    });
}

/// Runs `act`, which may sleep. Before it sleeps, `act` calls the function that is passed to it. So a worker in a
/// section notifies its manager.
pub fn blocking<M: Machine, R: Roster<M>, T>(roster: &R, act: impl FnOnce(&mut dyn FnMut()) -> T) -> T {
    let mut slept = false;
    let result = act(&mut || {
        if let Some((number, me)) = roster.worker() {
            slept = true;
            roster.server(number).set_blocked(me, true);
            roster.calls(number);
        }
    });
    if slept && let Some((number, me)) = roster.worker() {
        roster.server(number).set_blocked(me, false);
    }
    result
}

/// Acquires an ordinary lock. False if the lock is not ordinary.
fn hold<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, roster: &R) -> bool {
    blocking(roster, |blocks| lock.hold::<W>(blocks))
}

/// Posts the section, and waits until it has been run. False if the lock is not that server's.
#[inline]
fn run_there<M: Machine, W: WaitPolicy, R: Roster<M>>(
    lock: &Lock<M>,
    number: u32,
    section: &mut Section<'_>,
    roster: &R,
) -> bool {
    let server = roster.server(number);
    if server.is_closed() {
        lock.reclaim(number, roster);
        return false;
    }
    let client = roster.client(number);
    let inline = server.inline(client);
    let context = match &mut section.context {
        Context::Pointer(context) => *context,
        Context::Inline(bytes) => {
            // SAFETY: without a request the line belongs to its client (invariant 5).
            unsafe { inline.write(**bytes) };
            inline.cast()
        }
    };
    let call = (section.function, context);
    // SAFETY: `exec`'s caller has promised that the section may be called; once it is done, it is not called again.
    let done = blocking(roster, |blocks| unsafe {
        server.post(client, (RUN, lock), call) && server.wait::<W>(client, blocks)
    });
    if let (true, Context::Inline(bytes)) = (done, &mut section.context) {
        // SAFETY: as above; seen with Acquire.
        **bytes = unsafe { inline.read() };
    }
    roster.done(number, client);
    done
}

/// Acquires a lock of that server for the caller. False if the lock is not that server's.
fn acquire_from<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, number: u32, roster: &R) -> bool {
    let server = roster.server(number);
    if server.is_closed() {
        lock.reclaim(number, roster);
        return false;
    }
    let me = roster.worker().filter(|(of, _)| *of == number).map(|(_, me)| me);
    if let Some(me) = me {
        // Nobody but the worker with the turn takes locks. So this one looks itself, as long as that may be itself.
        let taken = server.take_inside(me, lock)
            || W::SPINS
                && M::spin_until(&lock.word, Relaxed, Patience::Budget, |seen| {
                    !is_held(seen) && server.take_inside(me, lock)
                })
                .is_some();
        if taken {
            return true;
        }
    }
    let client = roster.client(number);
    let call = (nothing as Function, core::ptr::null_mut());
    let granted = blocking(roster, |blocks| {
        if me.is_some() {
            blocks(); // At once: until another worker has the turn, nobody grants the lock.
        }
        // SAFETY: the lock is valid; no function is called.
        let posted = unsafe { server.post(client, (GRANT, lock), call) };
        posted
            && server.wait::<W>(client, || {
                if me.is_none() {
                    blocks();
                }
            })
    });
    roster.done(number, client);
    granted
}

/// Acquires the lock for the caller, wherever the lock is.
pub fn acquire<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, roster: &R) {
    loop {
        let held = match server_of(lock.word.load(Acquire)) {
            0 => hold::<M, W, R>(lock, roster),
            number => acquire_from::<M, W, R>(lock, number, roster),
        };
        if held {
            return;
        }
    }
}

/// Releases a lock that the caller holds, by [`acquire`], or because it runs a section under it.
///
/// # Safety
/// The caller holds the lock. The lock is valid until this returns.
pub unsafe fn release<M: Machine, R: Roster<M>>(lock: &Lock<M>, roster: &R) {
    lock.release(0, roster);
}

/// Makes the lock that server's, or ordinary (0). Only the lock holder calls this; the move takes effect when it
/// releases the lock. Waiters elsewhere are notified.
///
/// # Safety
/// The caller holds the lock. The server is open. It stays open until the lock is assigned elsewhere, or else the
/// lock's next client finds it closed.
pub unsafe fn assign<M: Machine, R: Roster<M>>(lock: &Lock<M>, server: u32, roster: &R) {
    lock.give_to(server, roster);
}
