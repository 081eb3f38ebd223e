//! # The catalogue of locks
//!
//! The lists from which the command line, the preload's dispatch, the tests and the documentation are generated.
//!
//! | file | holds | a new one is |
//! |---|---|---|
//! | `mutexes` | [`for_each_lock!`](crate::for_each_lock) | its file, and one row |
//! | [`rw`](mod@rw) | [`for_each_rw_lock!`](crate::for_each_rw_lock): readers-writer locks | the same |
//! | [`standalone`] | [`for_each_standalone_lock!`](crate::for_each_standalone_lock): locks that no program can be run under | the same |
//! | [`options`] | what is known of the options of [`for_each_option!`](crate::for_each_option) | one row [there](crate::machine::options), and its name in the rows of the locks that take it |
//! | [`claims`] | what locks promise | a claim, and its name in rows |
//! | [`exceptions`] | what locks cannot do, in groups | a group, and its name in rows |

pub mod claims;
pub mod exceptions;
mod mutexes;
pub mod options;
pub mod rw;
pub mod standalone;

use core::ops::Deref;

pub use claims::Claim;
pub use exceptions::Exception;
pub use options::{OPTIONS, ORDERS, OptionId, OptionInfo, OrderInfo};
pub use standalone::{STANDALONE, StandaloneId, StandaloneInfo};

use crate::for_each_lock;

/// What is known of any lock, whatever it is for.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Its name, as users write it; of one lock only.
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
    /// Whether it knows of NUMA nodes, and prefers its own.
    pub numa_aware: bool,
    /// How fair it is.
    pub fair: &'static str,
    /// The values of `wait=` it takes; the first is its default.
    pub waits: &'static [&'static str],
    /// The other options that it takes.
    pub options: &'static [OptionId],
    /// The groups of what it cannot do that glibc's can.
    pub limits: &'static [&'static [Exception]],
}

impl Facts {
    /// The option of that name, if the lock takes it.
    pub fn option(&self, name: &str) -> Option<&'static OptionInfo> {
        self.options.iter().map(|option| option.info()).find(|option| option.name == name)
    }

    /// What it cannot do that glibc's can.
    pub fn exceptions(&self) -> impl Iterator<Item = &'static Exception> {
        self.limits.iter().copied().flatten()
    }
}

/// What a mutex makes of NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// Nothing.
    Unaware,
    /// It prefers waiters of one node to others.
    Prefers,
    /// It has a lock for each node, and one above them: a cohort lock, or one like it.
    LockEach,
}

/// What is known of a mutex.
#[derive(Clone, Copy, Debug)]
pub struct LockInfo {
    /// Which one it is.
    pub id: LockId,
    /// What is known of any lock.
    pub facts: Facts,
    /// Atomic read-modify-writes in an uncontended acquisition, but for those of the pool where it takes a queue node.
    pub atomics_lock: u32,
    /// Atomic read-modify-writes in an uncontended release, with the same exception.
    pub atomics_unlock: u32,
    /// What it makes of NUMA nodes.
    pub numa: Numa,
    /// Whether it hands over strictly, also to a waiter that is not running.
    pub strict: bool,
    /// What it promises of the order in which threads have it.
    pub claims: &'static [Claim],
}

impl Deref for LockInfo {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

macro_rules! define_catalogue {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], {
        numa: $numa:ident, title: $title:literal, paper: $($paper:literal)+, source: $source:literal,
        bytes: $bytes:literal, bytes_per_waiter: $waiter:literal,
        atomics_lock: $al:literal, atomics_unlock: $au:literal, fair: $($fair:literal)+,
        strict: $strict:literal, claims: [$($claim:ident),* $(,)?],
        options: [$($option:ident),* $(,)?], exceptions: [$($limit:ident),* $(,)?] $(,)?
    })),* $(,)?) => {
        /// Names a lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LockId {
            $(#[doc = $title] $variant),*
        }

        /// All locks, in the order in which they are shown.
        pub const LOCKS: &[LockInfo] = &[$(LockInfo {
            id: LockId::$variant,
            facts: Facts {
                name: $name, title: $title, paper: concat!($($paper),+), source: $source,
                bytes: $bytes, bytes_per_waiter: $waiter, numa_aware: !matches!(Numa::$numa, Numa::Unaware),
                fair: concat!($($fair),+), waits: &[$(stringify!($wait)),+], options: &[$(OptionId::$option),*],
                limits: &[$(exceptions::$limit),*],
            },
            numa: Numa::$numa, atomics_lock: $al, atomics_unlock: $au, strict: $strict, claims: &[$(Claim::$claim),*],
        }),*];
    };
}

