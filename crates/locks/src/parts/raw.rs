//! # What all locks have in common
//!
//! A lock is a type without values: its state is a word and a [`RawLock::Queue`], passed by reference. They may lie
//! apart, as in a `pthread_mutex_t`. All-zero state is a free lock. [`Raw`] is a lock with its state, for those who
//! need not say where that lies.
//!
//! An unlock of a free lock does nothing, as with glibc. An unlock of a lock that another thread holds is that thread's
//! release, unless the holder releases it at the same moment.
//!
//! ## Why the functions are unsafe
//!
//! A lock's state may name queue nodes, which all locks share. If the state is not what the lock has made of it, or if
//! two threads release the lock at once while others wait for it, the lock may write to a node that serves in the queue
//! of another lock by then. That lock may let two threads in, or run a request twice. So whoever calls these functions
//! has a **contract** to keep:
//!
//! 1. **State.** The word and the queue belong together, were free at first, and since then only this lock's functions
//!    have changed them, on this machine. (While code that bypasses us holds a lock with a [`RawLock::GLIBC_WORD`], it
//!    may change the word as glibc's functions do.) They exist until the last call has returned that uses them, except
//!    that a thread that holds the lock may free it after its release, as POSIX allows.
//! 2. **Release.** A thread releases the lock only if it holds the lock, or acts for its holder, which does not release
//!    it then. POSIX leaves everything else undefined. To make it harmless, each release would need one more exchange.
//!
//! Callers need nothing else for memory to stay intact. Any thread may call any of the other functions at any time.
//! What the authors of locks promise is with [`RawLock`].

use core::marker::PhantomData;

