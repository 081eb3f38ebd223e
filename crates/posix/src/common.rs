//! # Functions that do not depend on the chosen lock
//!
//! Spinlocks and semaphores are the same whichever lock serves the mutexes. So they have tables of their own beside
//! those of [`dispatch`](crate::dispatch): one that counts, one that does not, and glibc's own, which go with glibc's
//! mutexes. The table is installed together with the mutexes' table.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use flashlock_locks::machine::Machine;
#[cfg(feature = "stats")]
use flashlock_native::Counting;
use flashlock_native::{Native, NoStats, Word32};
use libc::{clockid_t, pthread_spinlock_t, sem_t, timespec};

#[cfg(feature = "stats")]
use crate::watch;
use crate::{glibc, sem, spin};

macro_rules! define_common {
    ($($field:ident($($arg:ident: $type:ty),*) = $generic:expr, $real:path, $watched:expr,
       $role:ident $($what:ident $object:ident)?;)*) => {
        /// The functions that do not depend on the chosen lock.
        pub struct Common {
            $(
                #[doc = concat!("`", stringify!($field), "`, of pthreads or as it is")]
                pub $field: unsafe extern "C-unwind" fn($($type),*) -> c_int,
            )*
        }

        impl Common {
            const fn of<M: Machine<Word = Word32>>() -> Self {
                Self { $($field: $generic),* }
            }

            /// Like [`Self::of`], but the counters record the object of each call.
            #[cfg(feature = "stats")]
            const fn counting<M: Machine<Word = Word32>>() -> Self {
                Self { $($field: crate::table::counted!($role, $generic, counted::$field::<M>)),* }
            }
        }

        /// Used before the choice is known: find it out, then go on.
        mod first {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    crate::dispatch::settle();
                    // SAFETY: callers guarantee it.
                    unsafe { (common().$field)($($arg),*) }
                }
            )*
        }

        /// Leaves everything to glibc.
        mod real {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: callers guarantee it.
                    unsafe { $real($($arg),*) }
                }
            )*
        }

        crate::table::define_entries! {
            [<M: Machine<Word = Word32>>] [::<M>]
            $($field($($arg: $type),*) = $generic, $watched, $role $($what $object)?;)*
        }

        static FIRST: Common = Common { $($field: first::$field),* };
        static GLIBC: Common = Common { $($field: real::$field),* };
        #[cfg(feature = "stats")]
        static WATCHED: Common = Common { $($field: crate::table::counted!($role, $watched, watched::$field)),* };
    };
}

define_common! {
    spin_init(s: *mut pthread_spinlock_t, p: c_int)
        = spin::init, glibc::pthread_spin_init, real::spin_init, makes Spinlock s;
    spin_lock(s: *mut pthread_spinlock_t)
        = spin::lock::<M>, glibc::pthread_spin_lock, watch::spin_lock, takes Spinlock s;
    spin_trylock(s: *mut pthread_spinlock_t)
        = spin::trylock::<M>, glibc::pthread_spin_trylock, watch::spin_trylock, takes Spinlock s;
    spin_unlock(s: *mut pthread_spinlock_t)
        = spin::unlock::<M>, glibc::pthread_spin_unlock, real::spin_unlock, plain;
    spin_destroy(s: *mut pthread_spinlock_t)
        = spin::destroy, glibc::pthread_spin_destroy, real::spin_destroy, plain;
    sem_init(s: *mut sem_t, p: c_int, v: c_uint)
        = sem::init::<M>, glibc::sem_init, watch::sem_init, makes Semaphore s;
    sem_wait(s: *mut sem_t)
        = sem::wait::<M>, glibc::sem_wait, watch::sem_wait, takes Semaphore s;
    sem_trywait(s: *mut sem_t)
        = sem::trywait::<M>, glibc::sem_trywait, watch::sem_trywait, takes Semaphore s;
    sem_timedwait(s: *mut sem_t, t: *const timespec)
        = sem::timedwait::<M>, glibc::sem_timedwait, watch::sem_timedwait, takes Semaphore s;
    sem_clockwait(s: *mut sem_t, c: clockid_t, t: *const timespec)
        = sem::clockwait::<M>, glibc::sem_clockwait, watch::sem_clockwait, takes Semaphore s;
    sem_post(s: *mut sem_t)
        = sem::post::<M>, glibc::sem_post, watch::sem_post, plain;
    sem_getvalue(s: *mut sem_t, v: *mut c_int)
        = sem::getvalue::<M>, glibc::sem_getvalue, real::sem_getvalue, plain;
    sem_destroy(s: *mut sem_t)
        = sem::destroy::<M>, glibc::sem_destroy, real::sem_destroy, plain;
}

static PLAIN: Common = Common::of::<Native<NoStats>>();
#[cfg(feature = "stats")]
static COUNTING: Common = Common::counting::<Native<Counting>>();

static COMMON: AtomicPtr<Common> = AtomicPtr::new((&raw const FIRST).cast_mut());

/// The functions to call.
#[inline(always)]
pub fn common() -> &'static Common {
    // SAFETY: `COMMON` only ever points to statics.
    unsafe { &*crate::table::load_near!(COMMON) }
}

/// Which functions are called.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    /// glibc's: the user chose them, or their layout is unknown.
    Glibc,
    /// glibc's, with counters.
    #[cfg(feature = "stats")]
    Watched,
    /// Ours.
    Plain,
    /// Ours, with counters.
    #[cfg(feature = "stats")]
    Counting,
}

/// Installs the table. If several threads do so at once, the first wins.
pub(crate) fn install(whose: Whose) {
    let chosen: &'static Common = match whose {
        Whose::Glibc => &GLIBC,
        #[cfg(feature = "stats")]
        Whose::Watched => &WATCHED,
        Whose::Plain => &PLAIN,
        #[cfg(feature = "stats")]
        Whose::Counting => &COUNTING,
    };
    let first = (&raw const FIRST).cast_mut();
    // AcqRel, Acquire: publishes everything settled before with the table; pairs with the Acquire in `common` and here.
    let _ = COMMON.compare_exchange(first, core::ptr::from_ref(chosen).cast_mut(), AcqRel, Acquire);
}