for_each_lock!(define_catalogue);

/// The lock used when the user names none.
pub const DEFAULT: LockId = LockId::Flash;

/// The locks that users are told to consider, and those that these are measured by: what is compared when the user
/// names none. The further ones are the family's other members, made of the same parts.
pub const PRINCIPAL: &[LockId] =
    &[LockId::Tas, LockId::Futex, LockId::Mcs, LockId::Cna, LockId::Mcscr, LockId::Shfl, LockId::Flash];

impl LockId {
    /// Whether it is one of [`PRINCIPAL`].
    pub fn is_principal(self) -> bool {
        PRINCIPAL.contains(&self)
    }

    /// What is known of it.
    pub fn info(self) -> &'static LockInfo {
        &LOCKS[self as usize]
    }

    /// The lock of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        LOCKS.iter().find(|lock| lock.name == name).map(|lock| lock.id)
    }
}

// For Miri; optimised, they would be most of what the tests of this crate take to compile.
#[cfg(all(test, debug_assertions))]
mod sound;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::rw::RW_LOCKS;

    #[test]
    fn ids_index_the_list_and_names_are_found() {
        for lock in LOCKS {
            assert_eq!(lock.id.info().name, lock.name);
            assert_eq!(LockId::from_name(lock.name), Some(lock.id));
        }
        assert_eq!(LockId::from_name("no-such-lock"), None);
    }

    /// What is said of a lock's fairness in words is what is checked of it.
    #[test]
    fn words_of_fairness_stand_for_claims() {
        for lock in LOCKS {
            let claims = |claim| lock.claims.contains(&claim);
            assert_eq!(lock.fair.starts_with("yes"), claims(Claim::InOrder), "{}", lock.name);
            assert_eq!(lock.fair.starts_with("bounded"), claims(Claim::Bounded), "{}", lock.name);
            assert!(claims(Claim::Bounded) || !claims(Claim::Twice), "{}", lock.name);
            assert_eq!(!lock.fair.starts_with("no"), claims(Claim::Serves), "{}", lock.name);
            assert!(lock.numa_aware || !claims(Claim::Local), "{}", lock.name);
        }
    }

    #[test]
    fn each_option_is_some_locks() {
        for option in OPTIONS {
            let mut rows = LOCKS.iter().map(|lock| &lock.facts).chain(RW_LOCKS.iter().map(|lock| &lock.facts));
            assert!(rows.any(|lock| lock.options.contains(&option.id)), "no lock takes {}", option.name);
        }
        assert!(LockId::Tas.info().option("bound").is_none() && LockId::Shfl.info().option("bound").is_some());
    }

    /// That they are as many is shown by `cargo xtask atomics`.
    #[test]
    fn compact_locks_are_acquired_by_one_atomic_and_released_by_one_at_most() {
        for lock in LOCKS.iter().filter(|lock| lock.numa != Numa::LockEach) {
            assert!(lock.atomics_lock == 1 && lock.atomics_unlock <= 1, "{}", lock.name);
        }
    }

    #[test]
    fn the_default_lock_can_do_everything() {
        assert!(DEFAULT.info().exceptions().next().is_none() && DEFAULT.is_principal());
        let strict = LockId::Mcs.info().exceptions();
        assert!(strict.map(|exception| exception.check).any(|check| check == "signals.frozen_*"));
    }
}
