//! # What each thread keeps
//!
//! [Thread-local storage](crate::local) without destructors: a destructor would register itself with the C library at first use,
//! which allocates, and a malloc built on our mutexes would call back here. A thread-specific-data key, which registers without
//! allocating as long as it is among the first 32, returns the thread's node when the thread ends; if locks are used
//! later still, in other keys' destructors, the key is set anew and its destructor runs again.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use flashlock_locks::machine::{Handle, Local as Kept};
use flashlock_locks::wait::polling::Contention;

use crate::local::zeroed_per_thread;
use crate::{clock, epoch, pool, sys};

/// All-zero at first: see [`local`](crate::local).
struct Local {
    /// A free node, kept for the next wait. An atomic, so that a signal handler may take and give one, too.
    spare: AtomicU32,
    /// The thread's id (low half) and the epoch in which it was asked for. One word: a signal handler that asks, too, must not come
    /// between the two.
    id: AtomicU64,
    random: Cell<u32>,
    contention: Cell<Contention>,
    /// One more than the thread's place in the order in which threads came here; 0 if it has none.
    place: Cell<u32>,
    /// [`sys::priority`], once it was asked for.
    priority: Cell<i32>,
    /// Whether it was.
    has_priority: Cell<bool>,
    /// What lock algorithms keep.
    kept: [Cell<u32>; Kept::COUNT],
}

zeroed_per_thread! {
    static LOCAL: Local = "flashlock_native_thread";
}

static PLACES: AtomicU32 = AtomicU32::new(0);
/// The key, plus one; 0 while there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
const NO_KEY: u32 = u32::MAX;

/// A node for the calling thread.
pub fn take_node() -> Handle {
    let spare = LOCAL.with(|local| local.spare.swap(0, Relaxed));
    Handle::from_word(spare).unwrap_or_else(pool::take)
}

/// Takes a node back, for the calling thread's next wait or into the pool.
pub fn give_node(handle: Handle) {
    let before = LOCAL.with(|local| local.spare.swap(handle.word(), Relaxed));
    match Handle::from_word(before) {
        Some(surplus) => pool::give(surplus),
        None => watch_exit(),
    }
}

/// Ids that the kernel never gives: for threads that it refuses theirs.
const REFUSED: u32 = 1 << 31;

/// The thread's kernel id. A forked child's thread asks anew. In a sandbox where that fails, another number that no thread of the
/// process shares.
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

/// Makes the key. Called early, so that the key is among those that need no allocation.
pub fn prepare() {
    if KEY.load(Acquire) != 0 {
        return;
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is writable, the destructor has the right type.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(at_exit)) } == 0;
    let new = if made { key + 1 } else { NO_KEY };
    if KEY.compare_exchange(0, new, AcqRel, Relaxed).is_err() && made {
        // SAFETY: made just now; nobody uses it.
        unsafe { libc::pthread_key_delete(key) };
    }
}

/// Sees to it that `at_exit` runs when the thread ends.
fn watch_exit() {
    prepare();
    let key = KEY.load(Acquire);
    if key != NO_KEY {
        // SAFETY: the key exists. The value only has to be non-null.
        unsafe { libc::pthread_setspecific(key - 1, NonNull::<c_void>::dangling().as_ptr()) };
    }
}

/// When this copy of the code is unloaded, or the process ends: `at_exit` must not be called any more. A node that a thread
/// keeps in this copy's storage is lost: one for each thread, at most.
extern "C" fn forget_exit() {
    if let Some(key) = KEY.swap(NO_KEY, AcqRel).checked_sub(1).filter(|&key| key != NO_KEY - 1) {
        // SAFETY: the key exists, and nobody else deletes it.
        unsafe { libc::pthread_key_delete(key) };
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FORGET_EXIT: extern "C" fn() = forget_exit;

extern "C" fn at_exit(_: *mut c_void) {
    let spare = LOCAL.with(|local| local.spare.swap(0, Relaxed));
    if let Some(handle) = Handle::from_word(spare) {
        pool::give(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_end_return_their_nodes() {
        for _ in 0..2_000 {
            std::thread::spawn(|| give_node(take_node())).join().unwrap();
        }
        assert!(pool::size() < 1_000, "{} nodes after 2,000 threads, one after the other", pool::size());
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
