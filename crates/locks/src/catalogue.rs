//! # The catalogue of locks
//!
//! The one list from which the command line, the preload's dispatch, the tests and the documentation are generated. A new
//! lock is its file, one row here, and its page.

/// Calls `$use` with every lock:
/// `(Variant, "name", [wait => type, …], { facts })`. The waits are the values of `wait=` that the lock has, each with the
/// type that implements it; the first is its default.
#[macro_export]
macro_rules! for_each_lock {
    ($use:path) => {
        $use! {
            (Tas, "tas", [stp => $crate::spin::Tas], {
                title: "test-and-set, polite",
                paper: "Anderson, TPDS 1990; back-off as in Malthusian Locks, section 5.1",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "no: waiters may be passed over without bound",
                strict: false,
                exceptions: [
                    ("signals.frozen_first_of_four_sleepers", "a broadcast wakes one waiter, which wakes the next: one that is frozen keeps the others asleep"),
                    ("signals.frozen_two_of_six_sleepers", "as above"),
                    ("signals.frozen_on_the_way_from_condition_to_mutex", "as above"),
                ],
            }),
            (Futex, "futex", [park => $crate::spin::Futex], {
                title: "three-state futex lock, what glibc does",
                paper: "Drepper, Futexes Are Tricky, 2011, section 5",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "no: a running thread passes sleepers over without bound",
                strict: false,
                exceptions: [
                    ("signals.frozen_first_of_four_sleepers", "a broadcast wakes one waiter, which wakes the next: one that is frozen keeps the others asleep"),
                    ("signals.frozen_two_of_six_sleepers", "as above"),
                    ("signals.frozen_on_the_way_from_condition_to_mutex", "as above"),
                ],
            }),
            (Mcs, "mcs", [stp => $crate::queue::Mcs<$crate::wait::SpinThenPark>, spin => $crate::queue::Mcs<$crate::wait::Spin>, park => $crate::queue::Mcs<$crate::wait::Park>], {
                title: "queue lock, each waiter on its own cache line",
                paper: "Mellor-Crummey & Scott, TOCS 1991 (K42 variant)",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "yes: first come, first served",
                strict: true,
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to the first waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("slow_motion.release_at_any_point_of_a*lock", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                    ("torture.freeze-waiter", "the lock is handed to the first waiter, whether it runs or not"),
                ],
            }),
            (Shfl, "shfl", [stp => $crate::shuffle::Shfl<$crate::wait::SpinThenPark>, spin => $crate::shuffle::Shfl<$crate::wait::Spin>, park => $crate::shuffle::Shfl<$crate::wait::Park>], {
                title: "blocking ShflLock: NUMA-aware, for any number of threads",
                paper: "Kashyap et al., SOSP 2019; thesis defence, slides 33-69",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: true, fair: "bounded: after bound= microseconds the first waiter is handed the lock",
                strict: false, exceptions: [],
            }),
        }
    };
}

/// The lock used when the user names none.
pub const DEFAULT: LockId = LockId::Shfl;

/// A check of the project's own conformance or torture suite to which a lock gives another answer than glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The check, as the suite names it (`torture.` before a torture scenario); `*` stands for anything.
    pub check: &'static str,
    /// Why this lock cannot do it.
    pub reason: &'static str,
}

/// What is known of a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockInfo {
    /// Which one it is.
    pub id: LockId,
    /// Its name, as users write it.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Bytes of state in the lock.
    pub bytes: u32,
    /// Bytes per waiting thread (not per lock).
    pub bytes_per_waiter: u32,
    /// Atomic read-modify-writes in an uncontended acquisition.
    pub atomics_lock: u32,
    /// Atomic read-modify-writes in an uncontended release.
    pub atomics_unlock: u32,
    /// Whether it prefers hand-offs within a NUMA node.
    pub numa_aware: bool,
    /// How fair it is.
    pub fair: &'static str,
    /// Whether it hands over strictly, also to a waiter that is not running.
    pub strict: bool,
    /// The values of `wait=` it takes; the first is its default.
    pub waits: &'static [&'static str],
    /// What it cannot do that glibc's mutex can.
    pub exceptions: &'static [Exception],
}

macro_rules! define_catalogue {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], {
        title: $title:literal, paper: $paper:literal, bytes: $bytes:literal, bytes_per_waiter: $waiter:literal,
        atomics_lock: $al:literal, atomics_unlock: $au:literal, numa_aware: $numa:literal, fair: $fair:literal,
        strict: $strict:literal, exceptions: [$(($check:literal, $reason:literal)),* $(,)?] $(,)?
    })),* $(,)?) => {
        /// Names a lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LockId {
            $(#[doc = $title] $variant),*
        }

        /// All locks, in the order in which they are shown.
        pub const LOCKS: &[LockInfo] = &[$(LockInfo {
            id: LockId::$variant, name: $name, title: $title, paper: $paper, bytes: $bytes, bytes_per_waiter: $waiter,
            atomics_lock: $al, atomics_unlock: $au, numa_aware: $numa, fair: $fair, strict: $strict,
            waits: &[$(stringify!($wait)),+],
            exceptions: &[$(Exception { check: $check, reason: $reason }),*],
        }),*];
    };
}

for_each_lock!(define_catalogue);

impl LockId {
    /// What is known of it.
    pub fn info(self) -> &'static LockInfo {
        &LOCKS[self as usize]
    }

    /// The lock of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        LOCKS.iter().find(|lock| lock.name == name).map(|lock| lock.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_index_the_list_and_names_are_found() {
        for lock in LOCKS {
            assert_eq!(lock.id.info().name, lock.name);
            assert_eq!(LockId::from_name(lock.name), Some(lock.id));
        }
        assert_eq!(LockId::from_name("no-such-lock"), None);
    }

    #[test]
    fn the_default_lock_can_do_everything() {
        assert!(DEFAULT.info().exceptions.is_empty());
    }
}
