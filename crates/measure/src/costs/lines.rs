//! Cache lines in a cycle, in which each names the next. A walk waits for one line after the other, and no prefetcher
//! knows which line is next.

use std::hint::black_box;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::time::Instant;

use flashlock_native::sys;
use flashlock_report::statistics::Random;

/// Bytes of a line.
pub const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

#[repr(align(64))]
struct Line {
    /// The next line, or null if this line is not linked.
    next: AtomicPtr<Line>,
}

/// How a walk accesses each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It reads the line.
    Load,
    /// It makes the line this CPU's own, by a compare-and-swap that finds another value but requests the line all the
    /// same (on x86-64).
    Cas,
}

/// Memory of lines, some of them linked into one cycle.
///
/// **Invariant.** `at` and the `next` of every linked line point to linked lines of the same `Lines`, whose memory
/// stays where it is until it is dropped.
pub struct Lines {
    mapping: Mapping,
    /// The number of lines of the mapping in use, and the stride: every `stride`-th line is linked.
    count: usize,
    stride: usize,
    /// Where the next walk starts. A walk from the beginning would find in a cache what the last one left there.
    at: AtomicPtr<Line>,
}

impl Lines {
    /// `bytes` of memory of the caller's NUMA node, with every `stride`-th line in a cycle of random order. It is in
    /// large pages if the system has some, so that address translation takes no time. `None` if there is no memory.
    pub fn new(bytes: usize, stride: usize) -> Option<Self> {
        Self::advised(bytes, stride, libc::MADV_HUGEPAGE)
    }

    /// The same, in pages of the smallest size.
    pub fn in_small_pages(bytes: usize, stride: usize) -> Option<Self> {
        Self::advised(bytes, stride, libc::MADV_NOHUGEPAGE)
    }

    fn advised(bytes: usize, stride: usize, advice: i32) -> Option<Self> {
        let count = (bytes / LINE).max(stride);
        let mapping = Mapping::new(count * LINE, advice)?;
        let all = &mapping.lines()[..count];
        let mut order: Vec<u32> = (0..count as u32).step_by(stride).collect();
        Random::new(count as u64).shuffle(&mut order);
        let line = |index: u32| ptr::from_ref(&all[index as usize]).cast_mut();
        for (index, from) in order.iter().enumerate() {
            let to = order[(index + 1) % order.len()];
            all[*from as usize].next.store(line(to), Relaxed);
        }
        let at = AtomicPtr::new(line(0));
        Some(Self { mapping, count, stride, at })
    }

    /// The number of linked lines.
    pub fn linked(&self) -> usize {
        self.count.div_ceil(self.stride)
    }

    fn used(&self) -> &[Line] {
        &self.mapping.lines()[..self.count]
    }

    /// Writes every linked line, so that it is modified in this CPU's caches.
    pub fn modify(&self) {
        for line in self.used().iter().step_by(self.stride) {
            line.next.store(black_box(line.next.load(Relaxed)), Relaxed);
        }
    }

    /// Reads every linked line after dropping it from all caches, so that this CPU's caches own it exclusively and
    /// unmodified. `false` if no instruction drops lines from all caches here.
    pub fn read_alone(&self) -> bool {
        let dropped = self.used().iter().step_by(self.stride).all(drop_from_caches);
        fence();
        self.walk(self.linked(), Touch::Load);
        dropped
    }

    /// Walks `steps` steps. Returns the ns per step.
    pub fn walk(&self, steps: usize, touch: Touch) -> f64 {
        match touch {
            Touch::Load => self.walk_by(steps, |next| next.load(Relaxed)),
            Touch::Cas => self.walk_by(steps, |next| {
                next.compare_exchange(ptr::null_mut(), ptr::null_mut(), Relaxed, Relaxed).unwrap_or_else(|found| found)
            }),
        }
    }

    #[inline]
    fn walk_by(&self, steps: usize, follow: impl Fn(&AtomicPtr<Line>) -> *mut Line) -> f64 {
        let mut at = self.at.load(Relaxed);
        let start = Instant::now();
        for _ in 0..steps {
            // SAFETY: this line is linked, and so are those that follow (the invariant); `self` is borrowed.
            at = follow(unsafe { &(*at).next });
        }
        self.at.store(black_box(at), Relaxed);
        start.elapsed().as_nanos() as f64 / steps as f64
    }
}

/// Drops a line from the caches of all CPUs, after writing it to memory if it was modified. `false` if no program can
/// do that.
#[cfg(target_arch = "x86_64")]
fn drop_from_caches(line: &Line) -> bool {
    // SAFETY: every x86-64 CPU has the instruction, and it changes nothing visible of the line, which is borrowed.
    unsafe { core::arch::x86_64::_mm_clflush(ptr::from_ref(line).cast()) };
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn drop_from_caches(_: &Line) -> bool {
    false
}

/// Later accesses of the program wait until lines have been dropped.
#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: every x86-64 CPU has the instruction, which touches nothing.
    unsafe { core::arch::x86_64::_mm_mfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn fence() {}

/// Zeroed memory from the system, which is returned when this is dropped.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory of atomics, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Whole large pages, and one more, because large pages need not start where the mapping does.
    fn new(bytes: usize, advice: i32) -> Option<Self> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        let start = sys::map_anonymous(bytes)?;
        // SAFETY: the pages belong to this mapping. The result of the advice does not matter.
        unsafe { libc::madvise(start.cast(), bytes, advice) };
        Some(Self { start, bytes })
    }

    /// The lines from the first large page on.
    fn lines(&self) -> &[Line] {
        let skipped = self.start.align_offset(HUGE_PAGE);
        let count = (self.bytes - HUGE_PAGE) / LINE;
        // SAFETY: less than a large page is skipped, so all lines are in the mapping, which lives as long as `self` is
        // borrowed. They are aligned, and an all-zero line is a line that is not linked.
        unsafe { slice::from_raw_parts(self.start.add(skipped).cast(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_walk_visits_every_linked_line_and_comes_back() {
        for (bytes, stride, linked) in [(4096, 1, 64), (4096, 2, 32), (64, 1, 1), (0, 4, 1), (640, 3, 4)] {
            let lines = Lines::new(bytes, stride).unwrap();
            lines.modify();
            let first = lines.at.load(Relaxed);
            let seen: HashSet<_> = (0..lines.linked())
                .map(|_| {
                    lines.walk(1, Touch::Load);
                    lines.at.load(Relaxed)
                })
                .collect();
            assert_eq!(
                (seen.len(), lines.linked(), lines.at.load(Relaxed)),
                (linked, linked, first),
                "{bytes} {stride}"
            );
            let index = |at: &*mut Line| (*at as usize - first as usize) / LINE;
            assert!(seen.iter().all(|at| index(at) < lines.count && index(at).is_multiple_of(stride)));
            // Dropping lines from the caches does not change them.
            assert_eq!(lines.read_alone(), cfg!(target_arch = "x86_64"));
            lines.walk(lines.linked(), Touch::Cas);
            assert_eq!(lines.at.load(Relaxed), first);
        }
    }
}
