//! # Every lock of the catalogue as one type, on a simulated machine
//!
//! For `flashlock simulate`. So simulation and workloads are compiled once, instead of for each of some seventy
//! combinations of lock and way of waiting. A trait object would not do: the words of a lock must lie side by side, as
//! in a program, because the simulated caches depend on that.

use std::cell::RefCell;
use std::mem::offset_of;
use std::rc::Rc;

use flashlock_locks::catalogue::rw::RwId;
use flashlock_locks::catalogue::{LockId, StandaloneId};
use flashlock_locks::closure::rcl;
use flashlock_locks::closure::{RawClosure, Request};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::wait::{Spin, SpinThenPark, WaitPolicy};
use flashlock_locks::rw::{RawRwLock, Reader, Writer};
use flashlock_locks::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};
use flashlock_sim::delegation::Servers;
use flashlock_sim::{Sim, Word};

thread_local! {
    /// The servers of the run on this host thread, if its lock has servers.
    pub static SERVERS: RefCell<Option<Rc<Servers>>> = const { RefCell::new(None) };
}

/// The state of any lock, in place, and its functions.
#[repr(C)]
pub struct AnyLock {
    word: Word,
    queue: [Word; 5],
    kind: &'static Kind,
}

// As everywhere, the queue starts where the word ends: the simulated caches depend on that.
const _: () = assert!(offset_of!(AnyLock, queue) == 4);

/// The functions of one lock. Whoever calls them releases only what the caller holds.
#[allow(missing_docs)]
pub enum Kind {
    /// A lock that is acquired and released.
    Mutex { lock: fn(&AnyLock), unlock: fn(&AnyLock) },
    /// A lock that any number of readers can hold, or one writer.
    Rw { read: fn(&AnyLock), write: fn(&AnyLock), unlock: fn(&AnyLock) },
    /// A lock that runs a closure.
    Closure { run: fn(&AnyLock, &mut dyn FnMut()) },
    /// A lock whose sections a server runs: the functions of a client, and of the server's thread.
    Served { run: fn(&AnyLock, &Servers, &mut dyn FnMut()), serve: fn(&Servers, u32, (u64, u64)) },
}

impl Kind {
    const fn mutex<L: RawLock<Sim>>() -> Self {
        Self::Mutex {
            // SAFETY: here and below: the state is used by the lock of its kind only, and the workloads release what
            // they hold.
            lock: |any| unsafe { L::lock(&any.word, any.queue_of::<L::Queue>()) },
            // SAFETY: as above.
            unlock: |any| unsafe { L::unlock(&any.word, any.queue_of::<L::Queue>()) },
        }
    }

    const fn rw<L: RawRwLock<Sim>>() -> Self {
        Self::Rw {
            read: |any| {
                let state = any.state_of::<L::State>();
                // SAFETY: as for mutexes.
                unsafe {
                    if !L::enter(state) {
                        // Without a deadline, and with fewer readers than it can count, the acquisition succeeds.
                        let _ = L::read(state, Reader::Newcomer, None);
                    }
                }
            },
            write: |any| {
                // SAFETY: as for mutexes.
                let _ = unsafe { L::write(any.state_of::<L::State>(), Writer::Fair, None) };
            },
            // SAFETY: as for mutexes.
            unlock: |any| unsafe { L::unlock(any.state_of::<L::State>()) },
        }
    }

    const fn closure<L: RawClosure<Sim>>() -> Self {
        Self::Closure {
            run: |any, inside| {
                let mut section = Section { request: Request::new(Section::act), inside };
                // SAFETY: the section stays here until this returns, and is not touched before. So does the lock,
                // because the workload outlives its threads. All threads run on one host thread, so what is passed
                // between them need not be `Send`.
                unsafe { L::run(any.queue_of::<L::State>(), (&raw mut section).cast()) }
            },
        }
    }
}

impl Kind {
    /// A server sleeps if its clients sleep. If they poll or rest for ever, and there are CPUs, it polls for ever, as
    /// in the paper.
    const fn served<W: WaitPolicy>() -> Self {
        Self::Served {
            run: |any, servers, inside| servers.run::<W>(any.state_of::<rcl::Lock<Sim>>(), inside),
            serve: |servers, number, time| {
                if W::PARKS && !W::RESTS {
                    servers.serve::<SpinThenPark>(number, time);
                } else {
                    servers.serve::<Spin>(number, time);
                }
            },
        }
    }
}

/// A section of a closure lock.
#[repr(C)]
struct Section<'a> {
    request: Request,
    inside: &'a mut dyn FnMut(),
}

