//! # From the exported function to the chosen lock
//!
//! One table of functions per lock, waiting policy and (with the feature `stats`) listener, made from the catalogue. The exported
//! functions jump through [`table`]; at first that points to functions which read the settings, install the right table and
//! go on there. So a lock call costs one indirect jump, and nothing asks whether statistics are on.
//!
//! Resolution reads `environ` only: it allocates nothing and looks up no symbol, for it may run inside malloc, and before any
//! constructor. What wants more ([`init`]) waits for our constructor.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use flashlock_locks::catalogue::LockId;
use flashlock_locks::for_each_lock;
use flashlock_locks::machine::Machine;
use flashlock_locks::raw::RawLock;
#[cfg(feature = "stats")]
use flashlock_native::Counting;
use flashlock_native::settings::{self, Choice};
use flashlock_native::{Native, NoStats, Word32, clock, epoch, numa, spin, stats, sys, thread};
use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

use crate::{cond, glibc, layout, mutex};

macro_rules! define_table {
    ($($field:ident($($arg:ident: $type:ty),*) = $generic:expr, $real:path;)*) => {
        /// The functions of one lock.
        pub struct Table {
            $(
                #[doc = concat!("`pthread_", stringify!($field), "`")]
                pub $field: unsafe extern "C-unwind" fn($($type),*) -> c_int,
            )*
        }

        impl Table {
            const fn of<L: RawLock<M>, M: Machine<Word = Word32>>() -> Self {
                Self { $($field: $generic),* }
            }
        }

        /// Before anything is known: find out, then go on.
        mod first {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: the caller's.
                    unsafe { (resolve().$field)($($arg),*) }
                }
            )*
        }

        /// Everything to glibc.
        mod real {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: the caller's.
                    unsafe { $real($($arg),*) }
                }
            )*
        }

        static FIRST: Table = Table { $($field: first::$field),* };
        static GLIBC: Table = Table { $($field: real::$field),* };
    };
}

define_table! {
    mutex_lock(m: *mut pthread_mutex_t) = mutex::lock::<L, M>, glibc::pthread_mutex_lock;
    mutex_trylock(m: *mut pthread_mutex_t) = mutex::trylock::<L, M>, glibc::pthread_mutex_trylock;
    mutex_timedlock(m: *mut pthread_mutex_t, t: *const timespec) = mutex::timedlock::<L, M>, glibc::pthread_mutex_timedlock;
    mutex_clocklock(m: *mut pthread_mutex_t, c: clockid_t, t: *const timespec)
        = mutex::clocklock::<L, M>, glibc::pthread_mutex_clocklock;
    mutex_unlock(m: *mut pthread_mutex_t) = mutex::unlock::<L, M>, glibc::pthread_mutex_unlock;
    mutex_destroy(m: *mut pthread_mutex_t) = mutex::destroy::<L, M>, glibc::pthread_mutex_destroy;
    cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) = cond::wait::<L, M>, glibc::pthread_cond_wait;
    cond_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, t: *const timespec)
        = cond::timedwait::<L, M>, glibc::pthread_cond_timedwait;
    cond_clockwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, k: clockid_t, t: *const timespec)
        = cond::clockwait::<L, M>, glibc::pthread_cond_clockwait;
    cond_signal(c: *mut pthread_cond_t) = cond::signal::<M>, glibc::pthread_cond_signal;
    cond_broadcast(c: *mut pthread_cond_t) = cond::broadcast::<L, M>, glibc::pthread_cond_broadcast;
    cond_destroy(c: *mut pthread_cond_t) = cond::destroy::<M>, glibc::pthread_cond_destroy;
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new((&raw const FIRST).cast_mut());

/// The functions to call.
#[inline(always)]
pub fn table() -> &'static Table {
    // SAFETY: `TABLE` only ever points to statics.
    unsafe { &*TABLE.load(Acquire) }
}

