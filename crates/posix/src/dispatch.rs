//! # Dispatch: from the exported function to the chosen lock
//!
//! Each exported function jumps through [`table`] to the chosen lock. There is one table of functions for each lock,
//! waiting policy and (with the feature `stats`) listener, made from the catalogue. At first [`table`] points to
//! functions that read the settings, install the right table and continue there. So a lock call costs one indirect
//! jump, and does not check whether statistics are on.
//!
//! Resolution only reads the [`environment`]. It allocates nothing, writes nothing and looks up no symbol, because it
//! may run inside malloc and before any constructor. Everything else ([`init`]) waits for our constructor.

use core::ffi::c_int;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

use flashlock_locks::catalogue::DEFAULT;
use flashlock_locks::machine::{Machine, Tunables};
use flashlock_locks::parts::raw::RawLock;
use flashlock_native::settings::{self, BadChoice, Choice, RwChoice};
#[cfg(feature = "stats")]
use flashlock_native::{Counting, Native};
use flashlock_native::{Word32, alone, epoch, holder, place, registry, spin, stats, sys};
use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t, timespec};

use crate::common::{self, Whose};
use crate::environment::{self, Unreadable, Value};
use crate::table::define_table;
#[cfg(feature = "stats")]
use crate::watch;
use crate::{cond, dispatch_rw, glibc, layout, mutex};

#[cfg(feature = "stats")]
use choosers::counting;
use choosers::plain;

define_table! {
    RawLock, resolve;
    mutex_init(m: *mut pthread_mutex_t, a: *const pthread_mutexattr_t)
        = mutex::init::<M>, glibc::pthread_mutex_init, mutex::init::<Native<Counting>>, makes Mutex m;
    mutex_lock(m: *mut pthread_mutex_t)
        = mutex::lock::<L, M>, glibc::pthread_mutex_lock, watch::mutex_lock, takes Mutex m;
    mutex_trylock(m: *mut pthread_mutex_t)
        = mutex::trylock::<L, M>, glibc::pthread_mutex_trylock, watch::mutex_trylock, takes Mutex m;
    mutex_timedlock(m: *mut pthread_mutex_t, t: *const timespec)
        = mutex::timedlock::<L, M>, glibc::pthread_mutex_timedlock, watch::mutex_timedlock, takes Mutex m;
    mutex_clocklock(m: *mut pthread_mutex_t, c: clockid_t, t: *const timespec)
        = mutex::clocklock::<L, M>, glibc::pthread_mutex_clocklock, watch::mutex_clocklock, takes Mutex m;
    mutex_unlock(m: *mut pthread_mutex_t)
        = mutex::unlock::<L, M>, glibc::pthread_mutex_unlock, watch::mutex_unlock, plain;
    mutex_destroy(m: *mut pthread_mutex_t)
        = mutex::destroy::<L, M>, glibc::pthread_mutex_destroy, real::mutex_destroy, plain;
    cond_init(c: *mut pthread_cond_t, a: *const pthread_condattr_t)
        = cond::init::<M>, glibc::pthread_cond_init, cond::init::<Native<Counting>>, plain;
    cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t)
        = cond::wait::<L, M>, glibc::pthread_cond_wait, watch::cond_wait, takes Mutex m;
    cond_timedwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, t: *const timespec)
        = cond::timedwait::<L, M>, glibc::pthread_cond_timedwait, watch::cond_timedwait, takes Mutex m;
    cond_clockwait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t, k: clockid_t, t: *const timespec)
        = cond::clockwait::<L, M>, glibc::pthread_cond_clockwait, watch::cond_clockwait, takes Mutex m;
    cond_signal(c: *mut pthread_cond_t)
        = cond::signal::<M>, glibc::pthread_cond_signal, real::cond_signal, plain;
    cond_broadcast(c: *mut pthread_cond_t)
        = cond::broadcast::<L, M>, glibc::pthread_cond_broadcast, real::cond_broadcast, plain;
    cond_destroy(c: *mut pthread_cond_t)
        = cond::destroy::<M>, glibc::pthread_cond_destroy, real::cond_destroy, plain;
}

