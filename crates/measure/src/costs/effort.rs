//! How much is measured, and how much memory that may use.

use std::fs;
use std::time::Duration;

use flashlock_report::units;

/// The effort for each figure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Whether seconds matter more than precision.
    pub quick: bool,
}

impl Effort {
    /// The number of repetitions of what one CPU measures.
    pub fn repetitions(self) -> usize {
        if self.quick { 5 } else { 15 }
    }

    /// The number of steps in each repetition.
    pub fn steps(self) -> usize {
        if self.quick { 1 << 15 } else { 1 << 18 }
    }

    /// The number of rounds of what two threads measure in turn.
    pub fn rounds(self) -> u32 {
        if self.quick { 20 } else { 200 }
    }

    /// The maximum number of pairs of CPUs of each distance.
    pub fn pairs(self) -> usize {
        if self.quick { 2 } else { usize::MAX }
    }

    /// Rounds for each of so many pairs of CPUs. They are fewer if there are very many pairs, so that this takes
    /// minutes instead of hours.
    pub fn rounds_of(self, pairs: usize) -> u32 {
        /// A median of fewer would say little.
        const FEWEST: u32 = 5;
        /// With up to so many pairs, each can have all rounds.
        const MANY: usize = 1000;
        let share = self.rounds() as usize * MANY / pairs.max(1);
        u32::try_from(share).unwrap_or(u32::MAX).clamp(FEWEST, self.rounds())
    }

    /// How long time slices are observed.
    pub fn slices(self) -> Duration {
        Duration::from_millis(if self.quick { 100 } else { 500 })
    }

    /// How many bytes of the free memory to use to measure the memory behind a last level of `llc` bytes, or why there
    /// are too few.
    pub fn memory(self, llc: usize, free: Option<usize>) -> Result<usize, String> {
        let shown = |bytes: usize| units::bytes(bytes as u64);
        let free = free.ok_or("the amount of free memory is unknown (/proc/meminfo)")?;
        let most = match self.quick {
            true => (256 << 20, "--quick uses 256 MiB at most (without it: 4 GiB)".to_owned()),
            false => (4 << 30, "at most 4 GiB are used".to_owned()),
        };
        let share = (free / 4, format!("only a quarter of the free memory, {}, is used", shown(free / 4)));
        match [&most, &share].into_iter().find(|(cap, _)| *cap < 2 * llc) {
            Some((_, cap)) => Err(format!("it needs twice the last-level cache, {}, but {cap}", shown(2 * llc))),
            None => Ok((4 * llc).min(most.0).min(share.0)),
        }
    }
}

/// The memory that is available without evicting anything, in bytes.
pub fn free_memory() -> Option<usize> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_pairs_share_the_rounds() {
        let all = Effort { quick: false };
        assert_eq!([0, 1, 1000, 2000, 1_000_000].map(|pairs| all.rounds_of(pairs)), [200, 200, 200, 100, 5]);
        assert_eq!(Effort { quick: true }.rounds_of(2), 20);
    }

    #[test]
    fn memory_is_measured_only_if_there_is_enough_and_the_limit_that_held_is_named() {
        let (quick, all) = (Effort { quick: true }, Effort { quick: false });
        let refusal = |effort: Effort, llc_mib: usize, free_gib| effort.memory(llc_mib << 20, free_gib).unwrap_err();
        let error = refusal(quick, 260, Some(23 << 30));
        assert_eq!(
            error,
            "it needs twice the last-level cache, 520 MiB, but --quick uses 256 MiB at most (without it: 4 GiB)"
        );
        assert!(refusal(quick, 32, Some(64 << 20)).contains("only a quarter of the free memory, 16 MiB, is used"));
        assert!(refusal(all, 260, Some(1 << 30)).contains("a quarter of the free memory, 256 MiB"));
        assert!(refusal(all, 3 << 10, Some(1 << 40)).ends_with("at most 4 GiB are used"));
        assert!(refusal(all, 1, None).contains("/proc/meminfo"));
        assert_eq!(all.memory(260 << 20, Some(23 << 30)), Ok(1040 << 20));
        assert_eq!(quick.memory(32 << 20, Some(1 << 30)), Ok(128 << 20));
        assert_eq!(quick.memory(100 << 20, Some(1 << 40)), Ok(256 << 20));
    }
}