macro_rules! define_choosers {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The table of a choice. The order of each list is that of `LockInfo::waits`.
        fn plain(choice: &Choice) -> &'static Table {
            match choice.lock {
                $(LockId::$variant => {
                    const LIST: &[&Table] = &[$(&Table::of::<$type, Native<NoStats>>()),+];
                    LIST[choice.wait % LIST.len()]
                })*
            }
        }

        /// The same, counting.
        #[cfg(feature = "stats")]
        fn counting(choice: &Choice) -> &'static Table {
            match choice.lock {
                $(LockId::$variant => {
                    const LIST: &[&Table] = &[$(&Table::of::<$type, Native<Counting>>()),+];
                    LIST[choice.wait % LIST.len()]
                })*
            }
        }
    };
}

for_each_lock!(define_choosers);

/// The value of an environment variable, without libc's `getenv` (which a program may interpose).
fn environment(name: &str) -> Option<&'static str> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: `environ` is null or a null-terminated array of C strings, which nobody changes before `main`; a thread that
    // calls `setenv` later finds everything resolved.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                return core::str::from_utf8(value).ok();
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Reads the settings and installs the table. Several threads may do so at once: all come to the same result, and one of them
/// reports what is wrong.
#[cold]
fn resolve() -> &'static Table {
    let wanted = environment(settings::ENV).unwrap_or("");
    let parsed = settings::parse(wanted);
    let choice = parsed.unwrap_or(Choice::DEFAULT);
    let first = settings::set_tunables(choice.tunables);
    let chosen = if layout::prepare() { choose(wanted, &choice) } else { &GLIBC };
    if first {
        if core::ptr::eq(chosen, &raw const GLIBC) {
            let version = layout::glibc_version().to_bytes();
            sys::warn(&[b"flashlock: glibc ", version, b" is unknown to this version; its own locks are used\n"]);
        } else if let Err(bad) = parsed
            && !is_busted(wanted)
        {
            sys::warn(&[b"flashlock: "]);
            bad.explain(&mut |part| sys::warn(&[part.as_bytes()]));
            sys::warn(&[b"; using ", choice.lock.info().name.as_bytes(), b"\n"]);
            forget(wanted);
        }
        if let Some(fd) = stats_fd() {
            stats::attach(fd);
        }
    }
    TABLE.store(core::ptr::from_ref(chosen).cast_mut(), Release);
    chosen
}

/// Empties a value in the environment, so that the processes that inherit it do not report it again.
fn forget(value: &'static str) {
    if !value.is_empty() {
        // SAFETY: `environment` gave it: it lies in the environment's own strings, which POSIX lets a program write to, before its
        // NUL; the reference is not used afterwards.
        unsafe { value.as_ptr().cast_mut().write(0) };
    }
}

fn stats_fd() -> Option<i32> {
    environment(stats::ENV)?.parse().ok()
}

fn is_busted(wanted: &str) -> bool {
    cfg!(feature = "busted") && wanted == "busted"
}

fn choose(_wanted: &str, choice: &Choice) -> &'static Table {
    #[cfg(feature = "busted")]
    if is_busted(_wanted) {
        return const { &Table::of::<flashlock_locks::spin::busted::Busted, Native<NoStats>>() };
    }
    #[cfg(feature = "stats")]
    if stats_fd().is_some() {
        return counting(choice);
    }
    plain(choice)
}

/// What is done at load time, when files can be read and symbols looked up: before threads exist, as a rule, and before the
/// program gives up privileges or system calls.
pub fn init() {
    if core::ptr::eq(table(), &raw const FIRST) {
        resolve();
    }
    let imagined = environment(settings::ENV_TOPOLOGY).filter(|text| !text.is_empty());
    let topology = imagined.and_then(settings::parse_topology);
    if let (Some(text), None) = (imagined, topology) {
        let name = settings::ENV_TOPOLOGY.as_bytes();
        sys::warn(&[b"flashlock: ", name, b"='", text.as_bytes(), b"' is not NODESxCORESxSMT; ignored\n"]);
        forget(text);
    }
    numa::prepare(topology.map(|[nodes, _, _]| nodes));
    thread::prepare();
    epoch::current();
    clock::now();
    spin::prepare();
    glibc::prepare();
}
