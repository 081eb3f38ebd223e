//! What an adaptive lock costs while it is ordinary and nobody else wants it, beside one that is ordinary for good.
//! Under callgrind: `--toggle-collect=flashlock_ordinary`, or `flashlock_adaptive`.
//!
//! `uncontended SECTIONS` runs so many of each, and prints how many.

use std::process::ExitCode;

use flashlock_delegation::Delegated;
use flashlock_delegation::adapt::{Governor, Thresholds};

#[unsafe(no_mangle)]
#[inline(never)]
fn flashlock_ordinary(data: &Delegated<u64>, sections: u64) {
    (0..sections).for_each(|_| data.run(|count| *count += 1));
}

#[unsafe(no_mangle)]
#[inline(never)]
fn flashlock_adaptive(data: &Delegated<u64>, sections: u64) {
    (0..sections).for_each(|_| data.run(|count| *count = std::hint::black_box(*count) + 1));
}

fn main() -> ExitCode {
    let Some(sections) = std::env::args().nth(1).and_then(|word| word.parse().ok()) else {
        eprintln!("usage: uncontended SECTIONS");
        return ExitCode::from(2);
    };
    let (ordinary, governor) = (Delegated::new(0), Governor::new(Thresholds::NEVER));
    let adaptive = Delegated::governed(&governor, "adaptive", 0);
    flashlock_ordinary(&ordinary, sections);
    flashlock_adaptive(&adaptive, sections);
    let counts = [ordinary, adaptive].map(Delegated::into_inner);
    println!("ordinary={} adaptive={}", counts[0], counts[1]);
    if counts == [sections; 2] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
