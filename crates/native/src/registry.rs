//! # What all copies of this code in a process share
//!
//! **Problem.** A lock names its waiters by handles into a pool. If two shared objects have this code in them, each
//! with a pool of its own, a handle means a different node to either, and a lock that is used through both is broken;
//! nor may the nodes be in the memory of an object that is unloaded while they stand in queues. **Idea.** What handles
//! mean is kept in one mapping at an address that all copies know: whoever comes first maps it, the others find it
//! there. It belongs to the process, and to none of them: it is never unmapped.
//!
//! ```text
//!   AT[i] ── page: magic, state (born with the magic: a private mapping of a file in memory)
//!         ── page: the pools' free lists, chunks, words beside locks
//!         ── page: the epoch (wiped in a forked child)
//!         ── 4,096 nodes, and 4,096 blocks: addresses, without memory behind them until they are used
//! ```
//! The mapping is private: a forked child has its own. All-zero is the valid first state of all but the first page, so
//! that nobody sees it half made.
//!
//! ## Finding it
//! Whoever looks at `AT[i]` must tell at once what is a registry that another thread is just making from what is
//! anybody's, which may be zero. So the first page is never without its magic: it is mapped with it, by one system
//! call.
//!
//! | at `AT[i]` there is | then |
//! |---|---|
//! | this layout's magic, and READY | it is ours |
//! | the magic, and FAILED | the next address |
//! | the magic, and 0 | whoever mapped it is about to say which: waits, a second at most (the thread may have been lost in a fork) |
//! | anything else that can be read | the next address |
//! | nothing: `MAP_FIXED_NOREPLACE` (Linux 4.17) maps the page | it is ours to make: the other pages follow, or FAILED if something is there already |
//! | something that cannot be read (`EEXIST`, twice) | the next address |
//! | nothing, and the kernel refuses the file or the mapping | the next address; after the last, a registry of this copy alone ([`OWN`]) |
//!
//! Signals are blocked meanwhile: a handler that uses another copy's locks would wait for the thread that it
//! interrupts. A copy of another [layout](MAGIC) has another registry.
//!
//! ## Invariants
//! 1. A registry, once found by a copy, is that copy's for ever, and is never unmapped.
//! 2. Copies with one magic agree on all types in it, and on what lock words say of nodes.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | state store / load | Release / Acquire | each other | that the other pages are there, and the epoch's is wiped on fork, has been settled |
//! | magic load | Relaxed | – | the page is born with it |
//! | [`FOUND`] | Relaxed | – | it names memory that is zero at first, and is used by atomics alone |

use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::left;
use crate::pool::{BlockSlot, FIRST, Pool, Slot};
use crate::sys;

/// To be advanced with each change of [`Registry`], of queue nodes, of blocks, and of what a lock's state says.
const LAYOUT: u64 = 4;
/// What a registry begins with.
const MAGIC: u64 = 0xf1a5_10c4_0000_0000 | (size_of::<Slot>() as u64) << 16 | LAYOUT;

/// Where it may be: far below where the kernel begins to place mappings, in ranges that ThreadSanitizer and
/// AddressSanitizer leave to programs; the last, where Valgrind and kernels with 39 bits of addresses can have it, too.
pub const AT: [usize; 4] = [0x7e8f_1a00_0000, 0x7e9f_1a00_0000, 0x7eaf_1a00_0000, 0x6f_1a00_0000];

/// How often, a millisecond apart, to look at the state of a registry that is being made.
const LOOKS: u32 = 1_000;

const PAGE: usize = 4096;

/// What a registry begins with.
#[repr(C, align(4096))]
struct Birth {
    magic: AtomicU64,
    /// 0, [`READY`] or [`FAILED`].
    state: AtomicU32,
}

/// The registry is complete.
const READY: u32 = 1;
/// It will not be.
const FAILED: u32 = 2;

/// The pools, and all other words of the registry.
#[repr(C, align(4096))]
pub struct Registry {
    born: Birth,
    pub(crate) nodes: Pool<Slot>,
    pub(crate) blocks: Pool<BlockSlot>,
    /// The last epoch that was given out, or an ancestor's. Not wiped.
    pub(crate) last_epoch: AtomicU32,
    /// Nodes left behind.
    pub(crate) left: [AtomicU32; left::LENGTH],
    /// Whether the kernel refuses to wipe the epoch in a forked child.
    unwiped: AtomicU32,
    /// How many readers-writer locks count their readers apart.
    pub(crate) apart: AtomicU32,
    /// By which readers say that they have gone.
    pub(crate) drain: [left::Padded; left::DRAIN_WORDS],
    /// The epoch.
    pub(crate) wiped: Wiped,
    pub(crate) first_nodes: [Slot; FIRST as usize],
    pub(crate) first_blocks: [BlockSlot; FIRST as usize],
}

