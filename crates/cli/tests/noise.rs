//! `flashlock compare` on a machine that is not quiet.

mod common;

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use common::{eventually, flashlock};
use predicates::prelude::*;

/// Takes a CPU for a few milliseconds, leaves it for a few, never equally many, until `stop` is set.
fn hog(stop: &AtomicBool, number: u64) {
    let mut bits = 0x9E37_79B9_7F4A_7C15 ^ number;
    while !stop.load(Relaxed) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        let until = Instant::now() + Duration::from_micros(1_000 + bits % 8_000);
        while Instant::now() < until {
            spin_loop();
        }
        thread::sleep(Duration::from_micros(bits >> 32 & 0x1FFF));
    }
}

/// Whether a short comparison calls the machine noisy, and, if so, whether it says why.
fn is_notified() -> bool {
    let output =
        flashlock().args(["compare", "--locks", "shfl", "--runs", "8", "--", "sleep", "0.06"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("Advice:"), "{text}");
    let told = text.contains("Noisy: ");
    assert!(!told || predicates::str::contains("Other programs use this machine").eval(&text), "{text}");
    told
}

/// Ends the hogs, also after a failed assertion.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_comparison_beside_programs_that_want_the_cpus_says_so() {
    let (stop, cpus) = (AtomicBool::new(false), thread::available_parallelism().map_or(1, usize::from) as u64);
    thread::scope(|scope| {
        for number in 0..3 * cpus {
            let stop = &stop;
            scope.spawn(move || hog(stop, number));
        }
        let _end = End(&stop);
        // A noisy machine can have a quiet moment.
        eventually("a comparison beside busy threads calls the machine noisy", is_notified);
    });
}
