//! What one CPU measures alone: its clock, caches, memory, and operations on its own lines.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use flashlock_report::statistics::Spread;

use super::effort::Effort;
use super::lines::{LINE, Lines, Touch};

const PAGE: usize = 4096;
/// More pages than a CPU's TLB has translations.
const PAGES: usize = 8 << 10;

/// A line that no other CPU uses.
#[repr(align(128))]
struct Own(AtomicU64);

/// The median of some measurements, in ns.
pub fn median(effort: Effort, mut measure: impl FnMut() -> f64) -> Option<f64> {
    let times: Vec<f64> = (0..effort.repetitions()).map(|_| measure()).collect();
    Spread::of(&times).map(|spread| spread.median)
}

/// The clock in GHz, from a chain of operations that take a cycle each.
pub fn clock(effort: Effort) -> Option<f64> {
    /// An exclusive or, a rotation and an addition that depend on each other.
    const CYCLES: f64 = 3.0;
    let steps = effort.steps();
    let key = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let ns = median(effort, || {
        let mut value = black_box(1_u64);
        let ns = per_step(steps, || value = (value ^ key).rotate_left(7).wrapping_add(key));
        black_box(value);
        ns
    })?;
    Some(CYCLES / ns)
}

/// A load, in ns, while so many bytes are used in turn. They are in the memory of the caller's node.
pub fn load(effort: Effort, bytes: usize) -> Option<f64> {
    walk(effort, &Lines::new(bytes, 1)?)
}

/// The same for memory that another thread has allocated.
pub fn walk(effort: Effort, lines: &Lines) -> Option<f64> {
    let steps = effort.steps();
    lines.walk(lines.linked().min(4 * steps), Touch::Load);
    median(effort, || lines.walk(steps, Touch::Load))
}

/// The cost of finding a page that is not in the TLB, in ns: so many lines, once side by side and once in a page each.
pub fn page_walk(effort: Effort) -> Option<f64> {
    let together = load(effort, PAGES * LINE)?;
    // A page plus a line, so that all sets of a cache are used.
    let stride = PAGE / LINE + 1;
    let apart = walk(effort, &Lines::in_small_pages(PAGES * stride * LINE, stride)?)?;
    Some((apart - together).max(0.0))
}

/// An atomic addition to an own line, with its load, in ns.
pub fn rmw(effort: Effort) -> Option<f64> {
    let own = Own(AtomicU64::new(0));
    median(effort, || {
        per_step(effort.steps(), || {
            black_box(own.0.fetch_add(1, Relaxed));
        })
    })
}

/// A store to an own line, in ns.
pub fn store(effort: Effort) -> Option<f64> {
    let own = Own(AtomicU64::new(0));
    let line = black_box(&own.0);
    median(effort, || {
        let mut count = 0;
        per_step(effort.steps(), || {
            count += 1;
            line.store(count, Relaxed);
        })
    })
}

/// The instruction that signals polling, in ns.
pub fn pause(effort: Effort) -> Option<f64> {
    median(effort, || per_step(effort.steps() / 16, spin_loop))
}

/// The ns of each of so many steps.
fn per_step(steps: usize, mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..steps {
        step();
    }
    start.elapsed().as_nanos() as f64 / steps as f64
}
