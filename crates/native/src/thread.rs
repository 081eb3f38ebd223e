//! # What each thread keeps
//!
//! [Thread-local storage](crate::local) without destructors, and nothing in it that would have to be given back when
//! the thread ends. To learn of that end one needs a thread-specific key, of which the program has a limited number
//! for itself; or a destructor, which the C library allocates for, and a malloc built on our mutexes would call back
//! here. Neither runs for a lock that is used in the last destructor of all.
//!
//! So the node that a thread keeps for its next wait lies outside of it, on one of [`SPARES`] lines, which the
//! address of the thread's storage chooses. A thread that ends leaves its node there, and the C library gives its
//! memory, and so its line, to a thread that comes later. Two threads may have one line: then one of them may have to
//! go to the pool. So there are as many nodes as were ever needed at once, and [`LINES`] at most, or one for each
//! place where a thread's storage was; and when the pool would have to map memory, what lies on the lines comes first
//! ([`reclaim`]).

use core::cell::Cell;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

use flashlock_locks::machine::{Handle, Local as Kept, Word};
use flashlock_locks::wait::polling::Contention;

use crate::local::zeroed_per_thread;
use crate::machine::Word32;
use crate::{clock, epoch, pool, sys};

/// All-zero at first: see [`local`](crate::local).
struct Local {
    /// The thread's id (low half) and the epoch in which it was asked for. One word: a signal handler that asks, too,
    /// must not come between the two.
    id: AtomicU64,
    random: Cell<u32>,
    contention: Cell<Contention>,
    /// [`evidence`](crate::evidence): what a line's transfer took, in ticks.
    transfer: Cell<u32>,
    /// One more than the thread's place in the order in which threads came here; 0 if it has none.
    place: Cell<u32>,
    /// [`sys::priority`], once it was asked for.
    priority: Cell<i32>,
    /// Whether it was.
    has_priority: Cell<bool>,
    /// What lock algorithms keep.
    kept: [Cell<u32>; Kept::COUNT],
    /// Stays 0.
    zero: AtomicU32,
}

zeroed_per_thread! {
    static LOCAL: Local = "flashlock_native_thread";
}

static PLACES: AtomicU32 = AtomicU32::new(0);

/// How many lines there are.
const LINES: usize = 1024;

/// A free node, kept for a next wait.
#[repr(align(64))]
struct Spare(Word32);

static SPARES: [Spare; LINES] = [const { Spare(Word32(AtomicU32::new(0))) }; LINES];

/// The calling thread's line.
#[inline]
fn spare() -> &'static Word32 {
    &SPARES[line_of(LOCAL.with(|local| core::ptr::from_ref(local) as u64))].0
}

/// The line of the thread whose storage is at that address. Fibonacci hashing: storage lies at equal distances, as a
/// rule, and then hardly any two threads have one line.
#[inline]
const fn line_of(storage: u64) -> usize {
    ((storage >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - LINES.ilog2())) as usize
}

/// A node for the calling thread.
pub fn take_node() -> Handle {
    // AcqRel here and below: another thread may have put it there, or may take it. As the pool's.
    Handle::from_word(spare().swap(0, AcqRel)).unwrap_or_else(pool::take)
}

/// Takes a node back, for the calling thread's next wait or into the pool.
pub fn give_node(handle: Handle) {
    if let Some(surplus) = Handle::from_word(spare().swap(handle.word(), AcqRel)) {
        pool::give(surplus);
    }
}

/// What lies on a line.
fn take_from(spare: &Spare) -> Option<Handle> {
    let is_empty = spare.0.load(Relaxed) == 0;
    if is_empty { None } else { Handle::from_word(spare.0.swap(0, AcqRel)) }
}

/// A node from any line.
pub(crate) fn reclaim() -> Option<Handle> {
    SPARES.iter().find_map(take_from)
}