use crate::machine::event::Event;
use crate::machine::{ConstWord, Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::adoption::Chain;
use crate::parts::counted::about;
use crate::parts::zeroed::{ConstZeroed, Zeroed};

/// A mutual exclusion lock.
///
/// | a lock defines | its users call |
/// |---|---|
/// | [`try_acquire`](RawLock::try_acquire) | [`try_lock`](RawLock::try_lock) |
/// | [`acquire`](RawLock::acquire) | [`lock`](RawLock::lock), [`lock_until`](RawLock::lock_until) |
/// | [`acquire_woken`](RawLock::acquire_woken), or not | [`lock_woken`](RawLock::lock_woken) |
/// | [`release`](RawLock::release) | [`unlock`](RawLock::unlock) |
/// | [`take_over`](RawLock::take_over) | [`adopt`](RawLock::adopt) |
/// | [`acquire_adopted`](RawLock::acquire_adopted) | [`lock_adopted`](RawLock::lock_adopted) |
/// | the other functions | the same |
///
/// The functions on the right count acquisitions, say which lock events are about, and call those on the left. No lock
/// overrides them. Only a lock that is part of another lock, which counts for both, is called by the functions on the
/// left.
///
/// # Safety
/// While its callers keep the [contract](self), it does with the nodes and blocks that it takes or is passed only what
/// the invariants on its page, and on those of the parts that it is made of, allow. (A lock without nodes and blocks
/// has nothing to keep.) If it [`EXCLUDES`](RawLock::EXCLUDES), one thread at a time holds the lock, and sees what the
/// holders before it wrote.
pub unsafe trait RawLock<M: Machine>: 'static {
    /// Whether it may protect data. `null` does not.
    const EXCLUDES: bool = true;

    /// The second piece of its state; all-zero is free. `()` if the lock is only the word.
    type Queue: Zeroed;

    /// Whether the word follows the protocol of glibc's default mutex (0 free, 1 held, 2 held and a thread sleeps on
    /// it). Then code that bypasses us and runs glibc's functions on the same mutex excludes other threads, sleeps, and
    /// is woken.
    const GLIBC_WORD: bool = false;

    /// At most so many waiters of a broadcast by the lock's holder are all woken when it releases the lock. More are
    /// [moved](RawLock::adopt), and so are two or more where that costs no call of the kernel.
    const FEW: u32 = 1;

    /// As what an acquisition is counted.
    const ACQUIRED: Event = Event::Acquire;

    /// [`RawLock::try_lock`], not counted.
    ///
    /// # Safety
    /// The [contract](self), 1.
    unsafe fn try_acquire(word: &M::Word, queue: &Self::Queue) -> bool;

    /// [`RawLock::lock_until`], not counted. Without a deadline, it waits until it has acquired the lock.
    ///
    /// Its first attempt is inlined into its callers. The wait is a function of its own, and
    /// [`contended`](crate::parts::counted::contended) counts it. The deadline is a reference, because an `Option` of a
    /// deadline would be stored before the first attempt.
    ///
    /// # Safety
    /// The [contract](self), 1.
    unsafe fn acquire(word: &M::Word, queue: &Self::Queue, until: Option<&Deadline>) -> Result<(), TimedOut>;

    /// [`RawLock::lock_woken`], not counted.
    ///
    /// # Safety
    /// The [contract](self), 1.
    #[inline]
    unsafe fn acquire_woken(word: &M::Word, queue: &Self::Queue) {
        // SAFETY: the callers' promise. Without a deadline it cannot time out.
        let _ = unsafe { Self::acquire(word, queue, None) };
    }

    /// [`RawLock::unlock`], without saying which lock it is.
    ///
    /// # Safety
    /// That of [`RawLock::unlock`].
    unsafe fn release(word: &M::Word, queue: &Self::Queue);

    /// Whether a thread holds the lock, or did a moment ago.
    ///
    /// # Safety
    /// The [contract](self), 1.
    unsafe fn is_locked(word: &M::Word, queue: &Self::Queue) -> bool;

    /// [`RawLock::adopt`], without saying which lock it is. A lock without a queue for sleepers lets the waiters go one
    /// after another. A lock touches its own state only as long as the chain's first waiter cannot go on: the mutex
    /// exists as long as a thread has yet to acquire it.
    ///
    /// # Safety
    /// The [contract](self), 1.
    unsafe fn take_over(_word: &M::Word, _queue: &Self::Queue, chain: Chain) {
        chain.hand_over_hand::<M>();
    }

    /// [`RawLock::lock_adopted`], not counted.
    ///
    /// # Safety
    /// That of [`RawLock::lock_adopted`].
    unsafe fn acquire_adopted(_word: &M::Word, _queue: &Self::Queue, _node: Handle) {
        unreachable!("this lock moves nobody")
    }

    /// Gives back what the lock owns beside its state.
    ///
    /// # Safety
    /// The [contract](self), 1. The lock is free, and no thread uses it any more, until it is made anew.
    unsafe fn destroy(_word: &M::Word, _queue: &Self::Queue) {}

    /// Acquires the lock if that is possible at once.
    ///
    /// # Safety
    /// The [contract](self), 1.
    #[inline]
    unsafe fn try_lock(word: &M::Word, queue: &Self::Queue) -> bool {
        about::<M, _, _>(word, || {
            // SAFETY: the callers' promise.
            let taken = unsafe { Self::try_acquire(word, queue) };
            if taken {
                M::trace(Self::ACQUIRED);
            }
            taken
        })
    }

    /// Acquires the lock.
    ///
    /// # Safety
    /// The [contract](self), 1.
    #[inline]
    unsafe fn lock(word: &M::Word, queue: &Self::Queue) {
        about::<M, _, _>(word, || {
            M::trace(Self::ACQUIRED); // Before, so that nothing is left to do afterwards.
            // SAFETY: the callers' promise. Without a deadline it cannot time out.
            let _ = unsafe { Self::acquire(word, queue, None) };
        });
    }

    /// Acquires the lock, or gives up when the deadline has passed. A free lock is acquired even after the deadline.
    ///
    /// # Safety
    /// The [contract](self), 1.
    #[inline]
    unsafe fn lock_until(word: &M::Word, queue: &Self::Queue, until: Deadline) -> Result<(), TimedOut> {
        about::<M, _, _>(word, || {
            // SAFETY: the callers' promise.
            unsafe { Self::acquire(word, queue, Some(&until)) }?;
            M::trace(Self::ACQUIRED);
            Ok(())
        })
    }

    /// Acquires the lock for a thread that a condition variable's signal has just woken. If the lock is held, probably
    /// the thread that gave the signal holds it. It may be on this very CPU, where the woken thread has preempted it.
    ///
    /// # Safety
    /// The [contract](self), 1.
    #[inline]
    unsafe fn lock_woken(word: &M::Word, queue: &Self::Queue) {
        about::<M, _, _>(word, || {
            M::trace(Self::ACQUIRED);
            // SAFETY: the callers' promise.
            unsafe { Self::acquire_woken(word, queue) }
        });
    }

    /// Releases the lock. After the store that lets another thread in, nothing of the lock is accessed.
    ///
    /// # Safety
    /// The [contract](self), 1 and 2. Or the lock is free; then nothing happens.
    #[inline]
    unsafe fn unlock(word: &M::Word, queue: &Self::Queue) {
        // SAFETY: the callers' promise.
        about::<M, _, _>(word, || unsafe { Self::release(word, queue) });
    }

    /// Takes over the waiters of a broadcast. The caller need not hold the lock. The waiters sleep. The lock puts them
    /// into its queue, where they are woken in their turn; each of them ends with [`RawLock::lock_adopted`].
    ///
    /// # Safety
    /// The [contract](self), 1.
    #[inline]
    unsafe fn adopt(word: &M::Word, queue: &Self::Queue, chain: Chain) {
        // SAFETY: the callers' promise.
        about::<M, _, _>(word, || unsafe { Self::take_over(word, queue, chain) });
    }

    /// Waits until the calling thread, whose own node [`RawLock::adopt`] has moved, has acquired the lock. From then on
    /// the node belongs to the lock.
    ///
    /// # Safety
    /// The [contract](self), 1. The lock has adopted the node, the calling thread queued it, and this is the only call
    /// for it.
    #[inline]
    unsafe fn lock_adopted(word: &M::Word, queue: &Self::Queue, node: Handle) {
        about::<M, _, _>(word, || {
            M::trace(Self::ACQUIRED);
            // SAFETY: the callers' promise.
            unsafe { Self::acquire_adopted(word, queue, node) }
        });
    }
}