/// What is zero in a child that was forked just now, on a page of its own.
#[repr(C, align(4096))]
pub(crate) struct Wiped {
    pub(crate) epoch: AtomicU32,
    /// What the epoch will be.
    pub(crate) claim: AtomicU32,
}

const _: () = assert!(size_of::<Birth>() == PAGE && size_of::<Wiped>() == PAGE && align_of::<Registry>() == PAGE);

/// For a copy that can have no other: all-zero, as one that was mapped just now.
static OWN: Registry = Registry {
    born: Birth { magic: AtomicU64::new(0), state: AtomicU32::new(0) },
    nodes: Pool::new(),
    blocks: Pool::new(),
    last_epoch: AtomicU32::new(0),
    left: [const { AtomicU32::new(0) }; left::LENGTH],
    unwiped: AtomicU32::new(0),
    apart: AtomicU32::new(0),
    drain: [const { left::Padded::zero() }; left::DRAIN_WORDS],
    wiped: Wiped { epoch: AtomicU32::new(0), claim: AtomicU32::new(0) },
    first_nodes: [const { Slot::zero() }; FIRST as usize],
    first_blocks: [const { BlockSlot::zero() }; FIRST as usize],
};

/// This copy's, once it has one.
static FOUND: AtomicPtr<Registry> = AtomicPtr::new(core::ptr::null_mut());

/// The registry. Async-signal-safe; makes system calls when it is called for the first time in a copy of the code.
#[inline]
pub fn get() -> &'static Registry {
    let found = FOUND.load(Relaxed);
    if found.is_null() {
        return find();
    }
    // SAFETY: invariant 1; a registry is made of atomics.
    unsafe { &*found }
}

/// Whether other copies have it, too.
pub fn is_shared() -> bool {
    !core::ptr::eq(get(), &raw const OWN)
}

#[cold]
fn find() -> &'static Registry {
    let found = AT.iter().find_map(|&at| at_address(at)).unwrap_or(&OWN);
    if core::ptr::eq(found, &raw const OWN) {
        wipe_on_fork(&OWN);
    }
    let fresh = core::ptr::from_ref(found).cast_mut();
    match FOUND.compare_exchange(core::ptr::null_mut(), fresh, Relaxed, Relaxed) {
        Ok(_) => found,
        // SAFETY: as in `get`.
        Err(winner) => unsafe { &*winner },
    }
}

/// The registry at this address, made if need be.
fn at_address(at: usize) -> Option<&'static Registry> {
    let found = match look(at) {
        Seen::Registry => true,
        Seen::Stranger => false,
        Seen::Nothing => match make(at) {
            // Somebody came first, who may be about to make one; or something is there that cannot be read.
            Err(libc::EEXIST) => look(at) == Seen::Registry,
            made => made.is_ok(),
        },
    };
    // SAFETY: it has the magic and is ready: somebody with this layout has mapped it (invariant 2), for ever (invariant
    // 1).
    found.then(|| unsafe { &*(at as *const Registry) })
}

/// What is at an address.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// A registry.
    Registry,
    /// Something else.
    Stranger,
    /// Nothing, or something that cannot be read.
    Nothing,
}

fn look(at: usize) -> Seen {
    if !sys::is_readable(at) {
        return Seen::Nothing;
    }
    // SAFETY: eight bytes that can be read. Were they unmapped just now, by code that maps things here, we would crash.
    if unsafe { &*(at as *const AtomicU64) }.load(Relaxed) != MAGIC {
        return Seen::Stranger;
    }
    // SAFETY: the page has the magic, so it is a registry's first (invariant 2).
    let born = unsafe { &*(at as *const Birth) };
    for _ in 0..LOOKS {
        match born.state.load(Acquire) {
            READY => return Seen::Registry,
            FAILED => break,
            _ => sys::nap(1_000),
        }
    }
    Seen::Stranger
}

/// Makes a registry where nothing is. The error is the kernel's.
fn make(at: usize) -> Result<(), i32> {
    let before = sys::block_signals();
    let made = sys::with_file(c"flashlock", &MAGIC.to_ne_bytes(), |file| sys::map_at(at, PAGE, Some(file)));
    let made = made.unwrap_or(Err(libc::EACCES)).and_then(|()| {
        // SAFETY: mapped just now, and never unmapped (invariant 1).
        let born = unsafe { &*(at as *const Birth) };
        let rest = sys::map_at(at + PAGE, size_of::<Registry>() - PAGE, None);
        if rest.is_ok() {
            // SAFETY: all of it has been mapped, zeroed, and is never unmapped (invariant 1).
            wipe_on_fork(unsafe { &*(at as *const Registry) });
        }
        born.state.store(if rest.is_ok() { READY } else { FAILED }, Release);
        rest
    });
    sys::restore_signals(before);
    made
}