/// When this copy of the code is unloaded, or the process ends: the lines are this copy's, the pool is not. A thread
/// that runs on still finds nodes there.
extern "C" fn give_back() {
    SPARES.iter().filter_map(take_from).for_each(pool::give);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static GIVE_BACK: extern "C" fn() = give_back;

/// How far from the thread pointer each thread has a zero.
#[cfg(target_arch = "x86_64")]
pub(crate) fn zero_at() -> usize {
    let pointer: usize;
    // SAFETY: reads the thread pointer, which glibc keeps at itself.
    unsafe {
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    };
    LOCAL.with(|local| core::ptr::from_ref(&local.zero) as usize).wrapping_sub(pointer)
}

/// Ids that the kernel never gives: for threads that it refuses theirs.
const REFUSED: u32 = 1 << 31;

/// The thread's kernel id. A forked child's thread asks anew. In a sandbox where that fails, another number that no
/// thread of the process shares.
#[inline]
pub fn id() -> u32 {
    LOCAL.with(|local| {
        let known = local.id.load(Relaxed);
        if (known >> 32) as u32 == epoch::current() { known as u32 } else { ask_id() }
    })
}

#[cold]
fn ask_id() -> u32 {
    let id = known_or_place(sys::gettid());
    LOCAL.with(|local| local.id.store(u64::from(epoch::current()) << 32 | u64::from(id), Relaxed));
    id
}

fn known_or_place(id: Option<u32>) -> u32 {
    id.unwrap_or_else(|| REFUSED | place())
}

/// What the thread has learned of the time that a line's transfer takes; 0 at first.
pub(crate) fn transfer() -> u32 {
    LOCAL.with(|local| local.transfer.get())
}

/// Remembers it.
pub(crate) fn set_transfer(ticks: u32) {
    LOCAL.with(|local| local.transfer.set(ticks));
}

/// What the thread has learned of contention.
pub(crate) fn contention() -> Contention {
    LOCAL.with(|local| local.contention.get())
}

/// Remembers it.
pub(crate) fn set_contention(learned: Contention) {
    LOCAL.with(|local| local.contention.set(learned));
}

/// The thread's place in the order in which threads came here, from 0.
pub fn place() -> u32 {
    LOCAL.with(|local| {
        if local.place.get() == 0 {
            local.place.set(PLACES.fetch_add(1, Relaxed).wrapping_add(1).max(1));
        }
        local.place.get() - 1
    })
}

/// How much the scheduler prefers the thread. The kernel is asked once; a change after that is not noticed.
pub(crate) fn priority() -> i32 {
    LOCAL.with(|local| {
        if !local.has_priority.get() {
            local.priority.set(sys::priority());
            local.has_priority.set(true);
        }
        local.priority.get()
    })
}

/// What the thread keeps for a lock algorithm.
pub(crate) fn kept(which: Kept) -> u32 {
    LOCAL.with(|local| local.kept[which as usize].get())
}

/// Keeps it.
pub(crate) fn keep(which: Kept, value: u32) {
    LOCAL.with(|local| local.kept[which as usize].set(value));
}

/// A pseudo-random number (Marsaglia's xorshift, 32 bits).
pub fn random() -> u32 {
    LOCAL.with(|local| {
        let mut x = local.random.get();
        if x == 0 {
            // Where the thread's own things lie tells it from the others, without asking the kernel.
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

    /// Of threads whose storage lies at equal distances: stacks of 16 KiB to 8 MiB, with their guard pages.
    #[test]
    fn threads_of_one_size_hardly_ever_have_one_line() {
        for stack in (14..=23).map(|power| 1 << power) {
            for guard in [0, 1, 2, 16].map(|pages| pages * 4096) {
                let mut lines: Vec<usize> = (0..100).map(|n| line_of(0x7f31_2a40_06c0 - n * (stack + guard))).collect();
                lines.sort_unstable();
                lines.dedup();
                let apart = lines.len();
                assert!(apart >= 90, "100 threads of {stack} + {guard} bytes have {apart} lines");
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
