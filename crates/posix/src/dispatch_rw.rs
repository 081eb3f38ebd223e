//! # Dispatch: from the exported function to the chosen readers-writer lock
//!
//! Each exported readers-writer function jumps through [`table`] to the chosen lock. This is the other half of
//! [`dispatch`](crate::dispatch), and works like it: mutexes and readers-writer locks are chosen separately.

use core::ffi::c_int;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use flashlock_locks::catalogue::rw::{RW_DEFAULT, RwId};
use flashlock_locks::for_each_rw_lock;
use flashlock_locks::machine::{Machine, Tunables};
use flashlock_locks::rw::RawRwLock;
use flashlock_native::settings::{self, RwChoice};
#[cfg(feature = "stats")]
use flashlock_native::{Counting, stats};
use flashlock_native::{Native, NoStats, Word32, sys};
use libc::{clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};

use crate::dispatch::{UNREADABLE, choices, is_busted, stats_fd};
use crate::table::define_table;
#[cfg(feature = "stats")]
use crate::watch;
use crate::{environment, glibc, layout, rwlock};

define_table! {
    RawRwLock, resolve;
    rwlock_init(l: *mut pthread_rwlock_t, a: *const pthread_rwlockattr_t)
        = rwlock::init::<M>, glibc::pthread_rwlock_init, rwlock::init::<Native<Counting>>, makes RwLock l;
    rwlock_rdlock(l: *mut pthread_rwlock_t)
        = rwlock::rdlock::<L, M>, glibc::pthread_rwlock_rdlock, watch::rdlock, takes Read l;
    rwlock_tryrdlock(l: *mut pthread_rwlock_t)
        = rwlock::tryrdlock::<L, M>, glibc::pthread_rwlock_tryrdlock, watch::tryrdlock, takes Read l;
    rwlock_timedrdlock(l: *mut pthread_rwlock_t, t: *const timespec)
        = rwlock::timedrdlock::<L, M>, glibc::pthread_rwlock_timedrdlock, watch::timedrdlock, takes Read l;
    rwlock_clockrdlock(l: *mut pthread_rwlock_t, c: clockid_t, t: *const timespec)
        = rwlock::clockrdlock::<L, M>, glibc::pthread_rwlock_clockrdlock, watch::clockrdlock, takes Read l;
    rwlock_wrlock(l: *mut pthread_rwlock_t)
        = rwlock::wrlock::<L, M>, glibc::pthread_rwlock_wrlock, watch::wrlock, takes Write l;
    rwlock_trywrlock(l: *mut pthread_rwlock_t)
        = rwlock::trywrlock::<L, M>, glibc::pthread_rwlock_trywrlock, watch::trywrlock, takes Write l;
    rwlock_timedwrlock(l: *mut pthread_rwlock_t, t: *const timespec)
        = rwlock::timedwrlock::<L, M>, glibc::pthread_rwlock_timedwrlock, watch::timedwrlock, takes Write l;
    rwlock_clockwrlock(l: *mut pthread_rwlock_t, c: clockid_t, t: *const timespec)
        = rwlock::clockwrlock::<L, M>, glibc::pthread_rwlock_clockwrlock, watch::clockwrlock, takes Write l;
    rwlock_unlock(l: *mut pthread_rwlock_t)
        = rwlock::unlock::<L, M>, glibc::pthread_rwlock_unlock, watch::rwlock_unlock, plain;
    rwlock_destroy(l: *mut pthread_rwlock_t)
        = rwlock::destroy::<L, M>, glibc::pthread_rwlock_destroy, real::rwlock_destroy, plain;
}

macro_rules! define_choosers {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The table for a choice. The order of each list is that of `RwInfo::waits`.
        #[inline(never)]
        fn plain(choice: RwChoice) -> &'static Table {
            match choice.lock {
                $(RwId::$variant => {
                    const LIST: &[&Table] = &[$(&Table::of::<$type, Native<NoStats>>()),+];
                    LIST[choice.wait % LIST.len()]
                })*
            }
        }

        /// The same, with counters.
        #[cfg(feature = "stats")]
        #[inline(never)]
        fn counting(choice: RwChoice) -> &'static Table {
            match choice.lock {
                $(RwId::$variant => {
                    const LIST: &[&Table] = &[$(&Table::counting::<$type, Native<Counting>>()),+];
                    LIST[choice.wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_rw_lock!(define_choosers);

/// Reads the settings and installs the table; see [`dispatch`](crate::dispatch).
#[cold]
fn resolve() -> &'static Table {
    let rw_value = environment::value(settings::ENV_RW);
    let choice = choices(environment::value(settings::ENV).as_ref(), rw_value.as_ref()).rw;
    let text = rw_value.as_ref().and_then(|value| value.text().ok()).unwrap_or("");
    install(choose(text, if layout::prepare() { choice } else { None }, stats_fd()))
}

/// The table for a choice; without a choice, the table of glibc's own lock.
fn choose(_wanted: &str, choice: Option<RwChoice>, _stats: Option<i32>) -> &'static Table {
    #[cfg(feature = "busted")]
    if is_busted(_wanted) && choice.is_some() {
        return const { &Table::of::<flashlock_busted::BustedRw, Native<NoStats>>() };
    }
    #[cfg(feature = "stats")]
    if _stats.is_some_and(stats::attach) {
        return choice.map_or(&WATCHED, counting);
    }
    choice.map_or(&GLIBC, plain)
}

/// Resolves at load time, unless that has been done.
pub(crate) fn resolve_early() {
    if core::ptr::eq(table(), &raw const FIRST) {
        resolve();
    }
}

/// Reports an error in the choice, once: processes that inherit the variable find it empty.
pub(crate) fn report_lock() {
    let Some(value) = environment::value(settings::ENV_RW) else { return };
    let name = settings::ENV_RW.as_bytes();
    match value.text() {
        Ok(text) if text == settings::GLIBC || is_busted(text) => return,
        Ok(text) => match settings::parse(text, Tunables::DEFAULT).and_then(RwChoice::here) {
            Ok(_) => return,
            Err(bad) => {
                sys::warn(&[b"flashlock: ", name, b": "]);
                bad.explain(&[settings::GLIBC], &mut |part| sys::warn(&[part.as_bytes()]));
            }
        },
        Err(_) => sys::warn(&[b"flashlock: ", name, UNREADABLE]),
    }
    sys::warn_line(&[b"; using the default lock, ", RW_DEFAULT.info().name.as_bytes()]);
    value.forget();
}
