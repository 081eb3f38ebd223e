//! The pool supplies more nodes at once than it has at the start.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::Handle;
use flashlock_native::{NoStats, pool};

fn take() -> Handle {
    // SAFETY: it is in no queue, and given back once.
    unsafe { pool::take() }
}

#[test]
fn the_pool_grows_and_its_nodes_are_distinct() {
    let wanted = 5 * pool::FIRST + 1;
    let mut taken: Vec<_> = (0..wanted).map(|_| take()).collect();
    for (index, handle) in taken.iter().enumerate() {
        pool::node::<NoStats>(*handle).since.0.store(index as u32, Relaxed);
    }
    for (index, handle) in taken.iter().enumerate() {
        assert_eq!(pool::node::<NoStats>(*handle).since.0.load(Relaxed), index as u32);
    }
    let lines: HashSet<_> = taken.iter().map(|handle| std::ptr::from_ref(pool::slot(*handle)) as usize / 128).collect();
    assert_eq!(lines.len(), wanted as usize);
    for handle in taken.drain(..) {
        pool::give(handle);
    }
    let again: HashSet<_> = (0..wanted).map(|_| take().word()).collect();
    assert_eq!((again.len(), pool::size()), (wanted as usize, wanted));
}
