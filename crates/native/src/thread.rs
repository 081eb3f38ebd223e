//! # Per-thread state
//!
//! What this code keeps for each thread: its id, what it has learned, and a node for its next wait. It is in
//! [thread-local storage](crate::local) without destructors, and nothing in it must be given back when the thread ends.
//! To learn of a thread's end takes one of two things. One is a thread-specific key, of which the program has only a
//! limited number. The other is a destructor, for which the C library allocates, and a malloc built on our mutexes
//! would then call back here. Neither covers a lock that is used in the very last destructor.
//!
//! So the node that a thread keeps for its next wait is outside its storage, on one of [`SPARES`] lines. The address of
//! the thread's storage selects the line. A thread that ends leaves its node there. The C library gives its memory, and
//! so its line, to a later thread. Two threads may share a line; then one of them may have to go to the pool. So the
//! number of nodes is at most what was ever needed at once, plus one for each line in use: at most [`LINES`], and at
//! most one for each address at which a thread's storage has been. Before the pool maps memory, it takes the nodes on
//! the lines ([`reclaim`]).

use core::cell::Cell;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

use flashlock_locks::machine::polling::Contention;
use flashlock_locks::machine::{Handle, Kept, Word};

use crate::local::zeroed_per_thread;
use crate::machine::Word32;
use crate::{clock, epoch, pool, sys};

/// All-zero at first: see [`local`](crate::local).
struct Local {
    /// The thread's id (low half) and the epoch in which it asked for it. They share a word because a signal handler
    /// that also asks must not come between the two.
    id: AtomicU64,
    random: Cell<u32>,
    contention: Cell<Contention>,
    /// For [`evidence`](crate::evidence): how long a cache line's transfer took, in ticks.
    transfer: Cell<u32>,
    /// One plus the thread's number, in the order in which threads came here; 0 if it has none yet.
    place: Cell<u32>,
    /// [`sys::priority`], once it is known.
    priority: Cell<i32>,
    /// Whether `priority` is known.
    has_priority: Cell<bool>,
    /// See [`is_in_proxy`].
    is_in_proxy: Cell<bool>,
    /// Values that lock algorithms keep.
    kept: [Cell<u32>; Kept::OF_THREAD],
    /// Always 0.
    zero: AtomicU32,
}

zeroed_per_thread! {
    static LOCAL: Local = "flashlock_native_thread";
}

static PLACES: AtomicU32 = AtomicU32::new(0);

/// The number of lines.
const LINES: usize = 1024;

/// A free node, kept for a thread's next wait.
#[repr(align(64))]
struct Spare(Word32);

static SPARES: [Spare; LINES] = [const { Spare(Word32(AtomicU32::new(0))) }; LINES];

/// The calling thread's line.
#[inline]
fn spare() -> &'static Word32 {
    &SPARES[line_of(LOCAL.with(|local| core::ptr::from_ref(local) as u64))].0
}

/// The line of the thread whose storage is at that address. Fibonacci hashing: storage is usually at equal distances,
/// and then hardly any two threads share a line.
#[inline]
const fn line_of(storage: u64) -> usize {
    ((storage >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - LINES.ilog2())) as usize
}

/// The handle in a word of a line.
fn kept_in(word: u32) -> Option<Handle> {
    // SAFETY: only `give_node` writes such a word: a node that was given back. The thread that swaps the word out owns
    // the node.
    unsafe { Handle::new(word) }
}

/// Takes a node for the calling thread.
///
/// # Safety
/// That of [`Memory::take_node`](flashlock_locks::machine::Memory::take_node).
pub unsafe fn take_node() -> Handle {
    // AcqRel here and below, as in the pool: another thread may have put the node there, or may take it.
    // SAFETY: the callers' promise.
    kept_in(spare().swap(0, AcqRel)).unwrap_or_else(|| unsafe { pool::take() })
}

/// Gives a node back: keeps it for the next wait on the calling thread's line. A node that was on the line goes to the
/// pool.
pub fn give_node(handle: Handle) {
    if let Some(surplus) = kept_in(spare().swap(handle.word(), AcqRel)) {
        pool::give(surplus);
    }
}

/// Takes the node from a line, if there is one.
fn take_from(spare: &Spare) -> Option<Handle> {
    let is_empty = spare.0.load(Relaxed) == 0;
    if is_empty { None } else { kept_in(spare.0.swap(0, AcqRel)) }
}

/// Takes a node from any line.
pub(crate) fn reclaim() -> Option<Handle> {
    SPARES.iter().find_map(take_from)
}

