//! # Which thread is which
//!
//! What servers, clients and locks ask the runtime.

use super::server::Server;
use crate::machine::Machine;

/// What the protocol needs from the runtime: which thread is which.
///
/// # Safety
/// The answers are true, and keep the rules of [`Server::new`].
pub unsafe trait Roster<M: Machine> {
    /// The server of that number. A lock's word has named it, so it exists.
    fn server(&self, number: u32) -> Server<'_, M>;

    /// The calling thread's client number there. The thread has no other request there until [`done`](Roster::done).
    fn client(&self, number: u32) -> u32;

    /// The calling thread no longer has a request with the number that [`client`](Roster::client) returned last.
    fn done(&self, _number: u32, _client: u32) {}

    /// The number of the server, and that of the worker, if the calling thread is a servicing thread that runs a
    /// section.
    fn worker(&self) -> Option<(u32, u32)>;

    /// A worker of that server is about to sleep in a section: the manager should look at once.
    fn calls(&self, _number: u32) {}

    /// The calling thread, a worker, has the turn from now on.
    fn serves(&self) {}

    /// The worker with the turn is about to sleep, because there is nothing to do.
    fn idles(&self) {}

    /// That worker is awake again, or has seen that it must not sleep. Others may have seen the server asleep.
    fn works(&self) {}
}
