//! # What a client does
//!
//! [`exec`] has a section run under a lock, whatever that is at the moment: ordinary, a server's, or the server's whose
//! thread the caller is.

use core::sync::atomic::Ordering::Acquire;

use super::server::Server;
use super::slot::{Function, GRANT, Inline, RUN};
use super::word::{Lock, server_of};
use crate::event::Event;
use crate::machine::{Machine, Word};
use crate::wait::WaitPolicy;

/// What the protocol asks of the runtime: who is where.
pub trait Roster<M: Machine> {
    /// The server of that number. A lock's word has named it, so there is one.
    fn server(&self, number: u32) -> Server<'_, M>;

    /// The calling thread's client number there. It has no other request there before it gives the number back.
    fn client(&self, number: u32) -> u32;

    /// The calling thread has no request any more with the number that it was told last.
    fn done(&self, _number: u32, _client: u32) {}

    /// Which worker of which server the calling thread is, if it runs a section.
    fn worker(&self) -> Option<(u32, u32)>;

    /// A worker of that server is about to sleep in a section: the manager should look at once.
    fn calls(&self, _number: u32) {}

    /// The worker with the turn is about to sleep, for want of anything to do.
    fn idles(&self) {}

    /// It is awake again.
    fn works(&self) {}
}

/// A section: a function, and what it is called with.
pub struct Section<'a> {
    function: Function,
    context: Context<'a>,
}

enum Context<'a> {
    Pointer(*mut ()),
    /// As small as this, it rides in the client's line, and comes back.
    Inline(&'a mut Inline),
}

impl<'a> Section<'a> {
    /// One that is called with this pointer.
    ///
    /// # Safety
    /// It can be called so, once, by any thread, until [`exec`] returns. It does not unwind.
    pub const unsafe fn new(function: Function, context: *mut ()) -> Self {
        Self { function, context: Context::Pointer(context) }
    }

    /// One that is called with a pointer to a copy of these bytes, which are copied back.
    ///
    /// # Safety
    /// As of [`new`](Section::new). It keeps no pointer to the bytes.
    pub const unsafe fn inline(function: Function, bytes: &'a mut Inline) -> Self {
        Self { function, context: Context::Inline(bytes) }
    }

    /// Runs it here.
    ///
    /// # Safety
    /// Its lock is held, and it was not run before.
    unsafe fn call(&mut self) {
        let context = match &mut self.context {
            Context::Pointer(context) => *context,
            Context::Inline(bytes) => (&raw mut **bytes).cast(),
        };
        // SAFETY: the promises of whoever made it, and of the caller.
        unsafe { (self.function)(context) }
    }
}

/// What a client asks for: one of its functions, for `GRANT`.
unsafe fn nothing(_: *mut ()) {}

/// Has a section run under the lock, alone among all of that lock: by a servicing thread, or, if the lock is ordinary
/// or the caller is a servicing thread, here. Not to be called in a section of the same lock.
///
/// # Safety
/// The lock is there until every call of this has returned.
#[inline]
pub unsafe fn exec<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, mut section: Section<'_>, roster: &R) {
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
            // SAFETY: held; nobody else runs it.
            unsafe { section.call() };
            // SAFETY: as above.
            return unsafe { release(lock, roster) };
        }
    }
}

/// Does something that may sleep, with a function that is called before. A worker that sleeps in a section says so to
/// its manager.
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

/// Acquires an ordinary lock. False if it is none.
fn hold<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, roster: &R) -> bool {
    blocking(roster, |blocks| lock.hold::<W>(blocks))
}

/// Posts the section, and waits until it was run. False if the lock is not that server's.
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
            // SAFETY: without a request the line is its client's (invariant 5).
            unsafe { inline.write(**bytes) };
            inline.cast()
        }
    };
    let call = (section.function, context);
    // SAFETY: the section is the caller's, as `exec` is promised; it is not called again if it was done.
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

/// Acquires a lock of that server, for the caller to hold. False if the lock is not that server's.
fn acquire_from<M: Machine, W: WaitPolicy, R: Roster<M>>(lock: &Lock<M>, number: u32, roster: &R) -> bool {
    let server = roster.server(number);
    if server.is_closed() {
        lock.reclaim(number, roster);
        return false;
    }
    if let Some((of, me)) = roster.worker()
        && of == number
        && server.take_inside(me, lock)
    {
        return true;
    }
    let client = roster.client(number);
    let call = (nothing as Function, core::ptr::null_mut());
    // SAFETY: the lock is there; nothing is called.
    let granted = blocking(roster, |blocks| unsafe {
        server.post(client, (GRANT, lock), call) && server.wait::<W>(client, blocks)
    });
    roster.done(number, client);
    granted
}

/// Acquires the lock, for the caller to hold, wherever it is.
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
/// It does. The lock is there until this returns.
pub unsafe fn release<M: Machine, R: Roster<M>>(lock: &Lock<M>, roster: &R) {
    lock.release(0, roster);
}

/// Makes the lock that server's, or ordinary (0). To be called by who holds the lock: it is when that releases it.
/// Those who wait elsewhere are told.
///
/// # Safety
/// The caller holds the lock. The server is open, and is not closed before the lock was assigned elsewhere, or is found
/// closed by its next client.
pub unsafe fn assign<M: Machine, R: Roster<M>>(lock: &Lock<M>, server: u32, roster: &R) {
    lock.give_to(server, roster);
}