/// Runs when this copy of the code is unloaded, or the process ends: the lines belong to this copy, the pool does not.
/// A thread that still runs finds nodes in the pool.
extern "C" fn give_back() {
    SPARES.iter().filter_map(take_from).for_each(pool::give);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static GIVE_BACK: extern "C" fn() = give_back;

/// The offset of the thread's zero word from its thread pointer.
#[cfg(target_arch = "x86_64")]
pub(crate) fn zero_at() -> usize {
    let pointer: usize;
    // SAFETY: reads the thread pointer, which glibc stores at the address that it points to.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    };
    LOCAL.with(|local| core::ptr::from_ref(&local.zero) as usize).wrapping_sub(pointer)
}

/// Added to the ids of threads to which the kernel refuses theirs: the kernel never gives such an id.
const REFUSED: u32 = 1 << 31;

/// The thread's kernel id. In a forked child the thread asks again. If a sandbox refuses the call, a number that no
/// other thread of the process has.
#[inline]
pub fn id() -> u32 {
    LOCAL.with(|local| {
        let known = local.id.load(Relaxed);
        if (known >> 32) as u32 == epoch::current() { known as u32 } else { ask_id() }
    })
}

#[cold]
fn ask_id() -> u32 {
    // The epoch first: if a signal handler forks before the store, the child stores an epoch of the past, and asks
    // again.
    let epoch = epoch::current();
    let id = known_or_place(sys::gettid());
    LOCAL.with(|local| local.id.store(u64::from(epoch) << 32 | u64::from(id), Relaxed));
    id
}

fn known_or_place(id: Option<u32>) -> u32 {
    id.unwrap_or_else(|| REFUSED | place())
}

/// What the thread has learned about the time that a line's transfer takes; 0 at first.
pub(crate) fn transfer() -> u32 {
    LOCAL.with(|local| local.transfer.get())
}

/// Stores what [`transfer`] returns.
pub(crate) fn set_transfer(ticks: u32) {
    LOCAL.with(|local| local.transfer.set(ticks));
}

/// Whether the thread is in a function of glibc's that takes or releases a *proxy*, a mutex that stands for another. A
/// signal handler that asks this has interrupted such a function.
pub fn is_in_proxy() -> bool {
    LOCAL.with(|local| local.is_in_proxy.get())
}

/// Stores what [`is_in_proxy`] returns. Returns what it returned before.
pub fn set_in_proxy(is_in: bool) -> bool {
    LOCAL.with(|local| local.is_in_proxy.replace(is_in))
}

/// What the thread has learned about contention.
pub(crate) fn contention() -> Contention {
    LOCAL.with(|local| local.contention.get())
}

/// Stores what [`contention`] returns.
pub(crate) fn set_contention(learned: Contention) {
    LOCAL.with(|local| local.contention.set(learned));
}

/// The thread's number, in the order in which threads came here, from 0.
pub fn place() -> u32 {
    LOCAL.with(|local| {
        if local.place.get() == 0 {
            local.place.set(PLACES.fetch_add(1, Relaxed).wrapping_add(1).max(1));
        }
        local.place.get() - 1
    })
}

/// How strongly the scheduler prefers the thread. The kernel is asked once; later changes are not noticed.
pub(crate) fn priority() -> i32 {
    LOCAL.with(|local| {
        if !local.has_priority.get() {
            local.priority.set(sys::priority());
            local.has_priority.set(true);
        }
        local.priority.get()
    })
}

/// Passes a value that the thread keeps for a lock algorithm to `act`.
pub(crate) fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
    LOCAL.with(|local| act(&local.kept[which as usize]))
}

/// A pseudo-random number (Marsaglia's xorshift, 32 bits).
pub fn random() -> u32 {
    LOCAL.with(|local| {
        let mut x = local.random.get();
        if x == 0 {
            // The address of its storage distinguishes the thread from others, without asking the kernel.
            let here = core::ptr::from_ref(local) as usize >> 6;
            x = (clock::now() as u32 ^ (here as u32).wrapping_mul(0x9e37_79b9)) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        local.random.set(x);
        x
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For threads whose storage is at equal distances: stacks of 16 KiB to 8 MiB, with their guard pages.
    #[test]
    fn threads_of_one_size_hardly_ever_have_one_line() {
        for stack in (14..=23).map(|power| 1 << power) {
            for guard in [0, 1, 2, 16].map(|pages| pages * 4096) {
                let mut lines: Vec<usize> = (0..100).map(|n| line_of(0x7f31_2a40_06c0 - n * (stack + guard))).collect();
                lines.sort_unstable();
                lines.dedup();
                let apart = lines.len();
                assert!(apart >= 80, "100 threads of {stack} + {guard} bytes have {apart} lines");
            }
        }
    }

    #[test]
    fn ids_are_the_kernels_or_else_unlike_any_of_them() {
        assert_eq!((id(), id()), (sys::gettid().unwrap(), sys::gettid().unwrap()));
        assert_eq!(known_or_place(Some(17)), 17);
        let (here, there) = (known_or_place(None), std::thread::spawn(|| known_or_place(None)).join().unwrap());
        assert!(here != there && here >= REFUSED && there >= REFUSED);
    }

    #[test]
    fn places_are_dense_and_stable() {
        let here = place();
        assert_eq!(place(), here);
        assert_ne!(std::thread::spawn(place).join().unwrap(), here);
    }
}
