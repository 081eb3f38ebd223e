//! Checks the metrics of an admission history against literal versions of their definitions.

use std::collections::BTreeSet;

use flashlock_workloads::history::{average_lwss, fairness_factor, gini, lwss, mttr, rstddev};
use proptest::prelude::*;

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
}

/// Half the mean absolute difference of all pairs, divided by the mean.
fn gini_of_pairs(work: &[u64]) -> f64 {
    let count = work.len() as f64;
    let differences: f64 = work.iter().flat_map(|one| work.iter().map(|other| one.abs_diff(*other) as f64)).sum();
    let mean = work.iter().sum::<u64>() as f64 / count;
    differences / (count * count) / (2.0 * mean)
}

/// The distance from each admission back to the same thread's previous one.
fn times_to_reacquire(history: &[u32]) -> Vec<usize> {
    let back = |at: usize| history[..at].iter().rev().position(|thread| *thread == history[at]);
    let mut times: Vec<usize> = (0..history.len()).filter_map(back).collect();
    times.sort_unstable();
    times
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_work_done(work in prop::collection::vec(0..1000_u64, 1..40), scale in 1..1000_u64) {
        let scaled: Vec<u64> = work.iter().map(|work| work * scale).collect();
        let Some(found) = gini(&work) else {
            prop_assert_eq!((work.iter().sum::<u64>(), rstddev(&work)), (0, None));
            return Ok(());
        };
        prop_assert!(close(found, gini_of_pairs(&work)) && (-1e-9..1.0).contains(&found));
        // Only shares matter.
        prop_assert!(close(found, gini(&scaled).unwrap()) && close(rstddev(&work).unwrap(), rstddev(&scaled).unwrap()));
        prop_assert!((0.5..=1.0).contains(&fairness_factor(&mut work.clone()).unwrap()));
    }

    #[test]
    fn of_admissions(history in prop::collection::vec(0..20_u32, 0..300), window in 1..50_usize) {
        prop_assert_eq!(lwss(&history), history.iter().collect::<BTreeSet<_>>().len());
        let sizes: Vec<usize> = history.chunks_exact(window).map(lwss).collect();
        let average = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        prop_assert_eq!(average_lwss(&history, window), (!sizes.is_empty()).then_some(average));
        let times = times_to_reacquire(&history);
        match mttr(&history) {
            None => prop_assert!(times.is_empty()),
            // At most half of the times are below the median, and at most half above.
            Some(median) => {
                let shorter = times.iter().filter(|time| (**time as f64) < median).count();
                let longer = times.iter().filter(|time| (**time as f64) > median).count();
                prop_assert!(2 * shorter <= times.len() && 2 * longer <= times.len());
            }
        }
    }
}
