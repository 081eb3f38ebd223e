//! If the kernel cannot wipe a page in a forked child, the C library's fork informs the child. Every lock then works in
//! the child, without the waiters that do not exist there. A system call filter imitates such a kernel.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use flashlock_erased::native::{MUTEXES, Mutex};
use flashlock_native::{epoch, registry};

/// Waiters in the parent that a child does not have.
const WAITERS: usize = 2;
/// Seconds that a child may take, in case of a hang.
const LIMIT: u32 = 60;

/// Makes `madvise(…, MADV_WIPEONFORK)` fail from now on in this thread, and in threads that it starts.
fn refuse_to_wipe() {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The system call's number is at offset 0, the low half of its third argument at 32.
    let mut steps = [
        step(load, 0, 0, 0),
        step(equal, 0, 3, libc::SYS_madvise as u32),
        step(load, 0, 0, 32),
        step(equal, 0, 1, libc::MADV_WIPEONFORK as u32),
        step(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        step(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program lives until the call returns; the kernel copies it.
    let outcomes = unsafe {
        let alone = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        [alone, libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)]
    };
    assert_eq!(outcomes, [0, 0]);
}

/// Forks. Returns how the child ended: with the result of `body`, or killed.
fn in_a_child(body: impl FnOnce() -> bool) -> Result<(), String> {
    // SAFETY: the child uses locks and nothing else from the parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm kills a child that hangs; the child ends without the parent's destructors.
        unsafe {
            libc::alarm(LIMIT);
            libc::_exit(i32::from(!body()));
        }
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    match status {
        0 => Ok(()),
        status if libc::WIFSIGNALED(status) => Err(format!("killed by signal {}", libc::WTERMSIG(status))),
        _ => Err("it says no".into()),
    }
}

/// The forking thread holds the lock, and others wait. The child releases the lock and has no waiters.
fn works_in_a_child(lock: &Mutex) -> Result<(), String> {
    let waiting = AtomicU32::new(0);
    std::thread::scope(|scope| {
        lock.lock();
        for _ in 0..WAITERS {
            scope.spawn(|| {
                waiting.fetch_add(1, Relaxed);
                lock.lock();
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            });
        }
        while waiting.load(Relaxed) < WAITERS as u32 {
            std::thread::yield_now();
        }
        // Usually they are in the queue by now. The test holds in either case.
        std::thread::sleep(Duration::from_millis(2));
        let outcome = in_a_child(|| {
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
            let uses = (0..100).all(|_| {
                lock.lock();
                let refused = !lock.try_lock();
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
                refused
            });
            let free = lock.try_lock();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
            uses && free
        });
        // SAFETY: this thread holds it.
        unsafe { lock.unlock() };
        outcome
    })
}

fn check_locks() {
    for entry in MUTEXES {
        assert_eq!(works_in_a_child(&(entry.new)()), Ok(()), "{}", entry.name);
    }
}

#[test]
fn the_c_library_tells_a_child() {
    refuse_to_wipe();
    let parents = epoch::current();
    let differs = || in_a_child(move || epoch::current() != parents);
    assert_eq!(differs(), Err("it says no".into()), "nobody has told the child yet, so it must not know");
    registry::prepare();
    assert_eq!(differs(), Ok(()));
    // A child's child is informed too.
    assert_eq!(
        in_a_child(|| {
            let childs = epoch::current();
            in_a_child(|| ![parents, childs].contains(&epoch::current())).is_ok()
        }),
        Ok(())
    );
    check_locks();
}
