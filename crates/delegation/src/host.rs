//! # A server's memory
//!
//! It is address space for the largest number of clients, in which pages appear as clients do; and the table that finds
//! servers by number. A server's memory is never given back: a client that comes late finds the server closed.

use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_locks::closure::rcl::{self, Head, Slot, Worker};
use flashlock_native::{Word32, sys};

use crate::Machine;
use crate::server::Options;
use crate::statistics::Counts;

/// Clients of a server at once, at most.
const CLIENTS: usize = 1 << 16;
/// Words of bits for them.
const GROUPS: usize = CLIENTS / 32;
/// The size of the table. A process opens at most one server fewer in its life, because number 0 is none.
const SERVERS: usize = 1 << 12;

/// Servers by number. 0 is none.
static TABLE: [AtomicPtr<Host>; SERVERS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SERVERS];
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A server, and what its threads share.
pub(crate) struct Host {
    pub(crate) core: rcl::Server<'static, Machine>,
    pub(crate) options: Options,
    /// Changes when the manager must look at once. The manager sleeps on it.
    pub(crate) bell: Word32,
    /// How often a thread was needed and could not be made: the limit was reached, or the system refused.
    pub(crate) short: AtomicU64,
    pub(crate) elections: AtomicU64,
    /// Whether its manager has real-time scheduling, so that servicing threads may have it.
    pub(crate) may_be_fifo: AtomicBool,
    /// Whether these have it.
    pub(crate) is_fifo: AtomicBool,
    /// The counters of each worker.
    pub(crate) counts: Box<[Counts]>,
    /// The workers' kernel ids, by their numbers; 0: that worker does not run yet.
    pub(crate) ids: Box<[AtomicU32]>,
}

/// Zeroed memory that is never given back. No page of it is touched here.
fn reserve<T>(count: usize) -> io::Result<&'static [T]> {
    let bytes = (count * size_of::<T>()).next_multiple_of(1 << 12);
    let address = sys::map_anonymous(bytes).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // SAFETY: mapped just now, page-aligned, never unmapped, all-zero. Each `T` that is used here is made of atomic
    // words and of bytes that may have any value.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), count) })
}

impl Host {
    /// A new server, with the next number.
    pub(crate) fn open(options: Options) -> io::Result<&'static Self> {
        let number = NEXT.fetch_add(1, Relaxed);
        let Some(place) = TABLE.get(number as usize) else {
            NEXT.fetch_sub(1, Relaxed);
            let text =
                format!("more than {} servers were opened: keep servers, instead of opening new ones", SERVERS - 1);
            return Err(io::Error::other(text));
        };
        let workers = options.threads as usize;
        let (head, slots) = (&reserve::<Head<Machine>>(1)?[0], reserve::<Slot<Machine>>(CLIENTS)?);
        let (names, workers_at) = ((reserve(GROUPS)?, reserve(GROUPS)?), reserve::<Worker<Machine>>(workers)?);
        // SAFETY: the parts are new. `threads` gives each worker a number of its own (1), and has one manager (3), and
        // `here` gives each client one (2). The server is opened below (4), and its workers call only `work`.
        let core = unsafe { rcl::Server::new(head, names, slots, workers_at) };
        core.open(number);
        let host = Box::leak(Box::new(Self {
            core,
            options,
            bell: Word32(AtomicU32::new(0)),
            short: AtomicU64::new(0),
            elections: AtomicU64::new(0),
            may_be_fifo: AtomicBool::new(false),
            is_fifo: AtomicBool::new(false),
            counts: (0..workers).map(|_| Counts::default()).collect(),
            ids: (0..workers).map(|_| AtomicU32::new(0)).collect(),
        }));
        place.store(host, Release);
        Ok(host)
    }

    /// The server of that number.
    ///
    /// # Panics
    /// If there is none: no lock names it.
    #[inline]
    pub(crate) fn of(number: u32) -> &'static Self {
        let host = TABLE.get(number as usize).map_or(std::ptr::null_mut(), |place| place.load(Acquire));
        // SAFETY: null, or leaked by `open`.
        unsafe { host.as_ref() }.expect("a lock names a server that was never opened")
    }

    /// Kernel ids of its servicing threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = u32> {
        self.ids.iter().map(|id| id.load(Relaxed)).filter(|id| *id != 0)
    }

    /// Makes the manager look.
    pub(crate) fn call_manager(&self) {
        self.bell.0.fetch_add(1, Release);
        flashlock_native::futex::wake(&raw const self.bell.0, 1);
    }
}
