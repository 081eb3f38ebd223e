//! A forked child has none of its parent's servers: delegated locks are ordinary there, and it may open servers of its
//! own.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::{limited, server};
use flashlock_delegation::Delegated;

/// Whether the check holds in a forked child.
fn in_a_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses what it checks, and ends without the parent's destructors. (glibc makes its allocator
    // usable there.)
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = if check() { 0 } else { 1 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
}

/// The parent's threads are not there, so there is nobody to wait for.
#[test]
fn a_child_drops_its_parents_server() {
    limited("a server dropped in a child", || {
        let mut server = Some(server());
        assert!(in_a_child(|| {
            drop(server.take());
            // One whose threads may have the memory of those that are gone.
            let own = common::server();
            Delegated::<u32>::on(&own, 7).run(|value| *value) == 7
        }));
        assert!(server.is_some_and(|server| server.is_open()));
    });
}

#[test]
fn a_forked_child_goes_on() {
    limited("a forked child", || {
        let server = server();
        let data = Delegated::<u32>::on(&server, 0);
        let busy = Delegated::<u64>::on(&server, 0);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    busy.run(|count| *count += 1);
                }
            });
            data.run(|count| *count += 1);
            for _ in 0..20 {
                assert!(in_a_child(|| {
                    data.run(|count| *count += 1);
                    data.run(|count| *count) == 2 && data.server().is_none()
                }));
            }
            assert!(in_a_child(|| {
                let server = common::server();
                data.assign(Some(&server));
                data.run(|count| *count += 1);
                data.run(|count| *count) == 2 && data.server() == Some(server.number())
            }));
            over.store(true, Relaxed);
        });
        assert_eq!(data.run(|count| *count), 1);
        assert!(data.server().is_some());
    });
}
