//! # The fairness of a lock
//!
//! **Source.** Malthusian locks (EuroSys 2017), sections 1 and 6; [`fairness_factor`]: CNA (EuroSys 2019), section
//! 7.1.1.
//!
//! Some metrics are of an *admission history*, the list of threads that acquired a lock, in order: [`lwss`],
//! [`average_lwss`] and [`mttr`] measure short-term fairness. Others are of the total work of each thread: [`gini`],
//! [`rstddev`], [`fairness_factor`]. All are pure functions, and return `None` if there is no data.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The paper's window: a number of acquisitions well above the number of threads.
pub const WINDOW: usize = 1000;

/// The lock working set size: the number of distinct threads that acquired the lock in a period.
pub fn lwss(period: &[u32]) -> usize {
    let mut threads = period.to_vec();
    threads.sort_unstable();
    threads.dedup();
    threads.len()
}

/// The average [`lwss`], in threads, of adjacent windows of `window` acquisitions. The rest after the last whole window
/// does not count.
pub fn average_lwss(history: &[u32], window: usize) -> Option<f64> {
    let windows = history.len().checked_div(window)?;
    let sum: usize = history.chunks_exact(window).map(lwss).sum();
    (windows > 0).then(|| sum as f64 / windows as f64)
}

/// The median time to reacquire: the number of other admissions between two of the same thread. A thread's first
/// admission does not count, so n threads in strict rotation give n - 1, as in the paper's figure 4. The median of an
/// even number is the mean of the middle two.
pub fn mttr(history: &[u32]) -> Option<f64> {
    let mut last = BTreeMap::new();
    let between = |(now, thread): (usize, &u32)| last.insert(*thread, now).map(|before| now - before - 1);
    let mut times: Vec<usize> = history.iter().enumerate().filter_map(between).collect();
    times.sort_unstable();
    let (low, high) = (times.get(times.len().checked_sub(1)? / 2)?, times.get(times.len() / 2)?);
    Some((low + high) as f64 / 2.0)
}

/// The Gini coefficient of the threads' work: half the mean difference of two threads, divided by the mean. 0: all
/// threads did the same work; (n - 1) / n, near 1: one of n threads did all of it.
pub fn gini(work: &[u64]) -> Option<f64> {
    let mut sorted = work.to_vec();
    sorted.sort_unstable();
    let (count, total) = (sorted.len() as f64, sum(&sorted)?);
    // In sorted order, the sum of all differences is a weighted sum: the i-th of n is the greater one of a pair i
    // times, and the lesser one n - i - 1 times.
    let weighted = |(index, work): (usize, &u64)| (2.0 * index as f64 + 1.0 - count) * *work as f64;
    Some(sorted.iter().enumerate().map(weighted).sum::<f64>() / (count * total))
}

/// The standard deviation of the threads' work (a population, not a sample), divided by its mean. 0: all threads did
/// the same work.
pub fn rstddev(work: &[u64]) -> Option<f64> {
    let mean = sum(work)? / work.len() as f64;
    let variance =
        work.iter().map(|work| (*work as f64 - mean) * (*work as f64 - mean)).sum::<f64>() / work.len() as f64;
    Some(variance.sqrt() / mean)
}

/// The share of all operations that the busier half of the threads did. 0.5 is fair, 1 is not. With an odd number of
/// threads, the middle one counts half to each side. A single thread is fair.
pub fn fairness_factor(operations: &mut [u64]) -> Option<f64> {
    operations.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = operations.iter().sum();
    let half = operations.len() / 2;
    let mut busier: f64 = operations[..half].iter().sum::<u64>() as f64;
    if operations.len() % 2 == 1 {
        busier += operations[half] as f64 / 2.0;
    }
    (total > 0).then(|| busier / total as f64)
}

/// The sum over all threads; `None` if it is 0.
fn sum(work: &[u64]) -> Option<f64> {
    let total: u64 = work.iter().sum();
    (total > 0).then_some(total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's example: A B C A B C D A E.
    const HISTORY: [u32; 9] = [0, 1, 2, 0, 1, 2, 3, 0, 4];

    fn close(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-12), "{found:?} is not {expected}");
    }

    #[test]
    fn the_lock_working_set() {
        assert_eq!((lwss(&HISTORY[..6]), lwss(&HISTORY), lwss(&[])), (3, 5, 0));
        // Windows A B C A and B C D A; E is left over.
        close(average_lwss(&HISTORY, 4), 3.5);
        close(average_lwss(&HISTORY, 9), 5.0);
        assert_eq!((average_lwss(&HISTORY, 10), average_lwss(&HISTORY, 0)), (None, None));
    }

    #[test]
    fn the_median_time_to_reacquire() {
        // A after 2, B after 2, C after 2, A after 3.
        close(mttr(&HISTORY), 2.0);
        // A after 0, 0, 1: the median of three. With B after 3: the median of four.
        close(mttr(&[0, 0, 0, 1, 0]), 0.0);
        close(mttr(&[1, 0, 0, 0, 1, 0]), 0.5);
        let turns: Vec<u32> = (0..320).map(|turn| turn % 32).collect();
        close(mttr(&turns), 31.0);
        assert_eq!((mttr(&[]), mttr(&[1, 2, 3])), (None, None));
    }

    #[test]
    fn the_gini_coefficient() {
        close(gini(&[5, 5, 5]), 0.0);
        // All ordered pairs differ by 2 * (1 + 2 + 1) = 8 in total; twice n squared times the mean is 2 * 9 * 2 = 36.
        close(gini(&[3, 1, 2]), 8.0 / 36.0);
        close(gini(&[0, 0, 7, 0]), 0.75);
        assert_eq!((gini(&[]), gini(&[0, 0])), (None, None));
    }

    #[test]
    fn the_relative_standard_deviation() {
        close(rstddev(&[5, 5, 5]), 0.0);
        // Mean 5, variance 4.
        close(rstddev(&[2, 4, 4, 4, 5, 5, 7, 9]), 0.4);
        assert_eq!((rstddev(&[]), rstddev(&[0, 0])), (None, None));
    }

    #[test]
    fn the_fairness_factor() {
        assert_eq!(fairness_factor(&mut [5, 5, 5, 5]), Some(0.5));
        assert_eq!(fairness_factor(&mut [0, 9, 1, 0]), Some(1.0));
        assert_eq!(fairness_factor(&mut [7]), Some(0.5));
        assert_eq!(fairness_factor(&mut [2, 2, 2]), Some(0.5));
        assert_eq!(fairness_factor(&mut [0, 0]), None);
    }
}
