//! A hypervisor that takes CPUs away from time to time.

use crate::description::Hypervisor;
use crate::{Ps, us};

/// Each CPU runs for `run`, then is away for `away`. The CPUs begin one after the other.
#[derive(Debug)]
pub(crate) struct Turns {
    run: Ps,
    away: Ps,
    /// By how much each CPU is ahead of the previous one.
    step: Ps,
}

impl Turns {
    pub(super) fn new(hypervisor: &Hypervisor, cpus: u32) -> Self {
        let (run, away) = (us(hypervisor.run_ms * 1e3), us(hypervisor.away_ms * 1e3));
        Self { run, away, step: (run + away) / Ps::from(cpus) }
    }

    /// How far the CPU is into its cycle.
    fn place(&self, cpu: u32, at: Ps) -> Ps {
        (at + self.step * Ps::from(cpu)) % (self.run + self.away)
    }

    /// When the CPU will have run for `time`, counted from `from`.
    pub(super) fn after(&self, cpu: u32, from: Ps, time: Ps) -> Ps {
        let (mut at, mut rest) = (from, time);
        loop {
            let place = self.place(cpu, at);
            let Some(left) = self.run.checked_sub(place).filter(|&left| left > 0) else {
                at += self.run + self.away - place;
                continue;
            };
            if rest <= left {
                return at + rest;
            }
            (at, rest) = (at + left, rest - left);
        }
    }

    /// How long the CPU is away between these times.
    pub(crate) fn away(&self, cpu: u32, from: Ps, to: Ps) -> Ps {
        let until = |at: Ps| {
            let turns = (at + self.step * Ps::from(cpu)) / (self.run + self.away);
            turns * self.away + self.place(cpu, at).saturating_sub(self.run)
        };
        until(to) - until(from)
    }

    /// Whether the CPU is away at `at`, and until when that does not change.
    pub(crate) fn is_away(&self, cpu: u32, at: Ps) -> (bool, Ps) {
        let place = self.place(cpu, at);
        match self.run.checked_sub(place).filter(|&left| left > 0) {
            Some(left) => (false, at + left),
            None => (true, at + self.run + self.away - place),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A CPU runs whenever it is not away; `is_away` agrees, piece by piece.
        #[test]
        fn what_is_not_away_runs(
            run in 1_u64..50,
            away in 0_u64..50,
            cpu in 0_u32..4,
            from in 0_u64..500,
            time in 0_u64..500,
        ) {
            let turns = Turns { run, away, step: (run + away) / 4 };
            let to = turns.after(cpu, from, time);
            prop_assert_eq!(turns.away(cpu, from, to), to - from - time);
            let (mut at, mut ran) = (from, 0);
            while at < to {
                let (is_away, until) = turns.is_away(cpu, at);
                ran += if is_away { 0 } else { until.min(to) - at };
                at = until;
            }
            prop_assert_eq!(ran, time);
        }
    }
}
