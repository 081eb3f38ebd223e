//! Waiting by UMONITOR and UMWAIT, on any CPU. A CPU without them raises an exception, and a signal handler does what
//! the instructions would have done. So the instructions are executed as assembled, by the CPU or by the handler; the
//! handler also records their operands.

#![cfg(target_arch = "x86_64")]

use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

use flashlock_locks::machine::{Patience, Time as _};
use flashlock_native::umwait::{self, LIGHT};
use flashlock_native::{Native, NoStats, clock, spin};

type Here = Native<NoStats>;

/// What the handler has recorded: how often each instruction was executed, the last armed address, and the contents of
/// its line.
static ARMED: AtomicU64 = AtomicU64::new(0);
static RESTED: AtomicU64 = AtomicU64::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static LINE: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
/// The operands of the last UMWAIT.
static DEPTH: AtomicU32 = AtomicU32::new(u32::MAX);
static UNTIL: AtomicU64 = AtomicU64::new(0);

const LINE_BYTES: usize = 64;
/// A word on its own cache line.
#[repr(align(64))]
struct Lone(AtomicU32);

fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has RDTSC.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// One of the two instructions.
#[derive(Debug, PartialEq)]
enum Decoded {
    /// UMONITOR of the address in this register: F3 0F AE /6.
    Umonitor(u8),
    /// UMWAIT with its depth in this register: F2 0F AE /6.
    Umwait(u8),
}

/// Decodes the instruction; also returns its length.
fn decode(bytes: [u8; 5]) -> Option<(Decoded, usize)> {
    let rex = usize::from(bytes[1] & 0xF0 == 0x40);
    let high = if rex == 1 { (bytes[1] & 1) << 3 } else { 0 };
    let [0x0F, 0xAE, modrm] = bytes[1 + rex..][..3] else { return None };
    if modrm & 0b1111_1000 != 0b1111_0000 {
        return None;
    }
    let register = modrm & 7 | high;
    match bytes[0] {
        0xF3 => Some((Decoded::Umonitor(register), 4 + rex)),
        0xF2 => Some((Decoded::Umwait(register), 4 + rex)),
        _ => None,
    }
}

/// The general registers, by their numbers in instructions.
const REGISTERS: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The words of the armed line.
fn armed_line() -> impl Iterator<Item = u32> {
    let line = ADDRESS.load(Relaxed) & !(LINE_BYTES - 1);
    // SAFETY: the line of a `Lone`, which the test keeps alive.
    (0..LINE_BYTES / 4).map(move |index| unsafe { AtomicU32::from_ptr((line as *mut u32).add(index)) }.load(Acquire))
}

/// Does what the CPU cannot do.
extern "C" fn perform(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the third argument of a handler with SA_SIGINFO. The instruction is mapped, and at least four more bytes
    // follow, because no function ends there.
    let (registers, bytes) = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let bytes = *(context.uc_mcontext.gregs[libc::REG_RIP as usize] as *const [u8; 5]);
        (&mut context.uc_mcontext.gregs, bytes)
    };
    let get = |register: u8, registers: &[i64; 23]| registers[REGISTERS[usize::from(register)] as usize];
    let length = match decode(bytes) {
        Some((Decoded::Umonitor(register), length)) => {
            ADDRESS.store(get(register, registers) as usize, Relaxed);
            LINE.iter().zip(armed_line()).for_each(|(kept, word)| kept.store(word, Relaxed));
            ARMED.fetch_add(1, SeqCst);
            length
        }
        Some((Decoded::Umwait(register), length)) => {
            let low = |register: i32| registers[register as usize] as u32;
            let until = u64::from(low(libc::REG_RDX)) << 32 | u64::from(low(libc::REG_RAX));
            DEPTH.store(get(register, registers) as u32, Relaxed);
            UNTIL.store(until, Relaxed);
            RESTED.fetch_add(1, SeqCst);
            let same = || LINE.iter().zip(armed_line()).all(|(kept, word)| kept.load(Relaxed) == word);
            while same() && counter() < until {
                std::hint::spin_loop();
            }
            length
        }
        // SAFETY: any other instruction is illegal, as it would be without the handler.
        None => return unsafe { _ = libc::signal(signal, libc::SIG_DFL) },
    };
    registers[libc::REG_RIP as usize] += length as i64;
}