/// Where the kernel refuses, the registry says so, and [`prepare`] does what can be done.
fn wipe_on_fork(registry: &Registry) {
    let page = &raw const registry.wiped as usize;
    let refused = !wiped_on_fork(page);
    registry.unwiped.store(u32::from(refused), Relaxed); // Published with the magic, or found by who has mapped it.
}

/// Has the kernel wipe the page in a forked child, if it can.
fn wiped_on_fork(page: usize) -> bool {
    // SAFETY: the page holds nothing but what is to be wiped.
    unsafe { sys::syscall(libc::SYS_madvise, [page, PAGE, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) == 0 }
}

/// Whether the kernel wipes the epoch in a forked child.
fn is_wiped() -> bool {
    get().unwiped.load(Relaxed) == 0
}

/// Called early: where the kernel does not see to it that a forked child has an epoch of its own, the C library does.
pub fn prepare() {
    if !is_wiped() {
        // SAFETY: the function may be called in any child.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
}

/// What the kernel does in a forked child. To be called there if it does not, before anything else.
unsafe extern "C" fn wipe() {
    let wiped = &get().wiped;
    wiped.epoch.store(0, Relaxed);
    wiped.claim.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;

    use super::*;

    #[test]
    fn it_is_known_whether_the_kernel_wipes() {
        assert!(is_wiped(), "Linux 4.14 and later do");
        assert!(!wiped_on_fork(1), "no page begins there, and the kernel says so");
    }

    #[test]
    fn the_process_has_one() {
        assert!(is_shared());
        let at = core::ptr::from_ref(get()) as usize;
        assert!(AT.contains(&at));
        // As another copy would find it.
        assert_eq!(at_address(at).map(core::ptr::from_ref), Some(core::ptr::from_ref(get())));
    }

    /// A page of these bytes at an address where the kernel chooses.
    fn page_with(first: u64, protection: libc::c_int) -> usize {
        let page = sys::map_anonymous(PAGE).expect("a page");
        // SAFETY: mapped just now.
        unsafe {
            page.cast::<u64>().write(first);
            libc::mprotect(page.cast(), PAGE, protection);
        }
        page as usize
    }

    #[test]
    fn strangers_are_left_alone_at_once() {
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let failed = page_with(MAGIC, write);
        // SAFETY: the test's own page.
        unsafe { &*(failed as *const Birth) }.state.store(FAILED, Relaxed);
        let naps = naps_of(|| {
            for (what, at) in [
                ("another layout", page_with(MAGIC + 1, read)),
                ("other bytes", page_with(1, read)),
                ("zeroed", page_with(0, read)),
                ("zeroed, and can be written", page_with(0, write)),
                ("unreadable", page_with(MAGIC, libc::PROT_NONE)),
                ("failed", failed),
            ] {
                assert!(at_address(at).is_none(), "{what}");
            }
        });
        assert!(naps < i64::from(LOOKS / 10), "{naps} naps");
    }

    /// How often the thread has slept in a call.
    fn naps_of(call: impl FnOnce()) -> i64 {
        let switches = || {
            // SAFETY: all-zero is a valid value, and it is writable.
            unsafe {
                let mut usage: libc::rusage = core::mem::zeroed();
                libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
                usage.ru_nvcsw
            }
        };
        let before = switches();
        call();
        switches() - before
    }

    /// Some of the addresses behind the first page are taken.
    #[test]
    fn one_that_cannot_be_completed_fails_for_all() {
        let bytes = 4 * size_of::<Registry>();
        let at = sys::map_anonymous(bytes).expect("addresses") as usize;
        // SAFETY: the test's own mapping, of which the page in the middle stays.
        unsafe { libc::munmap(at as *mut c_void, size_of::<Registry>() / 2 / PAGE * PAGE) };
        assert!(at_address(at).is_none() && look(at) == Seen::Stranger);
        assert_eq!(naps_of(|| assert!(at_address(at).is_none())), 0);
    }

    #[test]
    fn one_that_is_being_made_is_waited_for() {
        let at = page_with(MAGIC, libc::PROT_READ | libc::PROT_WRITE);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| at_address(at).map(|found| core::ptr::from_ref(found) as usize));
            // SAFETY: the test's own page.
            unsafe { &*(at as *const Birth) }.state.store(READY, Release);
            assert_eq!(waiter.join().unwrap(), Some(at));
        });
    }

    /// Threads that make it at once, at one address, all have it.
    #[test]
    fn of_several_that_come_at_once_one_makes_it() {
        for _ in 0..50 {
            let at = sys::map_anonymous(size_of::<Registry>()).expect("addresses") as usize;
            // SAFETY: the test's own mapping.
            unsafe { libc::munmap(at as *mut c_void, size_of::<Registry>()) };
            let found = || at_address(at).map(|found| core::ptr::from_ref(found) as usize);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(found)).collect();
                let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
                // All or none: the kernel may have given the addresses to somebody else meanwhile.
                assert!(found.iter().all(|one| *one == found[0]), "{found:x?}");
            });
        }
    }
}
