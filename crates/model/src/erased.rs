//! # A mutex whose lock's type is erased
//!
//! A model that is generic over the lock would be compiled for every lock. Most models use only a mutex's functions:
//! they take a [`Mutex`] and are compiled once. [`erased`] makes one from any lock. The lock is the same, and so are
//! its accesses: no schedule changes.

use std::marker::PhantomData;

use flashlock_locks::machine::block::Name;
use flashlock_locks::machine::{Deadline, Handle, TimedOut};
use flashlock_locks::parts::adoption::Chain;
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::zeroed::Zeroed;

use crate::Model;
use crate::checker::Checker;
use crate::harness;
use crate::tag::Tag;
use crate::word::Word;

/// Any lock. Only [`erased`] makes its state.
pub struct Erased<C>(PhantomData<fn() -> C>);

/// A mutex with any lock.
pub type Mutex<C> = harness::Mutex<C, Erased<C>>;

/// A free mutex with the lock `L`.
pub fn erased<C: Checker, L: RawLock<Model<C>, Queue: Tag + Send + Sync>>() -> Mutex<C> {
    harness::Mutex::with(|| Queue(Box::new(Of::<C, L>(Zeroed::zeroed()))))
}

/// The functions that a [`RawLock`] defines, for the lock whose queue this is.
///
/// # Safety of the functions
/// That of [`RawLock`]'s.
#[allow(clippy::missing_safety_doc)]
trait Functions<C: Checker>: Tag + Send + Sync {
    unsafe fn try_acquire(&self, word: &Word<C>) -> bool;
    unsafe fn acquire(&self, word: &Word<C>, until: Option<&Deadline>) -> Result<(), TimedOut>;
    unsafe fn acquire_woken(&self, word: &Word<C>);
    unsafe fn release(&self, word: &Word<C>);
    unsafe fn is_locked(&self, word: &Word<C>) -> bool;
    unsafe fn take_over(&self, word: &Word<C>, chain: Chain);
    unsafe fn acquire_adopted(&self, word: &Word<C>, node: Handle);
    unsafe fn destroy(&self, word: &Word<C>);
}

/// The queue of the lock `L`.
struct Of<C: Checker, L: RawLock<Model<C>>>(L::Queue);

/// The queue of any lock.
pub struct Queue<C>(Box<dyn Functions<C>>);

/// The tags of a queue are those of what it holds.
macro_rules! tags_within {
    ($([$($generic:tt)*] $type:ty;)*) => {
        $(impl<$($generic)*> Tag for $type {
            fn tag(&self) {
                self.0.tag();
            }

            fn free(&self) {
                self.0.free();
            }

            fn beside(&self) -> Vec<Name> {
                self.0.beside()
            }
        })*
    };
}

tags_within! {
    [C: Checker, L: RawLock<Model<C>, Queue: Tag>] Of<C, L>;
    [C: Checker] Queue<C>;
}

impl<C: Checker> Zeroed for Queue<C> {
    fn zeroed() -> Self {
        unreachable!("`erased` makes the queue")
    }
}

/// Passes each of these functions on.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty)?) -> $result:ty;)*) => {
        impl<C: Checker, L: RawLock<Model<C>, Queue: Tag + Send + Sync>> Functions<C> for Of<C, L> {
            $(unsafe fn $name(&self, word: &Word<C>, $($argument: $type)?) -> $result {
                // SAFETY: the callers' promise.
                unsafe { L::$name(word, &self.0, $($argument)?) }
            })*
        }

        // SAFETY: that of the lock it stands for.
        unsafe impl<C: Checker> RawLock<Model<C>> for Erased<C> {
            type Queue = Queue<C>;

            $(unsafe fn $name(word: &Word<C>, queue: &Queue<C>, $($argument: $type)?) -> $result {
                // SAFETY: the callers' promise.
                unsafe { queue.0.$name(word, $($argument)?) }
            })*
        }
    };
}

pass_on! {
    try_acquire() -> bool;
    acquire(until: Option<&Deadline>) -> Result<(), TimedOut>;
    acquire_woken() -> ();
    release() -> ();
    is_locked() -> bool;
    take_over(chain: Chain) -> ();
    acquire_adopted(node: Handle) -> ();
    destroy() -> ();
}
