//! Runs that were ended because the time of the whole measurement was up.
//!
//! Such a run is neither a success nor a failure: the program may only have needed a little longer. But if it took much
//! longer than any other run under the lock, it may have hung, so the lock is not recommended.

use serde::{Deserialize, Serialize};

use super::Results;

/// A run that takes more than so many times as long as the longest other one may hang.
const MAY_HANG: f64 = 5.0;

/// A run that had not ended when the time was up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// The round's number, from 0.
    pub round: u32,
    /// How long it had run, in seconds.
    pub seconds: f64,
    /// How long the longest other run of this lock in this cell took, in seconds; `null` if none succeeded.
    pub longest: Option<f64>,
}

impl Unfinished {
    /// Whether the program may have hung.
    pub fn may_hang(&self) -> bool {
        self.longest.is_some_and(|longest| self.seconds > longest * MAY_HANG)
    }
}

impl Results {
    /// A run under a lock in which the program may have hung.
    pub fn hang(&self, group: &str, lock: &str) -> Option<&Unfinished> {
        let here = self.points.iter().filter(|point| point.lock == lock && point.group == group);
        here.flat_map(|point| &point.unfinished).find(|run| run.may_hang())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_is_much_longer_than_all_others_may_hang() {
        let of = |seconds, longest| Unfinished { round: 3, seconds, longest }.may_hang();
        assert_eq!([of(8.8, Some(1.1)), of(5.5, Some(1.1)), of(600.0, None)], [true, false, false]);
    }
}
