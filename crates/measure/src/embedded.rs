//! Closure locks on the host, for workloads.

use flashlock_delegation::adapt::Governor;
use flashlock_delegation::{Delegated, Options, Server};
use flashlock_locks::closure::{Delegate, RawClosure};
use flashlock_native::{Native, NoStats};
use flashlock_workloads::Lock;

const NOT_HELD: &str = "workloads that hold a lock are not run with closure locks";

/// A lock in which one thread at a time runs the requests of all.
pub(crate) struct Combined<L: RawClosure<Native<NoStats>>>(Delegate<Native<NoStats>, L, ()>);

impl<L: RawClosure<Native<NoStats>>> Combined<L> {
    /// A free lock.
    pub(crate) fn new() -> Self {
        Self(Delegate::new(()))
    }
}

// SAFETY: a closure lock runs one request at a time, and each before `with` returns; no thread holds it.
unsafe impl<L: RawClosure<Native<NoStats>, State: Sync>> Lock for Combined<L> {
    fn acquire(&self) {
        unreachable!("{NOT_HELD}");
    }

    fn release(&self) {
        unreachable!("{NOT_HELD}");
    }

    fn section(&self, inside: impl FnOnce() + Send) {
        self.0.with(|()| inside());
    }
}

/// A lock whose sections a server may run, and that server if the lock has its own.
pub struct Served {
    lock: Delegated<()>,
    server: Option<Server>,
}

impl Served {
    /// A lock with a server of its own.
    ///
    /// # Errors
    ///
    /// Why no server can be opened.
    pub fn new() -> Result<Self, String> {
        let server = Server::open(Options::default()).map_err(|error| format!("cannot open a server: {error}"))?;
        Ok(Self { lock: Delegated::on(&server, ()), server: Some(server) })
    }

    /// A lock that always stays ordinary.
    pub fn ordinary() -> Self {
        Self { lock: Delegated::new(()), server: None }
    }

    /// A lock that moves to a server if that pays by the configuration's thresholds.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration.
    pub fn adaptive() -> Result<Self, String> {
        let lock = Delegated::adaptive("map", ());
        let lock = lock.map_err(|error| format!("cannot make an adaptive lock: {error}"))?;
        Ok(Self { lock, server: None })
    }

    /// An ordinary lock that this governor measures.
    pub fn measured(governor: &Governor) -> Self {
        Self { lock: Delegated::governed(governor, "measured", ()), server: None }
    }

    /// The counters of its server.
    pub fn statistics(&self) -> flashlock_delegation::Statistics {
        self.server.as_ref().map(Server::statistics).unwrap_or_default()
    }
}

// SAFETY: a server, or the holder of the ordinary lock, runs one section at a time, and each before `run` returns.
unsafe impl Lock for Served {
    fn acquire(&self) {
        unreachable!("{NOT_HELD}");
    }

    fn release(&self) {
        unreachable!("{NOT_HELD}");
    }

    fn section(&self, inside: impl FnOnce() + Send) {
        self.lock.run(|()| inside());
    }
}
