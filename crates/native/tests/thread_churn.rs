//! Threads come and go, and use locks until their very end. The number of nodes then is at most what was needed at
//! once, plus those that are kept for next waits.

use core::ffi::c_void;

use flashlock_native::{pool, thread};

const THREADS: usize = 20_000;
const AT_ONCE: usize = 8;
/// The number of lines on which nodes are kept.
const KEPT: u32 = 1024;
/// The most nodes that there may be.
const MOST: u32 = AT_ONCE as u32 + KEPT;

fn wait_once() {
    // SAFETY: it is given back at once.
    thread::give_node(unsafe { thread::take_node() });
}

/// Asks to be called again as often as the C library allows, so that the last wait comes after all destructors.
extern "C" fn wait_in_destructor(key: *mut c_void) {
    wait_once();
    // SAFETY: the key exists for the whole test.
    unsafe { libc::pthread_setspecific(key as usize as libc::pthread_key_t - 1, key) };
}

/// By how many nodes the pool grows while so many threads come and go.
fn grown(threads: usize, body: impl Fn() + Copy + Send + 'static) -> u32 {
    let before = pool::size();
    for _ in 0..threads / AT_ONCE {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| std::thread::spawn(body)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    pool::size() - before
}

#[test]
fn threads_that_end_leave_no_nodes_behind() {
    let mut key = 0;
    // SAFETY: `key` is writable, and the destructor has the right type.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(wait_in_destructor)) }, 0);
    let body = move || {
        wait_once();
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, (key as usize + 1) as *const c_void) };
    };
    let nodes = grown(THREADS, body);
    assert!(nodes <= MOST, "{nodes} nodes after {THREADS} threads, {AT_ONCE} at once");

    // Kept nodes are used before more memory.
    // SAFETY: each is given back once, and nothing else is done with it.
    let taken: Vec<_> = (0..pool::FIRST).map(|_| unsafe { thread::take_node() }).collect();
    assert_eq!(pool::size(), pool::FIRST);
    taken.into_iter().for_each(pool::give);

    // The bug that this would find: each thread keeps a node when it ends.
    let keep_one = || {
        // SAFETY: it is in no queue.
        _ = unsafe { thread::take_node() };
    };
    let nodes = grown((pool::FIRST + 2 * MOST) as usize, keep_one);
    assert!(nodes > MOST, "nodes that are kept by threads that have ended are not noticed");
}
