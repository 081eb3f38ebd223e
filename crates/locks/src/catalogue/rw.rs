//! # The catalogue of readers-writer locks
//!
//! The list from which the command line, the preload's dispatch, the tests and the documentation are generated. A new
//! readers-writer lock is its file, one row here, and its page.

use core::ops::Deref;

use crate::catalogue::{Facts, OptionId, exceptions};

/// Calls `$use` with every readers-writer lock: `(Variant, "name", [wait => type, …], { facts })`; see
/// [`for_each_lock!`](crate::for_each_lock).
#[macro_export]
macro_rules! for_each_rw_lock {
    ($use:path) => {
        $use! {
            (FutexRw, "futex-rw", [park => $crate::rw::FutexRw], {
                title: "one counter, on which all waiters sleep; glibc's rules",
                paper: "Courtois et al., CACM 1971; Drepper, Futexes Are Tricky, 2011",
                source: "rw/futex.rs",
                bytes: 8, bytes_per_waiter: 0, atomics_read: 2, atomics_write: 2,
                numa_aware: false,
                fair: "no: readers pass writers without bound, or writers pass readers if writers are preferred",
                options: [],
                exceptions: [STARVES_WRITERS],
            }),
            (CstRw, "cst-rw", [
                stp => $crate::rw::CstRw<$crate::parts::wait::SpinThenPark>,
                spin => $crate::rw::CstRw<$crate::parts::wait::Spin>,
                park => $crate::rw::CstRw<$crate::parts::wait::Park>,
                umwait => $crate::rw::CstRw<$crate::parts::wait::Umwait>
            ], {
                title: "distributed readers: a counter for each part of the machine",
                paper: "Kashyap et al., USENIX ATC 2017; compared with ShflLocks: thesis defence, slides 79-80",
                source: "rw/cst/mod.rs",
                bytes: 20, bytes_per_waiter: 128, atomics_read: 2, atomics_write: 2,
                numa_aware: true,
                fair: "bounded, if the sections of all reading threads together take less than 1024 times bound=. As "
                      "with shfl-rw, readers that have waited for bound= microseconds pass a waiting writer",
                options: [Bound, Shuffles, Ahead, Meetings, Writers],
                exceptions: [],
            }),
            (ShflRw, "shfl-rw", [
                stp => $crate::rw::ShflRw<$crate::parts::wait::SpinThenPark>,
                spin => $crate::rw::ShflRw<$crate::parts::wait::Spin>,
                park => $crate::rw::ShflRw<$crate::parts::wait::Park>,
                umwait => $crate::rw::ShflRw<$crate::parts::wait::Umwait>
            ], {
                title: "readers-writer ShflLock: one counter, and one queue for both",
                paper: "Kashyap et al., SOSP 2019; thesis defence, slides 71-72",
                source: "rw/shfl/mod.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_read: 2, atomics_write: 2,
                numa_aware: true,
                fair: "bounded, if the sections of all reading threads together take less than 1024 times bound=. "
                      "After bound= microseconds, few readers pass the first waiter: those that hold a read lock "
                      "already, or have waited for as long (the next one for twice as long, and so on)",
                options: [Bound, Shuffles, Ahead],
                exceptions: [],
            }),
        }
    };
}

/// The readers-writer lock used when the user names none.
pub const RW_DEFAULT: RwId = RwId::CstRw;

/// What is known of a readers-writer lock. Under the preload library, mutexes and readers-writer locks share one set of
/// options.
#[derive(Clone, Copy, Debug)]
pub struct RwInfo {
    /// Which one it is.
    pub id: RwId,
    /// What is known of any lock.
    pub facts: Facts,
    /// Atomic read-modify-writes in an uncontended acquisition for reading and its release.
    pub atomics_read: u32,
    /// The same for writing.
    pub atomics_write: u32,
}

impl Deref for RwInfo {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

macro_rules! define_rw_catalogue {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], {
        title: $title:literal, paper: $paper:literal, source: $source:literal,
        bytes: $bytes:literal, bytes_per_waiter: $waiter:literal,
        atomics_read: $ar:literal, atomics_write: $aw:literal, numa_aware: $numa:literal, fair: $($fair:literal)+,
        options: [$($option:ident),* $(,)?], exceptions: [$($limit:ident),* $(,)?] $(,)?
    })),* $(,)?) => {
        /// Names a readers-writer lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RwId {
            $(#[doc = $title] $variant),*
        }

        /// All readers-writer locks, in the order in which they are shown.
        pub const RW_LOCKS: &[RwInfo] = &[$(RwInfo {
            id: RwId::$variant,
            facts: Facts {
                name: $name, title: $title, paper: $paper, source: $source, bytes: $bytes, bytes_per_waiter: $waiter,
                numa_aware: $numa, fair: concat!($($fair),+),
                waits: &[$(stringify!($wait)),+], options: &[$(OptionId::$option),*],
                limits: &[$(exceptions::$limit),*],
            },
            atomics_read: $ar, atomics_write: $aw,
        }),*];
    };
}

for_each_rw_lock!(define_rw_catalogue);

impl RwId {
    /// What is known of it.
    pub fn info(self) -> &'static RwInfo {
        &RW_LOCKS[self as usize]
    }

    /// The lock of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        RW_LOCKS.iter().find(|lock| lock.name == name).map(|lock| lock.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_index_the_list_and_names_are_found() {
        for lock in RW_LOCKS {
            assert_eq!(lock.id.info().name, lock.name);
            assert_eq!(RwId::from_name(lock.name), Some(lock.id));
            assert!(crate::catalogue::LockId::from_name(lock.name).is_none(), "{} names two locks", lock.name);
        }
        assert_eq!(RwId::from_name("no-such-lock"), None);
    }

    #[test]
    fn the_default_lock_can_do_everything() {
        assert!(RW_DEFAULT.info().exceptions().next().is_none());
    }
}
