//! The system refuses threads.

mod common;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use common::limited;
use flashlock_delegation::{Delegated, Options, Server};

/// Nothing here waits for a time-out.
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

/// How many more threads there may be.
static ALLOWED: AtomicI32 = AtomicI32::new(i32::MAX);

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// Stands before the C library's.
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    body: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    static NEXT: OnceLock<Create> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        // SAFETY: the name ends with a zero; the symbol is the function of that type.
        unsafe { std::mem::transmute::<*mut c_void, Create>(libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr())) }
    });
    if ALLOWED.fetch_sub(1, Relaxed) <= 0 {
        return libc::EAGAIN;
    }
    // SAFETY: the callers' promise.
    unsafe { next(thread, attributes, body, argument) }
}

/// The manager is there, but it gets no servicing thread.
#[test]
fn a_server_without_threads_closes() {
    limited("a server without threads", || {
        std::thread::scope(|scope| {
            let (server_at, asks) = std::sync::mpsc::channel::<Delegated<u32>>();
            let client = scope.spawn(move || {
                let data = asks.recv().expect("sent below");
                data.run(|count| *count += 1);
                data.into_inner()
            });
            ALLOWED.store(1, Relaxed);
            let server = Server::open(Options { timeout: HOUR, ..Options::default() }).expect("one thread is allowed");
            server_at.send(Delegated::on(&server, 0)).expect("the client waits");
            while server.statistics().threads_short == 0 {
                std::thread::yield_now();
            }
            server.close();
            ALLOWED.store(i32::MAX, Relaxed);
            assert_eq!(client.join().expect("no panic"), 1);
        });
    });
}
