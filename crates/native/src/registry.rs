//! # The registry: what all copies of this code in a process share
//!
//! A process may contain several copies of this code, and all of them must agree on what a lock word means. The
//! registry holds what they share; every lock call uses it.
//!
//! **Problem.** A lock names its waiters by handles into a pool. Suppose that two shared objects contain this code, and
//! that each has its own pool. Then one handle names a different node in each, and a lock used through both breaks. Nor
//! may the nodes be in the memory of an object that can be unloaded while they are queued. **Idea.** The pools are in
//! one mapping at an address that all copies know. The first copy maps it; the others find it there. It belongs to the
//! process, not to any copy, and is never unmapped.
//!
//! ```text
//!   AT[i] ── page: magic, state (mapped with the magic in it: a private mapping of an in-memory file)
//!         ── page: the pools' free lists, chunks, words beside locks
//!         ── page: the epoch (wiped in a forked child)
//!         ── 4,096 nodes, and 4,096 blocks: address space; it takes memory only when used
//! ```
//! The mapping is private, so a forked child has its own. All-zero is the valid first state of every page except the
//! first, so no thread sees it half made.
//!
//! ## Finding it
//! A copy that looks at `AT[i]` must tell at once a registry that another thread is still making from unrelated memory,
//! which may be zero. So the first page always has its magic: one system call maps the page with the magic in it.
//!
//! | at `AT[i]` there is | then |
//! |---|---|
//! | this layout's magic, and READY | use it |
//! | the magic, and FAILED | try the next address |
//! | the magic, and 0 | the thread that mapped it is about to set READY or FAILED: wait for at most one second (a fork may have lost that thread), then do as above, or try the next address |
//! | anything else that can be read | try the next address |
//! | nothing: `MAP_FIXED_NOREPLACE` (Linux 4.17) maps the page | this copy makes it: it maps the other pages, or sets FAILED if something is there already |
//! | something that cannot be read (`EEXIST`, twice) | try the next address |
//! | nothing, and the kernel refuses the file or the mapping | try the next address; after the last, use a registry of this copy alone ([`OWN`]) |
//!
//! Signals are blocked during this. Otherwise a handler that uses another copy's locks would wait for the thread that
//! it interrupts. A copy with another [layout](MAGIC) uses another registry.
//!
//! ## Invariants
//! 1. Once a copy has found a registry, it keeps that one for ever. A registry is never unmapped.
//! 2. Copies with the same magic agree on all types in the registry, and on how lock words name nodes.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | state store / load | Release / Acquire | each other | a reader of READY sees the other pages, and whether the kernel wipes the epoch's page on fork |
//! | magic load | Relaxed | – | the page is mapped with the magic in it |
//! | [`FOUND`] | Relaxed | – | it names memory that starts as zero and is accessed by atomics only |

use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_locks::machine::ConstWord as _;

use crate::left;
use crate::machine::Word32;
use crate::pool::{BlockSlot, FIRST, Pool, Slot};
use crate::sys;

/// The layout's version. Increase it with each change to [`Registry`], to queue nodes, to blocks, or to the meaning of
/// a lock's state.
const LAYOUT: u64 = 5;
/// The first word of a registry.
const MAGIC: u64 = 0xf1a5_10c4_0000_0000 | (size_of::<Slot>() as u64) << 16 | LAYOUT;

/// Addresses where the registry may be. They are far below where the kernel starts to place mappings, in ranges that
/// ThreadSanitizer and AddressSanitizer leave to programs. The last also suits Valgrind and kernels with 39-bit
/// addresses.
pub const AT: [usize; 4] = [0x7e8f_1a00_0000, 0x7e9f_1a00_0000, 0x7eaf_1a00_0000, 0x6f_1a00_0000];

/// How many times, a millisecond apart, to look at the state of a registry that another thread is making.
const LOOKS: u32 = 1_000;

const PAGE: usize = 4096;

/// The first page of a registry.
#[repr(C, align(4096))]
struct Birth {
    magic: AtomicU64,
    /// 0, [`READY`] or [`FAILED`].
    state: AtomicU32,
}

/// The registry is complete.
const READY: u32 = 1;
/// The registry cannot be completed.
const FAILED: u32 = 2;

/// The pools, and all other shared words.
#[repr(C, align(4096))]
pub struct Registry {
    born: Birth,
    pub(crate) nodes: Pool<Slot>,
    pub(crate) blocks: Pool<BlockSlot>,
    /// The last epoch that was given out in this process or in an ancestor. Not wiped on fork.
    pub(crate) last_epoch: AtomicU32,
    /// Counts of nodes left behind (see [`left`]).
    pub(crate) left: [Word32; left::LENGTH],
    /// 1 if the kernel refuses to wipe the epoch in a forked child.
    unwiped: AtomicU32,
    /// How many readers-writer locks use distributed counters.
    pub(crate) distributed: Word32,
    /// The drain words, by which a reader signals that it has left.
    pub(crate) drain: [left::Padded; left::DRAIN_WORDS],
    /// The words that the kernel wipes on fork.
    pub(crate) wiped: Wiped,
    pub(crate) first_nodes: [Slot; FIRST as usize],
    pub(crate) first_blocks: [BlockSlot; FIRST as usize],
}

