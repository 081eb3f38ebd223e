//! # How to poll, politely
//!
//! The rules for polling on machines that really poll: this computer and the simulated one. Times are in ns.
//!
//! **Pauses.** A waiter that polls a word of its own disturbs no thread, and each pause is added to the hand-off: its
//! pauses stay short. A waiter that polls a word which the holder uses takes the line from the holder each time: its
//! pauses grow. (With pauses that grow for both, MCS and CNA complete a third fewer sections on a simulated machine of
//! two sockets.)
//!
//! **Staying away.** If the lock is hot and its sections are short, a thread that contends for a word with its holder
//! first polls nothing for a while. Then the holder completes many sections on a line that no thread takes from it. In
//! all, more sections are completed than if two threads took turns. Each thread learns how long to stay away
//! ([`Contention`]).
//!
//! **Resting.** Where a CPU can wait for a change of a line, a thread that rests looks again after a quarter of the
//! time that it has waited so far, within the limits of [`REST`]. There may be something else to see, such as a role in
//! the queue that was passed on, or something to publish, such as that the waiter still runs.
//!
//! **The budget** is about one context-switch round trip, to sleep and back. With it, spin-then-park costs at most
//! twice the best choice in hindsight (Dice, *Malthusian Locks*, §5.1). Machines measure the way back: how long it
//! takes until a woken thread runs. The budget must not be less than that. Otherwise threads that arrive while a new
//! holder wakes up would give up polling, too, and each of them would be slow in turn. (With half of the budget, MCSCR
//! completes 0.4 of the sections on a simulated SPARC T5, with a hundred times the context switches.)

use core::ops::RangeInclusive;

use crate::machine::Patience;

/// Polls with the shortest pause, before the clock is looked at for the first time.
pub const QUICK_POLLS: u32 = 4;
/// A waiter that polls forever offers its CPU to other threads after so long.
pub const YIELD_AFTER: u64 = 1_000_000;
/// For how long a preemption that was seen counts as a sign of too few CPUs.
pub const CROWD: u64 = 10_000_000;
/// Limits of the budget. The lower one holds until something has been measured.
const BUDGET: RangeInclusive<u64> = 5_000..=50_000;

/// A thread that contends again within this time after it last won is contending for a hot lock.
const HOT: u64 = 2_000;
/// Limits of the wait before the first poll of a hot lock.
const STAY_AWAY: RangeInclusive<u64> = 200..=6_000;

/// How long a CPU rests at a time, at least and at most.
pub const REST: RangeInclusive<u64> = 500..=10_000;

/// How long it rests after a wait of this length.
#[inline]
pub fn rest(waited: u64) -> u64 {
    (waited / 4).clamp(*REST.start(), *REST.end())
}

/// How long a waiter polls before it sleeps, if a thread that is woken runs after `wake`.
#[inline]
pub fn budget(wake: u64) -> u64 {
    (2 * wake).clamp(*BUDGET.start(), *BUDGET.end())
}

/// The pause after this one, in [steps](crate::machine::Pause::Steps).
#[inline]
pub const fn next_pause(pause: u32, patience: &Patience) -> u32 {
    let longest = if matches!(patience, Patience::Contend) { 64 } else { 4 };
    if pause * 2 < longest { pause * 2 } else { longest }
}

/// What a thread has learned of contending for words that holders use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// How long it stays away from a hot lock.
    pub away: u64,
    /// When it last won a lock.
    pub last_won: u64,
}

impl Contention {
    /// How long a thread that begins to contend now polls nothing; `None` if the lock is not hot.
    #[inline]
    pub fn stay_away(&self, now: u64) -> Option<u64> {
        (now.saturating_sub(self.last_won) < HOT + 4 * self.away).then_some(self.away)
    }

    /// The word was free at once: stay away longer the next time. `away`: what [`Contention::stay_away`] returned.
    #[inline]
    pub fn found_free(away: Option<u64>, now: u64) -> Self {
        let away = away.map_or(0, |away| (2 * away).clamp(*STAY_AWAY.start(), *STAY_AWAY.end()));
        Self { away, last_won: now }
    }

    /// The word was not free at once: stay away for less time next time. `won`: when the word was won by polling, if it
    /// was.
    #[inline]
    pub fn had_to_poll(&self, away: Option<u64>, won: Option<u64>) -> Self {
        Self { away: away.unwrap_or(0) / 2, last_won: won.unwrap_or(self.last_won) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_where_polls_cost_the_holder() {
        let longest = |patience: Patience| (0..10).fold(1, |pause, _| next_pause(pause, &patience));
        assert_eq!([longest(Patience::Contend), longest(Patience::Budget), longest(Patience::Forever)], [64, 4, 4]);
    }

    #[test]
    fn rests_grow_with_the_wait_up_to_a_limit() {
        assert_eq!([0, 4_000, 1_000_000].map(rest), [500, 1_000, 10_000]);
    }

    #[test]
    fn staying_away_is_learned() {
        let fresh = Contention::default();
        assert_eq!(fresh.stay_away(1_000_000), None, "won too long ago");
        let mut learned = Contention::found_free(Some(0), 1_000_000);
        assert_eq!(learned, Contention { away: 200, last_won: 1_000_000 });
        for _ in 0..10 {
            learned = Contention::found_free(learned.stay_away(learned.last_won + 100), learned.last_won + 100);
        }
        assert_eq!(learned.away, 6_000);
        assert_eq!(learned.had_to_poll(Some(6_000), None), Contention { away: 3_000, ..learned });
        assert_eq!(learned.had_to_poll(None, Some(9)), Contention { away: 0, last_won: 9 });
    }
}
