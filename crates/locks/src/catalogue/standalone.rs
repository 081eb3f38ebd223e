//! # Standalone locks
//!
//! The list of those that no program can be run under. They can be simulated, and used by code that is written for
//! them.

use core::ops::Deref;

use super::Facts;

/// Calls `$use` with every standalone lock: `(Variant, "name", interface, [wait => type, …], { facts })`. The
/// interface is `mutex` for a [`RawLock`](crate::parts::raw::RawLock), `closure` for a
/// [`RawClosure`](crate::closure::RawClosure), `served` for a lock whose sections a server runs: then the type is how
/// its clients wait. The rest is as in [`for_each_lock!`](crate::for_each_lock), and why no unmodified program can run
/// under it.
#[macro_export]
macro_rules! for_each_standalone_lock {
    ($use:path) => {
        $use! {
            (Null, "null", mutex, [spin => $crate::mutex::spin::Null], {
                title: "no lock: measures what a benchmark itself costs",
                paper: "lock benchmarks",
                source: "mutex/spin/null.rs",
                bytes: 0, bytes_per_waiter: 0, atomics: 0,
                fair: "no: it is no lock, so no thread waits",
                why_standalone: "it does not exclude other threads; it is for measuring benchmarks",
            }),
            (Cas, "cas", mutex, [spin => $crate::mutex::spin::Cas], {
                title: "CAS in a loop, without back-off",
                paper: "Lozi, David, Thomas, Lawall & Muller, ATC 2012, figure 6",
                source: "mutex/spin/cas.rs",
                bytes: 4, bytes_per_waiter: 0, atomics: 1,
                fair: "no: the first attempt after a release wins",
                why_standalone: "it collapses under contention; it is for comparison with papers",
            }),
            (FlatCombining, "flat-combining", closure, [
                stp => $crate::closure::FlatCombining<$crate::parts::wait::SpinThenPark>,
                spin => $crate::closure::FlatCombining<$crate::parts::wait::Spin>,
                park => $crate::closure::FlatCombining<$crate::parts::wait::Park>,
                umwait => $crate::closure::FlatCombining<$crate::parts::wait::Umwait>
            ], {
                title: "threads publish requests; the lock holder runs all of them",
                paper: "Hendler, Incze, Shavit & Tzafrir, SPAA 2010",
                source: "closure/flat_combining.rs",
                bytes: 20, bytes_per_waiter: 128, atomics: 2,
                fair: "no: a request may be missed again and again",
                why_standalone: "it runs closures, which programs with pthread mutexes do not have",
            }),
            (CcSynch, "cc-synch", closure, [
                stp => $crate::closure::CcSynch<$crate::parts::wait::SpinThenPark>,
                spin => $crate::closure::CcSynch<$crate::parts::wait::Spin>,
                park => $crate::closure::CcSynch<$crate::parts::wait::Park>,
                umwait => $crate::closure::CcSynch<$crate::parts::wait::Umwait>
            ], {
                title: "queue of requests; the first thread runs those of the others",
                paper: "Fatourou & Kallimanis, PPoPP 2012, algorithm 1",
                source: "closure/cc_synch.rs",
                bytes: 4, bytes_per_waiter: 128, atomics: 2,
                fair: "yes: first come, first served",
                why_standalone: "it runs closures, which programs with pthread mutexes do not have",
            }),
            (Rcl, "rcl", served, [
                stp => $crate::parts::wait::SpinThenPark,
                spin => $crate::parts::wait::Spin,
                park => $crate::parts::wait::Park,
                umwait => $crate::parts::wait::Umwait
            ], {
                title: "a server thread runs the critical sections of all threads",
                paper: "Lozi, David, Thomas, Lawall & Muller, ATC 2012",
                source: "closure/rcl/mod.rs",
                bytes: 8, bytes_per_waiter: 64, atomics: 0,
                fair: "in rounds: the server serves each client once in every scan",
                why_standalone: "it needs a server thread, so programs are written for it, with libflashlock_rcl "
                    "(C, C++) or the crate flashlock-delegation (Rust)",
            }),
        }
    };
}

/// What is known of a standalone lock.
#[derive(Clone, Copy, Debug)]
pub struct StandaloneInfo {
    /// Which one it is.
    pub id: StandaloneId,
    /// What is known of any lock.
    pub facts: Facts,
    /// What it offers: `mutex`, `closure` or `served`.
    pub interface: &'static str,
    /// Atomic read-modify-writes of a section for which nobody waits.
    pub atomics: u32,
    /// Why no program can be run under it.
    pub why_standalone: &'static str,
}

impl Deref for StandaloneInfo {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

macro_rules! define_standalone {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], {
        title: $title:literal, paper: $paper:literal, source: $source:literal,
        bytes: $bytes:literal, bytes_per_waiter: $waiter:literal,
        atomics: $atomics:literal, fair: $fair:literal, why_standalone: $($why:literal)+ $(,)?
    })),* $(,)?) => {
        /// Names a standalone lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StandaloneId {
            $(#[doc = $title] $variant),*
        }

        /// All standalone locks, in the order in which they are shown.
        pub const STANDALONE: &[StandaloneInfo] = &[$(StandaloneInfo {
            id: StandaloneId::$variant,
            facts: Facts {
                name: $name, title: $title, paper: $paper, source: $source, bytes: $bytes, bytes_per_waiter: $waiter,
                numa_aware: false, fair: $fair, waits: &[$(stringify!($wait)),+], options: &[], limits: &[],
            },
            interface: stringify!($interface), atomics: $atomics, why_standalone: concat!($($why),+),
        }),*];
    };
}

for_each_standalone_lock!(define_standalone);

impl StandaloneId {
    /// What is known of it.
    pub fn info(self) -> &'static StandaloneInfo {
        &STANDALONE[self as usize]
    }

    /// The lock of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        STANDALONE.iter().find(|lock| lock.name == name).map(|lock| lock.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::LockId;
    use crate::catalogue::rw::RwId;

    #[test]
    fn ids_index_the_list_and_names_are_nobody_elses() {
        for lock in STANDALONE {
            assert_eq!((lock.id.info().name, StandaloneId::from_name(lock.name)), (lock.name, Some(lock.id)));
            assert!(LockId::from_name(lock.name).is_none() && RwId::from_name(lock.name).is_none(), "{}", lock.name);
        }
    }
}
