//! The kernel has no `membarrier`, or a sandbox refuses it: then both sides of each fence are fences.

mod common;

use std::os::unix::process::CommandExt as _;

use common::{Data, again, is_again, limited, server, torture};
use flashlock_delegation::Delegated;
use flashlock_locks::parts::wait::{Park, SpinThenPark, WaitPolicy};

const ROUNDS: u64 = 3_000;

/// From now on `membarrier` is a call that the kernel does not know. For this thread, and what it starts.
fn refuse() -> std::io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let say = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    // A system call's number is the first word of what a filter sees.
    let mut filter = [
        say(LOAD, 0, 0),
        say(IF_EQUAL, 1, libc::SYS_membarrier as u32),
        say(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        say(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is readable, and so are its steps.
    let is_refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if is_refused { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn without<W: WaitPolicy>() {
    let server = server();
    torture(&Delegated::<Data, W>::waiting_on(&server, Data::default()), ROUNDS, |_, _| ());
    assert!(!server.statistics().membarrier, "it was to be refused");
    // Locks move, and a server closes.
    let (first, second) = (common::server(), common::server());
    torture(&Delegated::<Data, W>::waiting(Data::default()), ROUNDS, |data, over| {
        for turn in 0.. {
            if over() {
                break;
            }
            data.assign([Some(&first), None, Some(&second)][turn % 3]);
            std::thread::yield_now();
        }
    });
}

#[test]
fn servers_without_membarrier() {
    if is_again() {
        return limited("without membarrier", || {
            without::<Park>();
            without::<SpinThenPark>();
        });
    }
    let done = again("servers_without_membarrier", |command| {
        // SAFETY: two system calls, which may be made after a fork.
        unsafe { command.pre_exec(refuse) };
    });
    assert!(done.status.success(), "{done:?}");
}
