//! What the catalogue says of the bytes of a lock.

use flashlock_locks::catalogue::LOCKS;
use flashlock_locks::for_each_lock;
use flashlock_locks::raw::RawLock;
use flashlock_native::{Native, Word32};

macro_rules! define_sizes {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], $facts:tt)),* $(,)?) => {
        /// The lock, and the queues of its types.
        const QUEUES: &[(&str, &[usize])] =
            &[$(($name, &[$(size_of::<<$type as RawLock<Native>>::Queue>()),+])),*];
    };
}
for_each_lock!(define_sizes);

/// A lock is its queue, or its word, or both.
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
