//! The lock sizes that the catalogue states.

use flashlock_locks::catalogue::{LOCKS, STANDALONE};
use flashlock_locks::closure::{Delegate, RawClosure};
use flashlock_locks::parts::raw::{Raw, RawLock};
use flashlock_locks::rw;
use flashlock_locks::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};
use flashlock_native::{Native, Word32};

macro_rules! define_sizes {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// Each lock, with the sizes of its types' queues.
        const QUEUES: &[(&str, &[usize])] =
            &[$(($name, &[$(size_of::<<$type as RawLock<Native>>::Queue>()),+])),*];
    };
}
for_each_lock!(define_sizes);

/// Every lock can stand in a static, free: this need only compile.
const _: () = {
    macro_rules! in_static {
        (mutex, $type:ty) => {
            in_static!(Raw<Native, $type> = Raw::FREE)
        };
        (rw_lock, $type:ty) => {
            in_static!(rw::Raw<Native, $type> = rw::Raw::FREE)
        };
        (closure, $type:ty) => {
            in_static!(Delegate<Native, $type, u64> = Delegate::of(0))
        };
        // Its servers are started first.
        (served, $wait:ty) => {};
        ($lock:ty = $free:expr) => {{
            static LOCK: $lock = $free;
            let _ = &LOCK;
        }};
    }
    macro_rules! all {
        ($interface:ident: $(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
            $($(in_static!($interface, $type);)+)*
        };
    }
    macro_rules! mutexes {
        ($($rows:tt)*) => { all!(mutex: $($rows)*) };
    }
    macro_rules! rw_locks {
        ($($rows:tt)*) => { all!(rw_lock: $($rows)*) };
    }
    macro_rules! standalone {
        ($(($variant:ident, $name:literal, $interface:ident, $waits:tt, $facts:tt)),* $(,)?) => {
            $(all!($interface: ($variant, $name, $waits, $facts));)*
        };
    }
    for_each_lock!(mutexes);
    for_each_rw_lock!(rw_locks);
    for_each_standalone_lock!(standalone);
};

/// A lock consists of its queue, or its word, or both.
#[test]
fn locks_are_as_large_as_they_say() {
    for (lock, (name, queues)) in LOCKS.iter().zip(QUEUES) {
        assert_eq!(lock.name, *name);
        for queue in *queues {
            let possible = [*queue, *queue + size_of::<Word32>()];
            assert!(possible.contains(&(lock.bytes as usize)), "{name}: {} bytes, and {possible:?}", lock.bytes);
        }
        assert!(!name.starts_with("qspin") || (lock.bytes == 4 && queues.iter().all(|&queue| queue == 0)));
    }
}

/// The compact locks have the sizes of their papers (or ours, where a paper stores less: docs/locks).
#[test]
fn compact_locks_are_compact() {
    for (name, bytes) in [("qspin", 4), ("qspin-cna", 4), ("cna", 8), ("shfl", 12), ("shfl-spin", 12)] {
        let lock = LOCKS.iter().find(|lock| lock.name == name).expect("it is in the catalogue");
        assert_eq!(lock.bytes, bytes, "{name}");
    }
}

macro_rules! state {
    (mutex, $type:ty) => {
        size_of::<<$type as RawLock<Native>>::Queue>()
    };
    (closure, $type:ty) => {
        size_of::<<$type as RawClosure<Native>>::State>()
    };
    (served, $wait:ty) => {
        size_of::<flashlock_locks::closure::rcl::Lock<Native>>()
    };
}

macro_rules! define_standalone_sizes {
    ($(($variant:ident, $name:literal, $interface:ident, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        const APART_STATES: &[(&str, &[usize])] = &[$(($name, &[$(state!($interface, $type)),+])),*];
    };
}
for_each_standalone_lock!(define_standalone_sizes);

#[test]
fn standalone_locks_are_as_large_as_they_say() {
    for (lock, (name, states)) in STANDALONE.iter().zip(APART_STATES) {
        assert_eq!(lock.name, *name);
        // A mutex has a word beside its queue, except `null`.
        let word = if lock.interface == "mutex" && lock.bytes > 0 { size_of::<Word32>() } else { 0 };
        assert!(states.iter().all(|&bytes| bytes + word == lock.bytes as usize), "{name}: {states:?}");
    }
}