impl Section<'_> {
    /// # Safety
    /// The request is a section's, and nothing else accesses it.
    unsafe fn act(request: *mut Request) {
        // SAFETY: the callers' promise.
        unsafe { ((*request.cast::<Self>()).inside)() }
    }
}

impl AnyLock {
    /// A free lock: the all-zero state is free in every lock.
    pub fn new(kind: &'static Kind) -> Self {
        use flashlock_locks::machine::Word as _;
        Self { word: Word::new(0), queue: std::array::from_fn(|_| Word::new(0)), kind }
    }

    /// The lock of this server.
    pub fn of_server(kind: &'static Kind, number: u32) -> Self {
        let this = Self::new(kind);
        let lock = this.state_of::<rcl::Lock<Sim>>();
        // SAFETY: the state of such a lock, which nothing uses yet. It consists of words, which may be written through
        // a shared reference and need not be dropped.
        unsafe { std::ptr::from_ref(lock).cast_mut().write(Servers::lock(number)) };
        this
    }

    fn queue_of<Q>(&self) -> &Q {
        const { assert!(size_of::<Q>() <= size_of::<[Word; 5]>() && align_of::<Q>() <= align_of::<Word>()) }
        // SAFETY: the queue of a lock on `Word`s consists of words. It fits (checked above), and any bits are valid
        // words. `kind` belongs to one lock, so the memory is used as only one type of queue.
        unsafe { &*self.queue.as_ptr().cast() }
    }

    /// The whole state of a lock that has no separate word.
    fn state_of<S>(&self) -> &S {
        const { assert!(size_of::<S>() <= offset_of!(Self, kind) && align_of::<S>() <= align_of::<Word>()) }
        // SAFETY: as in `queue_of`: word and queue are adjacent words (checked above), and belong to one lock.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// Waits until the calling thread holds the lock, for writing. A closure lock cannot be held.
    pub fn lock(&self) {
        match self.kind {
            Kind::Mutex { lock: acquire, .. } | Kind::Rw { write: acquire, .. } => acquire(self),
            Kind::Closure { .. } | Kind::Served { .. } => {
                unreachable!("workloads that wait under the lock are not run with closure locks")
            }
        }
    }

    /// Lets another thread in.
    pub fn unlock(&self) {
        match self.kind {
            Kind::Mutex { unlock, .. } | Kind::Rw { unlock, .. } => unlock(self),
            Kind::Closure { .. } | Kind::Served { .. } => unreachable!("nobody holds it"),
        }
    }

    /// Runs a section under the lock, in some thread, before this thread continues.
    pub fn section(&self, inside: &mut dyn FnMut()) {
        match self.kind {
            Kind::Mutex { lock: acquire, unlock } | Kind::Rw { write: acquire, unlock, .. } => {
                acquire(self);
                inside();
                unlock(self);
            }
            Kind::Closure { run } => run(self, inside),
            Kind::Served { run, .. } => {
                let servers = SERVERS.with_borrow(|servers| servers.clone());
                run(self, &servers.expect("a lock of a server's is made with it"), inside);
            }
        }
    }

    /// Whether it lets readers in together.
    pub fn has_readers(&self) -> bool {
        matches!(self.kind, Kind::Rw { .. })
    }

    /// Runs a section while others may read, too, if the lock has readers.
    pub fn shared(&self, inside: &mut dyn FnMut()) {
        match self.kind {
            Kind::Rw { read, unlock, .. } => {
                read(self);
                inside();
                unlock(self);
            }
            _ => self.section(inside),
        }
    }
}

macro_rules! define_kinds {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The functions of this lock with this one of its ways of waiting.
        #[inline(never)] // Else it would be compiled where it is called.
        pub fn kind(lock: LockId, wait: usize) -> &'static Kind {
            match lock {
                $(LockId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::mutex::<$type>()),+];
                    &LIST[wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_lock!(define_kinds);

macro_rules! define_rw_kinds {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The same for a readers-writer lock.
        #[inline(never)]
        pub fn kind_rw(lock: RwId, wait: usize) -> &'static Kind {
            match lock {
                $(RwId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::rw::<$type>()),+];
                    &LIST[wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_rw_lock!(define_rw_kinds);

macro_rules! define_standalone_kinds {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The same for a lock that unmodified programs cannot use.
        #[inline(never)]
        pub fn standalone_kind(lock: StandaloneId, wait: usize) -> &'static Kind {
            match lock {
                $(StandaloneId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::$interface::<$type>()),+];
                    &LIST[wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_standalone_lock!(define_standalone_kinds);
