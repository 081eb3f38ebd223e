//! Gives the default lock's own measurements (`crates/native/src/evidence.rs`) something to measure.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use flashlock_locks::machine::{Look, Waiting};
use flashlock_locks::mutex::flash::evidence::second_look;
use flashlock_native::{Native, Word32, evidence, sys};

use crate::cpu;

/// How often a line is handed back and forth.
const HAND_OVERS: u32 = 4_000;
/// How often a thread is woken.
const WAKE_UPS: u32 = 64;
/// How long a thread polls for the line, in µs, before it yields its CPU.
const POLL: u32 = 100;
/// How long a sleeping thread sleeps before it is woken, in µs.
const ASLEEP: u32 = 100;

/// Two threads hand a word back and forth, and poll for it like the lock. Returns the first thread's cost of the line's
/// transfer, in ticks, and the resulting second look.
pub fn hand_over(cpus: [u32; 2]) -> Option<(Option<u32>, u32)> {
    /// The word and a second word, on a line of their own.
    #[repr(align(128))]
    struct Line(AtomicU32, AtomicU32);
    let line = Line(AtomicU32::new(0), AtomicU32::new(0));
    let play = |mine: u32| {
        for round in 0..HAND_OVERS {
            let turn = 2 * round + mine;
            let mut last = None;
            let mut look = |seen: u32, _| {
                let came = last.replace(seen).is_some_and(|last| last != seen);
                if seen == turn { Look::End { came } } else { Look::Again { pause: 1, came } }
            };
            while !evidence::poll(&line.0, &line.1, POLL, &mut look) {
                sys::yield_now();
            }
            // Relaxed: only the word is handed over.
            line.0.store(turn + 1, Relaxed);
        }
    };
    let first = || {
        play(0);
        (evidence::transfer_ticks(), second_look::<Native>())
    };
    cpu::both(cpus, first, || play(1))
}

/// One thread wakes the other, which sleeps like a lock's waiter.
pub fn wake_up(cpus: [u32; 2]) -> Option<()> {
    let (word, asleep) = (Word32(AtomicU32::new(0)), AtomicU32::new(0));
    let sleep = || {
        for round in 0..WAKE_UPS {
            asleep.store(round + 1, Relaxed);
            while word.0.load(Relaxed) == round {
                <Native as Waiting>::park(&word, round, None);
            }
        }
    };
    let wake = || {
        for round in 0..WAKE_UPS {
            while asleep.load(Relaxed) <= round {
                sys::yield_now();
            }
            sys::nap(ASLEEP);
            word.0.store(round + 1, Relaxed);
            <Native as Waiting>::wake(&raw const word, 1);
        }
    };
    cpu::both(cpus, wake, sleep)
}