/// The table for a choice, of each lock of the catalogue.
#[cfg(not(test))]
mod choosers {
    use flashlock_locks::catalogue::LockId;
    use flashlock_locks::for_each_lock;
    #[cfg(feature = "stats")]
    use flashlock_native::Counting;
    use flashlock_native::settings::Choice;
    use flashlock_native::{Native, NoStats};

    use super::Table;

    macro_rules! define_choosers {
        ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            /// The order of each list is that of `LockInfo::waits`.
            #[inline(never)]
            pub(super) fn plain(choice: &Choice) -> &'static Table {
                match choice.lock {
                    $(LockId::$variant => {
                        const LIST: &[&Table] = &[$(&Table::of::<$type, Native<NoStats>>()),+];
                        LIST[choice.wait % LIST.len()]
                    })*
                }
            }

            /// The same, with counters.
            #[cfg(feature = "stats")]
            #[inline(never)]
            pub(super) fn counting(choice: &Choice) -> &'static Table {
                match choice.lock {
                    $(LockId::$variant => {
                        const LIST: &[&Table] = &[$(&Table::counting::<$type, Native<Counting>>()),+];
                        LIST[choice.wait % LIST.len()]
                    })*
                }
            }
        };
    }
    for_each_lock!(define_choosers);
}

/// The user's choice.
enum Wanted<'a> {
    /// One of our locks.
    Good(Choice),
    /// glibc's own lock.
    Glibc,
    Bad(BadChoice<'a>),
    Unreadable,
}

impl<'a> Wanted<'a> {
    fn read(value: Option<&'a Value>) -> Self {
        match value.map_or(Ok(""), Value::text) {
            Ok(settings::GLIBC) => Self::Glibc,
            Ok(text) if is_busted(text) => Self::Good(Choice::DEFAULT),
            Ok(text) => {
                settings::parse(text, Tunables::DEFAULT).and_then(Choice::here).map_or_else(Self::Bad, Self::Good)
            }
            Err(Unreadable) => Self::Unreadable,
        }
    }

    /// The lock that the program runs under; `None` means glibc's own.
    fn choice(&self) -> Option<Choice> {
        match self {
            Self::Good(choice) => Some(*choice),
            Self::Glibc => None,
            Self::Bad(_) | Self::Unreadable => Some(Choice::DEFAULT),
        }
    }
}

/// Reads the settings and installs the table. Several threads may do so at once: one table is installed, and all of
/// them use it. An error is not reported here, in the program's lock call, but by [`init`].
#[cold]
fn resolve() -> &'static Table {
    let value = environment::value(settings::ENV);
    let choice = choices(value.as_ref(), environment::value(settings::ENV_RW).as_ref()).mutex;
    let text = value.as_ref().and_then(|value| value.text().ok()).unwrap_or("");
    let choice = if layout::prepare() { choice } else { None };
    let (chosen, whose) = choose(text, choice.as_ref(), stats_fd());
    holder::settle();
    common::install(whose);
    install(chosen)
}

/// The chosen locks of both kinds; `None` means glibc's own.
pub(crate) struct Choices {
    pub(crate) mutex: Option<Choice>,
    pub(crate) rw: Option<RwChoice>,
}

/// Reads both choices, and sets the tunables, which apply to both. A program with glibc's mutexes also gets glibc's
/// readers-writer locks, unless the user names another one.
pub(crate) fn choices(value: Option<&Value>, rw_value: Option<&Value>) -> Choices {
    let mutex = Wanted::read(value).choice();
    let mut tunables = mutex.map_or(Tunables::DEFAULT, |choice| choice.tunables);
    let rw = match rw_value.and_then(|value| value.text().ok()).unwrap_or("") {
        settings::GLIBC => None,
        "" if mutex.is_none() => None,
        rw => {
            let choice = settings::parse(rw, tunables).and_then(RwChoice::here);
            let choice = choice.unwrap_or(RwChoice { tunables, ..RwChoice::DEFAULT });
            tunables = choice.tunables;
            Some(choice)
        }
    };
    settings::set_tunables(tunables);
    Choices { mutex, rw }
}

pub(crate) fn stats_fd() -> Option<i32> {
    environment::value(stats::ENV)?.text().ok()?.parse().ok()
}

pub(crate) fn is_busted(wanted: &str) -> bool {
    cfg!(feature = "busted") && wanted == "busted"
}

