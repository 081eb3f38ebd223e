//! # Servers
//!
//! A server is a pool of servicing threads, of which one serves at a time, and a management thread. Locks are
//! [assigned](crate::Delegated::assign) to it.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use flashlock_locks::closure::rcl::{Roster, worker};
use flashlock_locks::machine::Memory as _;
use flashlock_native::membarrier;

use crate::Machine;
use crate::here::Here;
use crate::host::Host;
use crate::statistics::Statistics;
use crate::{start, threads};

/// How servicing threads are scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// Like any thread.
    #[default]
    Ordinary,
    /// `SCHED_FIFO`, if the system allows it; otherwise like any thread. [`Statistics::real_time`] says which.
    RealTime,
}

/// A server's options.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The CPU that its servicing threads are bound to. If this is `None`, or if the process may not use that CPU, they
    /// may use the same CPUs as the process's main thread.
    pub cpu: Option<u32>,
    /// Servicing threads at most, 1 to 4094. One section fewer than that may block at the same time. (Those that wait
    /// on condition variables are among them.)
    pub threads: u32,
    /// How long a section may take before another servicing thread goes on with other sections. It may take up to twice
    /// as long until that is noticed.
    pub timeout: Duration,
    /// How its threads are scheduled.
    pub scheduling: Scheduling,
}

impl Default for Options {
    fn default() -> Self {
        Self { cpu: None, threads: 256, timeout: Duration::from_millis(10), scheduling: Scheduling::Ordinary }
    }
}

impl Options {
    /// Whether a server can have these options.
    pub(crate) fn check(&self) -> io::Result<()> {
        if !(1..=worker::WORKERS).contains(&self.threads) {
            let text = format!("a server has 1 to {} servicing threads, not {}", worker::WORKERS, self.threads);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if self.timeout.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a server's time-out must be longer than 0"));
        }
        Ok(())
    }
}

/// An open server. Dropping it closes it: each of its locks becomes ordinary when it is next used.
#[derive(Debug)]
pub struct Server {
    number: u32,
    /// The epoch of the process that has opened it.
    epoch: u32,
    manager: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens a server: makes its manager, which makes the first servicing thread.
    ///
    /// # Errors
    /// `InvalidInput` for options out of range; `OutOfMemory`; the system's error if it refuses the manager's thread;
    /// another error after 4,095 servers.
    pub fn open(options: Options) -> io::Result<Self> {
        options.check()?;
        start::prepare();
        let (host, manager) = threads::open(options)?;
        Ok(Self { number: host.core.number(), epoch: Machine::epoch(), manager: Some(manager) })
    }

    fn host(&self) -> &'static Host {
        Host::of(self.number)
    }

    /// Its number, which no other server of the process has.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether it runs sections. It does not in a forked child of the process that has opened it.
    pub fn is_open(&self) -> bool {
        !self.host().core.is_closed()
    }

    /// Whether the calling thread runs a section of it.
    pub fn is_here(&self) -> bool {
        Here.worker().is_some_and(|(number, _)| number == self.number)
    }

    /// What it has done so far. Each number may be a little older than the next.
    pub fn statistics(&self) -> Statistics {
        let host = self.host();
        let mut statistics = Statistics {
            elections: host.elections.load(Relaxed),
            threads_short: host.short.load(Relaxed),
            threads: host.threads().count() as u32,
            clients: host.core.clients(),
            range: host.core.range(),
            real_time: host.is_fifo.load(Relaxed),
            membarrier: membarrier::is_there(),
            ..Statistics::default()
        };
        host.counts.iter().for_each(|counts| statistics.add(counts));
        statistics
    }

    /// Closes it, and waits until its threads have ended; that is, until all sections that it runs have ended. Requests
    /// that wait are then run under ordinary locks. In a section of the server itself this does not wait. Nor does it
    /// in a forked child, which has none of these threads.
    pub fn close(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        if Machine::epoch() != self.epoch {
            // To join or to detach a thread that is not there could hit another one that has its memory now.
            std::mem::forget(self.manager.take());
            return;
        }
        let host = self.host();
        host.core.close();
        host.call_manager();
        let inside = self.is_here();
        if let Some(manager) = self.manager.take().filter(|_| !inside) {
            manager.join().expect("the manager does not panic");
        }
    }
}
