//! # What all copies of this code in a process share
//!
//! **Problem.** A lock names its waiters by handles into a pool. If two shared objects have this code in them, each with a pool of its
//! own, a handle means a different node to either, and a lock that is used through both is broken; nor may the nodes be in the memory of
//! an object that is unloaded while they stand in queues. **Idea.** What handles mean is kept in one mapping at an address that all copies know:
//! whoever comes first maps it, the others find it there. It belongs to the process, and to none of them: it is never unmapped.
//!
//! ```text
//!   AT[i] ── page: magic, the pools' free lists, chunks, words beside locks
//!         ── page: the epoch (wiped in a forked child)
//!         ── 4,096 nodes, and 4,096 blocks: addresses, without memory behind them until they are used
//! ```
//! The mapping is private: a forked child has its own. All-zero is its valid first state, so that nobody sees it half made.
//!
//! ## Finding it
//! | at `AT[i]`, `MAP_FIXED_NOREPLACE` (Linux 4.17) says | and there is | then |
//! |---|---|---|
//! | mapped | – | the magic is stored last; it is ours |
//! | something is there already | this layout's magic | it is ours |
//! | | zero | whoever mapped it is about to store the magic: waits, a second at most |
//! | | anything else, or nothing that can be read | the next address |
//! | no memory, refused | – | the next address; after the last, a registry of this copy alone ([`OWN`]) |
//!
//! Signals are blocked meanwhile: a handler that uses another copy's locks would wait for the thread that it interrupts. A copy of
//! another [layout](MAGIC) has another registry.
//!
//! ## Invariants
//! 1. A registry, once found by a copy, is that copy's for ever, and is never unmapped.
//! 2. Copies with one magic agree on all types in it, and on what lock words say of nodes.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | magic store / load | Release / Acquire | each other | that the epoch's page is wiped on fork has been settled |
//! | [`FOUND`] | Relaxed | – | it names memory that is zero at first, and is used by atomics alone |

use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::left;
use crate::pool::{BlockSlot, FIRST, Pool, Slot};
use crate::sys;

/// To be advanced with each change of [`Registry`], of queue nodes, of blocks, and of what a lock's state says.
const LAYOUT: u64 = 3;
/// What a registry begins with.
const MAGIC: u64 = 0xf1a5_10c4_0000_0000 | (size_of::<Slot>() as u64) << 16 | LAYOUT;

/// Where it may be: far below where the kernel begins to place mappings, in ranges that ThreadSanitizer and AddressSanitizer leave to
/// programs; the last, where Valgrind and kernels with 39 bits of addresses can have it, too.
const AT: [usize; 4] = [0x7e8f_1a00_0000, 0x7e9f_1a00_0000, 0x7eaf_1a00_0000, 0x6f_1a00_0000];

/// How often, a millisecond apart, to look for the magic.
const LOOKS: u32 = 1_000;

const PAGE: usize = 4096;

/// The pools, and all other words of the registry.
#[repr(C, align(4096))]
pub struct Registry {
    magic: AtomicU64,
    pub(crate) nodes: Pool<Slot>,
    pub(crate) blocks: Pool<BlockSlot>,
    /// The last epoch that was given out, or an ancestor's. Not wiped.
    pub(crate) last_epoch: AtomicU32,
    /// Nodes left behind.
    pub(crate) left: [AtomicU32; left::LENGTH],
    /// How many readers-writer locks count their readers apart.
    pub(crate) apart: AtomicU32,
    /// By which readers say that they have gone.
    pub(crate) leavers: [left::Apart; left::LEAVERS],
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

const _: () = assert!(size_of::<Wiped>() == PAGE && align_of::<Registry>() == PAGE);

/// For a copy that can have no other: all-zero, as one that was mapped just now.
static OWN: Registry = Registry {
    magic: AtomicU64::new(0),
    nodes: Pool::new(),
    blocks: Pool::new(),
    last_epoch: AtomicU32::new(0),
    left: [const { AtomicU32::new(0) }; left::LENGTH],
    apart: AtomicU32::new(0),
    leavers: [const { left::Apart::zero() }; left::LEAVERS],
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
    let before = sys::block_signals();
    let mapped = sys::map_at(at, size_of::<Registry>());
    if mapped.is_ok() {
        // SAFETY: mapped just now, zeroed, and never unmapped (invariant 1).
        let registry = unsafe { &*(at as *const Registry) };
        wipe_on_fork(registry);
        registry.magic.store(MAGIC, Release);
    }
    sys::restore_signals(before);
    match mapped {
        Ok(()) => Some(at),
        Err(libc::EEXIST) => (0..LOOKS).find_map(|_| look(at)).flatten(),
        Err(_) => None,
    }
    // SAFETY: it has the magic: somebody with this layout has mapped it (invariant 2), for ever (invariant 1).
    .map(|at| unsafe { &*(at as *const Registry) })
}

/// What is there: a registry; something else (`Some(None)`); or it is too early to say.
fn look(at: usize) -> Option<Option<usize>> {
    if !sys::is_readable(at) {
        return Some(None);
    }
    // SAFETY: eight bytes that can be read. Were they unmapped just now, by code that maps things here, we would crash.
    let magic = unsafe { &*(at as *const AtomicU64) }.load(Acquire);
    match magic {
        MAGIC => Some(Some(at)),
        0 => {
            sys::nap(1_000);
            None
        }
        _ => Some(None),
    }
}

/// Where the kernel refuses, the epoch is constant, and a child that inherits waiters may hang on them.
fn wipe_on_fork(registry: &Registry) {
    let page = &raw const registry.wiped as usize;
    // SAFETY: the page holds nothing but what is to be wiped.
    unsafe { sys::syscall(libc::SYS_madvise, [page, PAGE, libc::MADV_WIPEONFORK as usize, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn strangers_are_left_alone() {
        let read = libc::PROT_READ;
        for (what, at) in [
            ("another layout", page_with(MAGIC + 1, read)),
            ("other bytes", page_with(1, read)),
            ("unreadable", page_with(MAGIC, libc::PROT_NONE)),
        ] {
            assert!(at_address(at).is_none(), "{what}");
        }
        let at = page_with(MAGIC, read);
        assert_eq!(look(at), Some(Some(at)));
    }

    #[test]
    fn one_that_is_being_made_is_waited_for() {
        let at = page_with(0, libc::PROT_READ | libc::PROT_WRITE);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| at_address(at).map(|found| core::ptr::from_ref(found) as usize));
            // SAFETY: the test's own page.
            unsafe { &*(at as *const AtomicU64) }.store(MAGIC, Release);
            assert_eq!(waiter.join().unwrap(), Some(at));
        });
    }
}