/// The table for a choice. It counts only if there are counters. The descriptor comes from the environment and is not
/// trusted.
fn choose(_wanted: &str, choice: Option<&Choice>, _stats: Option<i32>) -> (&'static Table, Whose) {
    #[cfg(feature = "busted")]
    if is_busted(_wanted) && choice.is_some() {
        return (
            const { &Table::of::<flashlock_busted::Busted, flashlock_native::Native<flashlock_native::NoStats>>() },
            Whose::Plain,
        );
    }
    #[cfg(feature = "stats")]
    if _stats.is_some_and(stats::attach) {
        return choice.map_or((&WATCHED, Whose::Watched), |choice| (counting(choice), Whose::Counting));
    }
    choice.map_or((&GLIBC, Whose::Glibc), |choice| (plain(choice), Whose::Plain))
}

/// Reads the settings and installs all tables, unless that has been done.
pub(crate) fn settle() {
    if core::ptr::eq(table(), &raw const FIRST) {
        resolve();
    }
}

/// Runs at load time, when files can be read and symbols looked up: usually before there are threads, and before the
/// program gives up privileges or system calls.
pub fn init() {
    settle();
    dispatch_rw::resolve_early();
    stats::prepare();
    report_lock();
    alone::prepare();
    holder::prepare();
    place::prepare(settings::tunables(), imagined());
    epoch::current();
    spin::prepare();
    registry::prepare();
    glibc::prepare();
}

/// Reports an error in the choice of a lock, once: processes that inherit the variable find it empty.
fn report_lock() {
    if !layout::prepare() {
        let version = layout::glibc_version().to_bytes();
        sys::warn_line(&[b"flashlock: unknown glibc version ", version, b"; the program keeps glibc's locks"]);
        return;
    }
    dispatch_rw::report_lock();
    let Some(value) = environment::value(settings::ENV) else { return };
    match Wanted::read(Some(&value)) {
        Wanted::Good(_) | Wanted::Glibc => return,
        Wanted::Bad(bad) => {
            sys::warn(&[b"flashlock: ", settings::ENV.as_bytes(), b": "]);
            bad.explain(&[settings::GLIBC], &mut |part| sys::warn(&[part.as_bytes()]));
        }
        Wanted::Unreadable => sys::warn(&[b"flashlock: ", settings::ENV.as_bytes(), UNREADABLE]),
    }
    sys::warn_line(&[b"; using the default lock, ", DEFAULT.info().name.as_bytes()]);
    value.forget();
}

/// The message for a value that is [`Unreadable`].
pub(crate) const UNREADABLE: &[u8] = b": the value is not UTF-8, or longer than 255 bytes";
const _: () = assert!(environment::LONGEST == 255);

/// The machine that `FLASHLOCK_TOPOLOGY` describes. Reports an error in it, once.
fn imagined() -> Option<[u32; 3]> {
    let value = environment::value(settings::ENV_TOPOLOGY)?;
    let name = settings::ENV_TOPOLOGY.as_bytes();
    match value.text() {
        Ok("") => return None,
        Ok(text) => match settings::parse_topology(text) {
            Some(shape) => return Some(shape),
            None => {
                sys::warn_line(&[
                    b"flashlock: ",
                    name,
                    b"='",
                    text.as_bytes(),
                    b"' is not NODESxCORESxSMT, such as 2x18x2; ignored",
                ]);
            }
        },
        Err(Unreadable) => sys::warn_line(&[b"flashlock: ", name, UNREADABLE, b"; ignored"]),
    }
    value.forget();
    None
}

/// No unit test of this crate locks anything. With one table, they compile in a fifth of the time.
#[cfg(test)]
mod choosers {
    use flashlock_locks::mutex::spin::Futex;
    #[cfg(feature = "stats")]
    use flashlock_native::Counting;
    use flashlock_native::settings::Choice;
    use flashlock_native::{Native, NoStats};

    use super::Table;

    pub(super) fn plain(_: &Choice) -> &'static Table {
        const { &Table::of::<Futex, Native<NoStats>>() }
    }

    #[cfg(feature = "stats")]
    pub(super) fn counting(_: &Choice) -> &'static Table {
        const { &Table::counting::<Futex, Native<Counting>>() }
    }
}
