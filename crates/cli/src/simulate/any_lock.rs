//! A lock of the catalogue whose type is forgotten: so simulation and workloads are compiled once, not once for each of
//! some fifty locks and ways of waiting.

use std::cell::RefCell;
use std::mem::offset_of;
use std::rc::Rc;

use flashlock_locks::catalogue::{LockId, StandaloneId};
use flashlock_locks::closure::rcl;
use flashlock_locks::closure::{RawClosure, Request};
use flashlock_locks::raw::RawLock;
use flashlock_locks::rw::catalogue::RwId;
use flashlock_locks::rw::{RawRwLock, Reader, Writer};
use flashlock_locks::wait::{Spin, SpinThenPark, WaitPolicy};
use flashlock_locks::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};
use flashlock_native::settings::{Choice, RwChoice, StandaloneChoice};
use flashlock_sim::delegation::Servers;
use flashlock_sim::{Sim, Word};

thread_local! {
    /// Of the run on this host thread, if its lock has servers.
    pub(super) static SERVERS: RefCell<Option<Rc<Servers>>> = const { RefCell::new(None) };
}

/// The state of any lock, in place, and what to do with it.
#[repr(C)]
pub(super) struct AnyLock {
    word: Word,
    queue: [Word; 5],
    kind: &'static Kind,
}

// As everywhere, the queue begins where the word ends: simulated caches see that.
const _: () = assert!(offset_of!(AnyLock, queue) == 4);

/// The functions of one lock.
pub(super) enum Kind {
    /// One that is acquired and released.
    Mutex { lock: fn(&AnyLock), unlock: fn(&AnyLock) },
    /// One that any number of readers hold, or one writer.
    Rw { read: fn(&AnyLock), write: fn(&AnyLock), unlock: fn(&AnyLock) },
    /// One that is given what is to be done.
    Closure { run: fn(&AnyLock, &mut dyn FnMut()) },
    /// One whose sections a server runs: what a client does, and what the server's thread does.
    Served { run: fn(&AnyLock, &Servers, &mut dyn FnMut()), serve: fn(&Servers, u32, (u64, u64)) },
}

impl Kind {
    const fn mutex<L: RawLock<Sim>>() -> Self {
        Self::Mutex {
            lock: |any| L::lock(&any.word, any.queue_of::<L::Queue>()),
            unlock: |any| L::unlock(&any.word, any.queue_of::<L::Queue>()),
        }
    }

    const fn rw<L: RawRwLock<Sim>>() -> Self {
        Self::Rw {
            read: |any| {
                let state = any.state_of::<L::State>();
                if !L::enter(state) {
                    // Without a deadline, and with less readers than it can count, it is acquired.
                    let _ = L::read(state, Reader::Newcomer, None);
                }
            },
            write: |any| {
                let _ = L::write(any.state_of::<L::State>(), Writer::Fair, None);
            },
            unlock: |any| L::unlock(any.state_of::<L::State>()),
        }
    }

    const fn closure<L: RawClosure<Sim>>() -> Self {
        Self::Closure {
            run: |any, inside| {
                let mut section = Section { request: Request::new(Section::act), inside };
                // SAFETY: the section stays here until this returns, and is not touched before; so does the lock, for
                // the workload outlives its threads. These run on one host thread: what goes to another one of them
                // need not be `Send`.
                unsafe { L::run(any.queue_of::<L::State>(), (&raw mut section).cast()) }
            },
        }
    }
}

impl Kind {
    /// A server sleeps where its clients sleep; where they poll or rest for ever, if there are CPUs, it polls for ever,
    /// as in the paper.
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

/// What is to be done under a closure lock.
#[repr(C)]
struct Section<'a> {
    request: Request,
    inside: &'a mut dyn FnMut(),
}

impl Section<'_> {
    /// # Safety
    /// The request is a section's, and nobody else accesses that.
    unsafe fn act(request: *mut Request) {
        // SAFETY: the caller's promise.
        unsafe { ((*request.cast::<Self>()).inside)() }
    }
}

impl AnyLock {
    /// Free: all-zero state is, of every lock.
    pub(super) fn new(kind: &'static Kind) -> Self {
        use flashlock_locks::machine::Word as _;
        Self { word: Word::new(0), queue: std::array::from_fn(|_| Word::new(0)), kind }
    }

    /// The lock of that server.
    pub(super) fn of_server(kind: &'static Kind, number: u32) -> Self {
        let this = Self::new(kind);
        let lock = this.state_of::<rcl::Lock<Sim>>();
        // SAFETY: the state of such a lock, which nobody uses yet. All of it is words, which may be written through a
        // shared reference, and need not be dropped.
        unsafe { std::ptr::from_ref(lock).cast_mut().write(Servers::lock(number)) };
        this
    }

    fn queue_of<Q>(&self) -> &Q {
        const { assert!(size_of::<Q>() <= size_of::<[Word; 5]>() && align_of::<Q>() <= align_of::<Word>()) }
        // SAFETY: the queue of a lock on `Word`s is made of words: it fits (checked above), and any bits are valid
        // words. `kind` is that of one lock, so the memory is seen as one type of queue only.
        unsafe { &*self.queue.as_ptr().cast() }
    }

    /// The whole state of a lock that has no word apart from its queue.
    fn state_of<S>(&self) -> &S {
        const { assert!(size_of::<S>() <= offset_of!(Self, kind) && align_of::<S>() <= align_of::<Word>()) }
        // SAFETY: as of `queue_of`: word and queue are words side by side (checked above), and of one lock.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// Waits until the calling thread holds it, for writing. A closure lock cannot be held.
    pub(super) fn lock(&self) {
        match self.kind {
            Kind::Mutex { lock: acquire, .. } | Kind::Rw { write: acquire, .. } => acquire(self),
            Kind::Closure { .. } | Kind::Served { .. } => {
                unreachable!("workloads that wait under the lock are not run with closure locks")
            }
        }
    }

    /// Lets another thread in.
    pub(super) fn unlock(&self) {
        match self.kind {
            Kind::Mutex { unlock, .. } | Kind::Rw { unlock, .. } => unlock(self),
            Kind::Closure { .. } | Kind::Served { .. } => unreachable!("nobody holds it"),
        }
    }

    /// Does something under it; by whichever thread, before this one goes on.
    pub(super) fn section(&self, inside: &mut dyn FnMut()) {
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

    /// Whether readers are let in together.
    pub(super) fn has_readers(&self) -> bool {
        matches!(self.kind, Kind::Rw { .. })
    }

    /// The same, while others may read, too, if the lock knows readers.
    pub(super) fn shared(&self, inside: &mut dyn FnMut()) {
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
        /// The functions of that lock, waiting that way.
        pub(super) fn kind(choice: &Choice) -> &'static Kind {
            match choice.lock {
                $(LockId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::mutex::<$type>()),+];
                    &LIST[choice.wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_lock!(define_kinds);

macro_rules! define_rw_kinds {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The same of a readers-writer lock.
        pub(super) fn kind_rw(choice: &RwChoice) -> &'static Kind {
            match choice.lock {
                $(RwId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::rw::<$type>()),+];
                    &LIST[choice.wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_rw_lock!(define_rw_kinds);

macro_rules! define_standalone_kinds {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The same of a lock that no program can be run under.
        pub(super) fn standalone_kind(choice: &StandaloneChoice) -> &'static Kind {
            match choice.lock {
                $(StandaloneId::$variant => {
                    const LIST: &[Kind] = &[$(Kind::$interface::<$type>()),+];
                    &LIST[choice.wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_standalone_lock!(define_standalone_kinds);
