//! # The catalogue of readers-writer locks
//!
//! The list from which the command line, the preload's dispatch, the tests and the documentation are generated. A new readers-writer
//! lock is its file, one row here, and its page.

use crate::catalogue::{Exception, OptionId, OptionInfo};

/// Calls `$use` with every readers-writer lock: `(Variant, "name", [wait => type, …], { facts })`; see
/// [`for_each_lock!`](crate::for_each_lock).
#[macro_export]
macro_rules! for_each_rw_lock {
    ($use:path) => {
        $use! {
            (FutexRw, "futex-rw", [park => $crate::rw::FutexRw], {
                title: "stock lock: one counter, on which everybody sleeps",
                paper: "Courtois et al., CACM 1971; Drepper, Futexes Are Tricky, 2011",
                source: "rw/futex.rs",
                bytes: 8, bytes_per_waiter: 0, atomics_read: 2, atomics_write: 2,
                numa_aware: false, fair: "no: readers pass writers without bound, or the reverse where writers are preferred",
                options: [],
                exceptions: [
                    ("rwlock_order.kind_0_writer*", "readers that overlap each other keep writers out for ever; so do glibc's"),
                    ("rwlock_life.kind_2_fork_with_writers_*", "writers are counted while they wait, also those that a forked child does not have; so do glibc's"),
                ],
            }),
            (CstRw, "cst-rw", [stp => $crate::rw::CstRw<$crate::wait::SpinThenPark>, spin => $crate::rw::CstRw<$crate::wait::Spin>, park => $crate::rw::CstRw<$crate::wait::Park>], {
                title: "a counter of readers for each NUMA node, once readers meet",
                paper: "Kashyap et al., USENIX ATC 2017; as the rival of ShflLocks: thesis defence, slides 79-80",
                source: "rw/cst.rs",
                bytes: 24, bytes_per_waiter: 128, atomics_read: 2, atomics_write: 2,
                numa_aware: true, fair: "bounded, as shfl-rw; readers that have waited for bound= microseconds pass a waiting writer",
                options: [Bound, Shuffles, Ahead],
                exceptions: [],
            }),
            (ShflRw, "shfl-rw", [stp => $crate::rw::ShflRw<$crate::wait::SpinThenPark>, spin => $crate::rw::ShflRw<$crate::wait::Spin>, park => $crate::rw::ShflRw<$crate::wait::Park>], {
                title: "readers-writer ShflLock: one counter, one queue for both",
                paper: "Kashyap et al., SOSP 2019; thesis defence, slides 71-72",
                source: "rw/shfl/mod.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_read: 2, atomics_write: 2,
                numa_aware: true, fair: "bounded: after bound= microseconds nobody passes the first waiter, but readers that must not wait for a writer",
                options: [Bound, Shuffles, Ahead],
                exceptions: [],
            }),
        }
    };
}

/// The readers-writer lock used when the user names none.
pub const RW_DEFAULT: RwId = RwId::ShflRw;

/// What is known of a readers-writer lock.
#[derive(Clone, Copy, Debug)]
pub struct RwInfo {
    /// Which one it is.
    pub id: RwId,
    /// Its name, as users write it.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// The file of this crate, below `src`, that begins with what there is to know of it.
    pub source: &'static str,
    /// Bytes of state in the lock.
    pub bytes: u32,
    /// Bytes per waiting thread (not per lock).
    pub bytes_per_waiter: u32,
    /// Atomic read-modify-writes in an uncontended acquisition for reading and its release.
    pub atomics_read: u32,
    /// The same for writing.
    pub atomics_write: u32,
    /// Whether it knows of NUMA nodes.
    pub numa_aware: bool,
    /// How fair it is.
    pub fair: &'static str,
    /// The values of `wait=` it takes; the first is its default.
    pub waits: &'static [&'static str],
    /// The other options that it takes. They are the process's: the mutexes' lock goes by the same ones.
    pub options: &'static [OptionId],
    /// What it cannot do that glibc's readers-writer lock can.
    pub exceptions: &'static [Exception],
}

macro_rules! define_rw_catalogue {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], {
        title: $title:literal, paper: $paper:literal, source: $source:literal, bytes: $bytes:literal, bytes_per_waiter: $waiter:literal,
        atomics_read: $ar:literal, atomics_write: $aw:literal, numa_aware: $numa:literal, fair: $fair:literal,
        options: [$($option:ident),* $(,)?],
        exceptions: [$(($check:literal, $reason:literal)),* $(,)?] $(,)?
    })),* $(,)?) => {
        /// Names a readers-writer lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RwId {
            $(#[doc = $title] $variant),*
        }

        /// All readers-writer locks, in the order in which they are shown.
        pub const RW_LOCKS: &[RwInfo] = &[$(RwInfo {
            id: RwId::$variant, name: $name, title: $title, paper: $paper, source: $source, bytes: $bytes, bytes_per_waiter: $waiter,
            atomics_read: $ar, atomics_write: $aw, numa_aware: $numa, fair: $fair,
            waits: &[$(stringify!($wait)),+],
            options: &[$(OptionId::$option),*],
            exceptions: &[$(Exception { check: $check, reason: $reason }),*],
        }),*];
    };
}

for_each_rw_lock!(define_rw_catalogue);

impl RwInfo {
    /// The option of that name, if the lock takes it.
    pub fn option(&self, name: &str) -> Option<&'static OptionInfo> {
        self.options.iter().map(|option| option.info()).find(|option| option.name == name)
    }
}

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
        assert!(RW_DEFAULT.info().exceptions.is_empty());
    }
}