/// A lock whose state is its queue alone, so that it can stand inside another lock.
///
/// # Safety
/// [`Inner::forget`] leaves no node of another process in the queue.
pub unsafe trait Inner<M: Machine>: RawLock<M> {
    /// Makes the lock free, without waiters.
    ///
    /// # Safety
    /// The [contract](self), 1. The caller is the thread that settles in a forked child: no other uses the lock.
    unsafe fn forget(queue: &Self::Queue);
}

/// A lock with its state: `L` on the machine `M`. It keeps part 1 of the [contract](self), since nothing else has
/// access to its state. The release is left to its user.
pub struct Raw<M: Machine, L: RawLock<M>> {
    word: M::Word,
    queue: L::Queue,
    lock: PhantomData<fn() -> L>,
}

impl<M: Machine, L: RawLock<M>> Raw<M, L> {
    /// A free lock.
    pub fn new() -> Self {
        Self { word: M::Word::new(0), queue: Zeroed::zeroed(), lock: PhantomData }
    }

    /// Acquires the lock.
    #[inline]
    pub fn lock(&self) {
        // SAFETY: contract 1: the state is private, was free at first, and exists as long as this borrow.
        unsafe { L::lock(&self.word, &self.queue) }
    }

    /// Acquires the lock if that is possible at once.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // SAFETY: as in `lock`.
        unsafe { L::try_lock(&self.word, &self.queue) }
    }

    /// Acquires the lock, or gives up when the deadline has passed. A free lock is acquired even after the deadline.
    #[inline]
    pub fn lock_until(&self, until: Deadline) -> Result<(), TimedOut> {
        // SAFETY: as in `lock`.
        unsafe { L::lock_until(&self.word, &self.queue, until) }
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// Part 2 of the [contract](self).
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: contract 1 as in `lock`; contract 2 is the callers' promise.
        unsafe { L::unlock(&self.word, &self.queue) }
    }

    /// Whether a thread holds the lock, or did a moment ago.
    pub fn is_locked(&self) -> bool {
        // SAFETY: as in `lock`.
        unsafe { L::is_locked(&self.word, &self.queue) }
    }
}

impl<M: Machine<Word: ConstWord>, L: RawLock<M, Queue: ConstZeroed>> Raw<M, L> {
    /// A free lock, for statics.
    pub const FREE: Self = Self { word: ConstZeroed::ZERO, queue: ConstZeroed::ZERO, lock: PhantomData };
}

impl<M: Machine, L: RawLock<M>> Default for Raw<M, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine, L: RawLock<M>> Drop for Raw<M, L> {
    fn drop(&mut self) {
        // A lock that is dropped while a thread that is gone holds it keeps its side blocks.
        if !self.is_locked() {
            // SAFETY: contract 1 as in `lock`. It is free, and `&mut` excludes all others.
            unsafe { L::destroy(&self.word, &self.queue) }
        }
    }
}

/// Defines functions of a [`RawLock<$m>`](RawLock), of those that a lock defines, that do what those of the lock
/// `$lock` do: for a lock that differs from another one in few functions, such as a seeded bug.
#[macro_export]
macro_rules! same_as {
    ($m:ty, $lock:ty: $($name:ident)*) => { $($crate::same_as!(@ $name $m, $lock);)* };
    (@ try_acquire $m:ty, $lock:ty) => { $crate::same_as!(@@ $m, $lock, RawLock, try_acquire() -> bool); };
    (@ acquire $m:ty, $lock:ty) => {
        $crate::same_as!(@@ $m, $lock, RawLock, acquire(until: Option<&$crate::machine::Deadline>)
            -> Result<(), $crate::machine::TimedOut>);
    };
    (@ release $m:ty, $lock:ty) => { $crate::same_as!(@@ $m, $lock, RawLock, release() -> ()); };
    (@ is_locked $m:ty, $lock:ty) => { $crate::same_as!(@@ $m, $lock, RawLock, is_locked() -> bool); };
    (@ take_over $m:ty, $lock:ty) => {
        $crate::same_as!(@@ $m, $lock, RawLock, take_over(chain: $crate::parts::adoption::Chain) -> ());
    };
    (@ acquire_adopted $m:ty, $lock:ty) => {
        $crate::same_as!(@@ $m, $lock, RawLock, acquire_adopted(node: $crate::machine::Handle) -> ());
    };
    (@ destroy $m:ty, $lock:ty) => { $crate::same_as!(@@ $m, $lock, RawLock, destroy() -> ()); };
    (@@ $m:ty, $lock:ty, RawLock, $name:ident($($arg:ident: $type:ty)?) -> $result:ty) => {
        unsafe fn $name(
            word: &<$m as $crate::machine::Memory>::Word, queue: &Self::Queue, $($arg: $type)?
        ) -> $result {
            // SAFETY: the callers' promise.
            unsafe { <$lock as $crate::parts::raw::RawLock<$m>>::$name(word, queue, $($arg)?) }
        }
    };
}
