//! Two shared objects that have the locks in them each, in one process: a lock excludes through both, and goes on when
//! one is unloaded.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

const KINDS: u32 = 3;
const THREADS: usize = 3;
const ROUNDS: u64 = 4_000;

/// A lock's words, in memory of nobody's who may be unloaded, and what it protects: without it additions are lost.
#[derive(Default)]
#[repr(C)]
struct Shared {
    lock: [AtomicU32; 5],
    count: UnsafeCell<u64>,
}

// SAFETY: the count is accessed under the lock, which is the test.
unsafe impl Sync for Shared {}

/// A copy of the object.
#[derive(Clone, Copy)]
struct Copy {
    handle: *mut c_void,
    lock: extern "C" fn(u32, *const [AtomicU32; 5]),
    unlock: extern "C" fn(u32, *const [AtomicU32; 5]),
    registry: extern "C" fn() -> usize,
}

// SAFETY: functions, and a handle that any thread may use.
unsafe impl Send for Copy {}

/// The object that cargo has built beside this test.
fn object() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.with_file_name("libflashlock_two_copies.so")
}

fn load(path: &Path) -> Copy {
    let name = CString::new(path.to_str().expect("a plain path")).expect("no zero");
    let symbol = |handle, name: &str| {
        let name = CString::new(name).expect("no zero");
        // SAFETY: an open handle and a string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    };
    // SAFETY: the object's constructors are ours; its functions have these types.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{}: build it with this package", path.display());
        Copy {
            handle,
            lock: std::mem::transmute::<*mut c_void, extern "C" fn(u32, *const [AtomicU32; 5])>(symbol(
                handle,
                "two_copies_lock",
            )),
            unlock: std::mem::transmute::<*mut c_void, extern "C" fn(u32, *const [AtomicU32; 5])>(symbol(
                handle,
                "two_copies_unlock",
            )),
            registry: std::mem::transmute::<*mut c_void, extern "C" fn() -> usize>(symbol(
                handle,
                "two_copies_registry",
            )),
        }
    }
}

impl Copy {
    /// One section under each lock.
    fn round(self, shared: &[Shared]) {
        for (kind, Shared { lock, count }) in (0..KINDS).zip(shared) {
            (self.lock)(kind, lock);
            // SAFETY: under the lock.
            unsafe { *count.get() += 1 };
            (self.unlock)(kind, lock);
        }
    }

    fn run(self, shared: &Arc<[Shared]>, go_on: impl Fn(u64) -> bool + Send + 'static) -> thread::JoinHandle<u64> {
        let shared = shared.clone();
        thread::spawn(move || {
            let copy = self;
            let mut done = 0;
            while go_on(done) {
                copy.round(&shared);
                done += 1;
            }
            done
        })
    }
}

#[test]
fn locks_exclude_through_both_and_outlive_one() {
    let directory = std::env::temp_dir().join(format!("flashlock-two-copies-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let paths = ["one.so", "two.so"].map(|name| directory.join(name));
    for path in &paths {
        std::fs::copy(object(), path).expect("a copy");
    }
    let [one, two] = paths.each_ref().map(|path| load(path));
    assert_ne!(one.lock as usize, two.lock as usize, "one object");
    assert_eq!((one.registry)(), (two.registry)(), "two registries");

    let shared: Arc<[Shared]> = (0..KINDS).map(|_| Shared::default()).collect();
    // Those of the second copy go on while the first is unloaded; so does one thread that has used both.
    let (unloaded, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let until_later = {
        let unloaded = unloaded.clone();
        move |done| !unloaded.load(SeqCst) || done < ROUNDS
    };
    let survivors: Vec<_> = (0..THREADS).map(|_| two.run(&shared, until_later.clone())).collect();
    let of_both = {
        let (shared, ends) = (shared.clone(), ends.clone());
        let copies = [one, two];
        thread::spawn(move || {
            let copies = copies;
            copies.iter().cycle().take(2 * ROUNDS as usize).for_each(|copy| copy.round(&shared));
            ends.wait();
            ends.wait();
            copies[1].round(&shared);
            2 * ROUNDS + 1
        })
    };
    let first: Vec<_> = (0..THREADS).map(|_| one.run(&shared, |done| done < ROUNDS)).collect();
    let mut expected: u64 = first.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    ends.wait();

    let name = CString::new(paths[0].to_str().expect("a plain path")).expect("no zero");
    // SAFETY: nobody uses the first copy any more.
    unsafe {
        assert_eq!(libc::dlclose(one.handle), 0);
        assert!(libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_null(), "it is still there");
    }
    unloaded.store(true, SeqCst);
    ends.wait();
    expected += of_both.join().expect("no panic");
    expected += survivors.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>();
    for (kind, Shared { count, .. }) in shared.iter().enumerate() {
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *count.get() }, expected, "sections under lock {kind}");
    }
    std::fs::remove_dir_all(&directory).expect("ours");
}