/// Admits one test at a time, because the handler's records are shared. Returns whether the handler, not the CPU,
/// executes the instructions.
fn instructions() -> (MutexGuard<'static, ()>, bool) {
    static TURN: Mutex<()> = Mutex::new(());
    static HANDLER: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let performed = !umwait::is_there();
    if performed {
        HANDLER.call_once(|| {
            // SAFETY: all-zero is a valid action; the handler accesses atomics, its context and the watched line.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = perform as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
            }
        });
    }
    println!(
        "{}",
        if performed { "not run on this CPU, which has no WAITPKG: performed by a handler" } else { "run on this CPU" }
    );
    (turn, performed)
}

fn counts() -> (u64, u64) {
    (ARMED.load(SeqCst), RESTED.load(SeqCst))
}

#[test]
fn the_handler_knows_what_it_performs() {
    assert_eq!(decode([0xF3, 0x0F, 0xAE, 0xF0, 0x90]), Some((Decoded::Umonitor(0), 4)));
    assert_eq!(decode([0xF3, 0x41, 0x0F, 0xAE, 0xF1]), Some((Decoded::Umonitor(9), 5)));
    assert_eq!(decode([0xF2, 0x0F, 0xAE, 0xF7, 0x90]), Some((Decoded::Umwait(7), 4)));
    // TPAUSE, MFENCE, CLWB.
    for other in [[0x66, 0x0F, 0xAE, 0xF0, 0x90], [0x0F, 0xAE, 0xF0, 0x90, 0x90], [0x66, 0x0F, 0xAE, 0x30, 0x90]] {
        assert_eq!(decode(other), None);
    }
}

#[test]
fn a_rest_has_the_operands_that_were_meant() {
    let (_turn, performed) = instructions();
    let word = Lone(AtomicU32::new(7));
    let (armed, rested) = counts();
    let until = counter() + 300_000;
    // SAFETY: the CPU or the handler executes the instructions.
    unsafe { umwait::rest(&word.0, 7, until) };
    if performed {
        assert!(counter() >= until, "nothing has changed");
        assert_eq!(counts(), (armed + 1, rested + 1));
        assert_eq!(ADDRESS.load(Relaxed), word.0.as_ptr() as usize);
        assert_eq!((DEPTH.load(Relaxed), UNTIL.load(Relaxed)), (LIGHT, until));
    }
}

/// A change between the waiter's look and the watch on the line would otherwise go unnoticed until the end of the rest.
#[test]
fn nobody_rests_on_a_word_that_has_changed_already() {
    let (_turn, performed) = instructions();
    let word = Lone(AtomicU32::new(8));
    let (armed, rested) = counts();
    // SAFETY: the CPU or the handler executes the instructions.
    unsafe { umwait::rest(&word.0, 7, counter() + 1_000_000_000) };
    if performed {
        assert_eq!(counts(), (armed + 1, rested));
    }
}

#[test]
fn who_rests_sees_the_change_and_what_was_written_before_it() {
    let (_turn, performed) = instructions();
    let shared = Arc::new((Lone(AtomicU32::new(0)), AtomicU32::new(0)));
    for round in 1..=200 {
        let waiter = {
            let shared = shared.clone();
            std::thread::spawn(move || {
                // SAFETY: the CPU or the handler executes the instructions.
                let seen = unsafe { spin::watch(&shared.0.0, Acquire, Patience::Forever, |seen| seen == round) };
                (seen, shared.1.load(Relaxed))
            })
        };
        let (begun, before) = (Instant::now(), counts().1);
        if performed && round % 4 == 0 {
            // The change comes while the waiter rests.
            while counts().1 == before {
                assert!(begun.elapsed() < Duration::from_secs(600), "nobody rests");
                std::thread::yield_now();
            }
        } else if round % 2 == 0 {
            while begun.elapsed() < Duration::from_micros(u64::from(round)) {
                std::hint::spin_loop();
            }
        }
        shared.1.store(round, Relaxed);
        shared.0.0.store(round, Release);
        assert_eq!(waiter.join().unwrap(), (Some(round), round));
    }
}

/// Patience also ends by the waiter's own clock: each rest is short, and the waiter looks at the clock in between.
#[test]
fn patience_ends() {
    let (_turn, performed) = instructions();
    let word = Lone(AtomicU32::new(0));
    let mut looks = 0;
    let mut watch = |patience| {
        let before = counts().1;
        // SAFETY: the CPU or the handler executes the instructions.
        let seen = unsafe {
            spin::watch(&word.0, Acquire, patience, |_| {
                looks += 1;
                false
            })
        };
        assert_eq!(seen, None);
        counts().1 - before
    };
    watch(Patience::Budget);
    let begun = clock::now();
    let rests = watch(Patience::Until(Here::sooner(3_000, None)));
    assert!(clock::now() - begun > 2_000_000 && looks > 10, "{looks}");
    assert!(!performed || rests > 2, "{rests}");
}