/// What is zero in a child just after a fork. It has a page of its own.
#[repr(C, align(4096))]
pub(crate) struct Wiped {
    pub(crate) epoch: AtomicU32,
    /// The epoch that a thread is about to set.
    pub(crate) claim: AtomicU32,
}

const _: () = assert!(size_of::<Birth>() == PAGE && size_of::<Wiped>() == PAGE && align_of::<Registry>() == PAGE);

/// The registry of a copy that can share none. It starts all-zero, like a fresh mapping.
static OWN: Registry = Registry {
    born: Birth { magic: AtomicU64::new(0), state: AtomicU32::new(0) },
    nodes: Pool::new(),
    blocks: Pool::new(),
    last_epoch: AtomicU32::new(0),
    left: [const { Word32::ZERO }; left::LENGTH],
    unwiped: AtomicU32::new(0),
    distributed: Word32::ZERO,
    drain: [const { left::Padded::zero() }; left::DRAIN_WORDS],
    wiped: Wiped { epoch: AtomicU32::new(0), claim: AtomicU32::new(0) },
    first_nodes: [const { Slot::zero() }; FIRST as usize],
    first_blocks: [const { BlockSlot::zero() }; FIRST as usize],
};

/// This copy's registry, once it has found one.
static FOUND: AtomicPtr<Registry> = AtomicPtr::new(core::ptr::null_mut());

/// The registry. Async-signal-safe. The first call in a copy of the code makes system calls.
#[inline]
pub fn get() -> &'static Registry {
    let found = FOUND.load(Relaxed);
    if found.is_null() {
        return find();
    }
    // SAFETY: invariant 1; a registry is made of atomics.
    unsafe { &*found }
}

/// Whether other copies share the registry.
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

/// The registry at this address; makes one if nothing is there.
fn at_address(at: usize) -> Option<&'static Registry> {
    let found = match make(at) {
        // Another copy or thread was first, and may be making a registry; or something else is there. Looking only now
        // suits emulators whose kernel does not refuse to read where nothing is.
        Err(libc::EEXIST) => look(at) == Seen::Registry,
        made => made.is_ok(),
    };
    // SAFETY: it has the magic and is ready, so a copy with this layout mapped it (invariant 2), for ever (invariant
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
    /// Nothing, or something unreadable.
    Nothing,
}

fn look(at: usize) -> Seen {
    if !sys::is_readable(at) {
        return Seen::Nothing;
    }
    // SAFETY: eight readable bytes. (If the program unmapped them at this moment, we would crash.)
    if unsafe { &*(at as *const AtomicU64) }.load(Relaxed) != MAGIC {
        return Seen::Stranger;
    }
    // SAFETY: the page has the magic, so it is the first page of a registry (invariant 2).
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

/// Makes a registry at an address where nothing is. An error is the kernel's error number.
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

/// Asks the kernel to wipe the epoch on fork. If it refuses, the registry records that, and [`prepare`] does what it
/// can.
fn wipe_on_fork(registry: &Registry) {
    let page = &raw const registry.wiped as usize;
    let refused = !wiped_on_fork(page);
    registry.unwiped.store(u32::from(refused), Relaxed); // Published by the store of READY.
}

/// Whether the kernel agrees to wipe the page in a forked child.
fn wiped_on_fork(page: usize) -> bool {
    // SAFETY: the page holds only what is to be wiped.
    unsafe { sys::syscall(libc::SYS_madvise, [page, PAGE, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) == 0 }
}

/// Whether the kernel wipes the epoch in a forked child.
fn is_wiped() -> bool {
    get().unwiped.load(Relaxed) == 0
}

/// To be called early. If the kernel does not give a forked child a fresh epoch, this has the C library do it.
pub fn prepare() {
    if !is_wiped() {
        // SAFETY: `wipe` may be called in any child.
        unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    }
}

/// Does what the kernel would do in a forked child. Must run there before anything else.
unsafe extern "C" fn wipe() {
    let wiped = &get().wiped;
    wiped.epoch.store(0, Relaxed);
    wiped.claim.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;

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

    /// The first of so many bytes at which nothing is mapped, and nothing will be: as far from the kernel's own choices
    /// as [`AT`]. Where the kernel maps things, another test's thread or heap may come and go at any time.
    fn nowhere(bytes: usize) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0x7e6f_1a00_0000);
        NEXT.fetch_add(bytes.next_multiple_of(PAGE), Relaxed)
    }

    /// A page that begins with these bytes, at an address that the kernel chooses.
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

    /// How often the thread slept during a call.
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

    /// Some of the addresses after the first page are taken.
    #[test]
    fn one_that_cannot_be_completed_fails_for_all() {
        let at = nowhere(size_of::<Registry>());
        sys::map_at(at + size_of::<Registry>() / 2 / PAGE * PAGE, PAGE, None).expect("a page in the middle");
        assert!(at_address(at).is_none() && look(at) == Seen::Stranger);
        let naps = naps_of(|| assert!(at_address(at).is_none()));
        assert!(naps < i64::from(LOOKS / 10), "{naps} naps");
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

    /// Threads that make a registry at the same address at the same time all get the same one.
    #[test]
    fn of_several_that_come_at_once_one_makes_it() {
        for _ in 0..50 {
            let at = nowhere(size_of::<Registry>());
            let found = || at_address(at).map(|found| core::ptr::from_ref(found) as usize);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(found)).collect();
                let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
                assert_eq!(found, [Some(at); 4], "{found:x?}");
            });
        }
    }
}
