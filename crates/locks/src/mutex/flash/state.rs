//! # What the word `state` of a `flash` lock says about its waiters
//!
//! At most one waiter, the *head*, contends for the lock; the others sleep until one of them is called (woken) to be
//! the next head. ([`sleeper`](super::sleeper) describes the exceptions.) To be the head is a *place*, which a thread
//! passes on when it is done. Three bits say who has it:
//!
//! | bits that are set | who has the place of the head |
//! |---|---|
//! | none of the three | no thread, and none sleeps |
//! | `HEAD` | a waiter, which contends for the lock |
//! | `HEAD`, `PASS` | the holder of the lock: it was the head when it got the lock; its release will call a sleeper |
//! | `HEAD`, `TRANSIT` | no thread at the moment: a sleeper was called; the first sleeper that runs takes the place |
//!
//! With the other bits, the head and the holder agree on how the head gets the lock:
//!
//! | bit | who sets it | who clears it | meaning while it is set |
//! |---|---|---|---|
//! | [`HEAD`] | a waiter that finds no head, and becomes it; a broadcast that moves waiters here | the head that gets the lock or times out while no thread sleeps; under `PASS`, the last sleeper if it times out | a thread has the place of the head, or is to take it |
//! | [`PASS`] | the head that gets the lock while others sleep | its release; a sleeper that takes the place because no release will come | the holder has the place |
//! | [`TRANSIT`] | the release of a holder with the place; a head that times out while others sleep; such a broadcast | the sleeper that takes the place | the place is free for a sleeper |
//! | [`HANDOFF`] | the head, when it has waited for `bound=`; for a sleeping head, a release after that time | the release that hands the lock over; the head, if it gets the lock otherwise or times out | the next release is to hand the lock to the head |
//! | [`GRANT`] | that release, which leaves the word held | the head, which then holds the lock; any thread, if the head has not come for 25 ms | the lock belongs to the head, which has yet to take it |
//! | [`SLEEPS`] | the head, before it sleeps on the word | the head, when it is awake; a release that is about to hand the lock over | the head sleeps on the word, or is about to: it must be woken |
//! | [`TIMED`] | a waiter that gets the lock and measures its section | its release | the release is to read the clock: see [`stay`](super::stay) |
//!
//! Above these are eight bits of the process's [epoch](crate::machine::Memory::epoch), and 17 bits that count the
//! sleepers.
//!
//! A forked child has another epoch than its parent. So the first thread that waits or wakes there sees that these
//! waiters are the parent's, and forgets them ([`Lock::settle`]). Eight bits repeat after 256 generations. The waiters
//! of such an ancestor look like a head that does not run, and are treated like that.

use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use crate::machine::{Machine, Word};
use crate::mutex::flash::evidence::LONGEST_STAY;
use crate::mutex::flash::turn;
use crate::mutex::flash::{AWAITED, FREE, FlashQueue, HELD, SLEEPERS};
use crate::parts::counted::wake;

/// There is a head, or the place is being passed on.
pub const HEAD: u32 = 1;
/// The holder was the head, and its release passes the place on.
pub const PASS: u32 = 2;
/// The place of the head is free for a sleeper.
pub const TRANSIT: u32 = 4;
/// The next release is to hand the lock over.
pub const HANDOFF: u32 = 8;
/// The lock is reserved for the head.
pub const GRANT: u32 = 16;
/// The head sleeps, or is about to.
pub const SLEEPS: u32 = 32;
/// The section is timed: the release is to read the clock.
pub const TIMED: u32 = 64;

/// Where the process's epoch begins.
pub const EPOCH_AT: u32 = 7;
/// The bits that say to which process the rest belongs.
pub const EPOCH: u32 = 0xFF << EPOCH_AT;
/// One sleeper.
pub const SLEEPER: u32 = 1 << 15;
/// The bits that count sleepers.
pub const COUNT: u32 = !(SLEEPER - 1);
const _: () = assert!(TIMED < 1 << EPOCH_AT && EPOCH & COUNT == 0 && EPOCH + (1 << EPOCH_AT) == SLEEPER);

/// The bits of `calls` that say for how long a free lock is left to its last holder.
pub(super) const STAY: u32 = LONGEST_STAY / UNIT;
/// This many steps are one unit of that.
pub(super) const UNIT: u32 = 8;
/// One call, counted above these bits.
pub const CALL: u32 = STAY + 1;
const _: () = assert!(CALL.is_power_of_two());

/// The word, and `turn`.
pub(super) type Seen = (u32, u32);

/// In which role a thread waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Neither the head nor a counted sleeper.
    Arrival,
    /// The head.
    Head {
        /// Whether it was woken from its sleep on the word. If so, others that sleep there rely on the next release.
        is_dirty: bool,
        /// Whether the place of the head is its own.
        place: Place,
    },
}

impl Role {
    pub(super) fn is_head(self) -> bool {
        self != Self::Arrival
    }

    /// The role after a sleep on the word.
    pub(super) fn woken(self) -> Self {
        match self {
            Self::Head { place, .. } => Self::Head { is_dirty: true, place },
            Self::Arrival => Self::Arrival,
        }
    }

    pub(super) fn is_dirty(self) -> bool {
        matches!(self, Self::Head { is_dirty: true, .. })
    }

    pub(super) fn is_extra(self) -> bool {
        matches!(self, Self::Head { place: Place::Extra, .. })
    }

    /// The state after a head of this role has acquired the lock.
    pub(super) fn after(self, state: u32) -> u32 {
        if self.is_extra() { after_extra_head(state) } else { after_head(state) }
    }
}

/// Which place a head has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// That of the head, which it passes on.
    Own,
    /// None: it was called, but another sleeper took the place first.
    Extra,
}

/// Whether any sleeper is counted.
pub fn has_sleepers(state: u32) -> bool {
    state & COUNT != 0
}

/// How many sleepers are counted.
pub fn count(state: u32) -> u32 {
    state / SLEEPER
}

/// Whether the count has no room for `more`.
pub fn is_full(state: u32, more: u32) -> bool {
    count(state) + more > COUNT / SLEEPER
}

/// One sleeper less. (In a child that a signal handler forked, a thread that slept at that time is not counted.)
pub fn without_sleeper(state: u32) -> u32 {
    if has_sleepers(state) { state - SLEEPER } else { state }
}

/// The state after the head has acquired the lock. If others sleep, it keeps the place, and its release passes it on.
/// If none sleeps, no thread can take a place that another head has passed on, so that place is given up.
pub fn after_head(state: u32) -> u32 {
    let left = state & !(HANDOFF | GRANT);
    if has_sleepers(left) { left | PASS } else { left & !(HEAD | TRANSIT) }
}

/// The state after an extra head has acquired the lock, or has left: the place of the head is not its own. If there is
/// a head that waits, the request for the lock may be its own. Otherwise there may be nobody to hand the lock to.
pub fn after_extra_head(state: u32) -> u32 {
    let head_waits = state & (HEAD | PASS | TRANSIT) == HEAD;
    state & !if head_waits { GRANT } else { HANDOFF | GRANT }
}

/// The state after a sleeper has left. The last one also removes the place that the holder was to pass on.
pub fn after_sleeper(state: u32) -> u32 {
    let left = without_sleeper(state);
    if has_sleepers(left) || left & PASS == 0 { left } else { left & !(PASS | HEAD) }
}

/// The state after a sleeper has taken the lock that was granted to a head that does not run. If that head has passed
/// its place on meanwhile, the sleeper has the place now: there may be no other sleeper for it.
pub fn after_stale_grant(state: u32) -> u32 {
    let left = without_sleeper(state);
    if left & TRANSIT == 0 { left } else { after_head(left & !TRANSIT) }
}

/// The state after the head has left without the lock.
pub fn after_resigning(state: u32) -> u32 {
    let left = state & !HANDOFF;
    if has_sleepers(left) { left | TRANSIT } else { left & !(HEAD | PASS | TRANSIT) }
}

/// Whether these are the word and the state of a lock with sleepers, in the process of that epoch. Few other contents
/// of memory look like that.
pub fn is_waited_for(word: u32, state: u32, epoch: u32) -> bool {
    word <= AWAITED && state & EPOCH == epoch && state & HEAD != 0 && has_sleepers(state)
}

/// Whether no release will call a sleeper, as far as `word` and `state` show: the head does not run, or there is none.
pub fn is_idle(word: u32, state: u32) -> bool {
    let is_slept_on = word >= SLEEPERS;
    if state & HEAD == 0 {
        true
    } else if state & (TRANSIT | GRANT) != 0 {
        false // Sleepers look at that elsewhere.
    } else if state & PASS != 0 {
        word == FREE
    } else {
        state & SLEEPS == 0 || !is_slept_on
    }
}

/// The two pieces of state of one lock.
pub(super) struct Lock<'a, M: Machine> {
    pub(super) word: &'a M::Word,
    pub(super) queue: &'a FlashQueue<M>,
}

impl<M: Machine> Lock<'_, M> {
    pub(super) fn my_epoch() -> u32 {
        M::epoch() << EPOCH_AT & EPOCH
    }

    /// Whether the waiters that a state speaks of, if any, are this process's.
    pub(super) fn is_mine(seen: u32) -> bool {
        seen == 0 || seen & EPOCH == Self::my_epoch()
    }

    /// To be called before the slow paths: in a forked child, forgets the waiters of the parent. A lock that was
    /// granted to one of them becomes free.
    pub(super) fn settle(&self) {
        loop {
            let (seen, mine) = (self.state(), Self::my_epoch());
            if Self::is_mine(seen) {
                return;
            }
            // No other thread can have the lock. But since the exchange, a thread of this process may sleep on the
            // word.
            if self.queue.state.compare_exchange(seen, mine, Relaxed, Relaxed).is_ok()
                && seen & GRANT != 0
                && self.word.hand_back(FREE, HELD, Relaxed)
            {
                wake::<M>(self.word, 1);
            }
        }
    }

    /// The value of `state`. Relaxed: it only decides what is tried next.
    pub(super) fn state(&self) -> u32 {
        self.queue.state.load(Relaxed)
    }

    /// `seen -> new`, with this process's epoch. Relaxed: orders nothing by itself.
    pub(super) fn change(&self, seen: u32, new: u32) -> bool {
        self.change_ordered(seen, new, Relaxed)
    }

    /// The same, with an ordering. Fails if it is the state of another process: a handler may have forked while this
    /// thread slept.
    fn change_ordered(&self, seen: u32, new: u32, order: Ordering) -> bool {
        if !Self::is_mine(seen) {
            self.settle();
            return false;
        }
        let new = new & !EPOCH | Self::my_epoch();
        self.queue.state.compare_exchange(seen, new, order, Relaxed).is_ok()
    }

    /// (head awake) -> SLEEPS, by a head that has written 3. Release pairs with [`Lock::take_sleeps_back`].
    pub(super) fn say_sleeps(&self, seen: u32) -> bool {
        self.change_ordered(seen, seen | SLEEPS, Release)
    }

    /// SLEEPS -> HANDOFF, by a release that is about to write 2 over the head's 3: hence Acquire. A head that leaves
    /// takes `HANDOFF` back.
    pub(super) fn take_sleeps_back(&self, seen: u32) -> bool {
        self.change_ordered(seen, seen & !SLEEPS | HANDOFF, Acquire)
    }

    /// `state -> change(state)`, for any `state`. Returns the state before.
    pub(super) fn update(&self, change: impl Fn(u32) -> u32) -> u32 {
        let mut seen = self.state();
        while !self.change(seen, change(seen)) {
            seen = self.state();
        }
        seen
    }

    /// (held, GRANT) -> held, by a head. Returns whether it was granted.
    ///
    /// Acquire pairs with the Release of [`Lock::grant`]: sees the last section.
    pub(super) fn take_grant(&self, role: Role) -> bool {
        let mut seen = self.state();
        while seen & GRANT != 0 {
            match self.queue.state.compare_exchange(seen, role.after(seen), Acquire, Relaxed) {
                Ok(_) => {
                    self.note_time();
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The same, by any thread, if no thread has taken the grant for [`STALE`] µs: the head that it was for does not
    /// run.
    pub(super) fn take_stale_grant(&self) -> bool {
        // Acquire pairs with the Release of `grant`: sees the time that was noted before.
        let seen = self.queue.state.load(Acquire);
        if seen & GRANT == 0 || turn::age(self.queue.turn.load(Relaxed), M::micros()) < STALE {
            return false;
        }
        // Acquire as above.
        let taken = self.queue.state.compare_exchange(seen, seen & !GRANT, Acquire, Relaxed).is_ok();
        if taken {
            self.note_time(); // The next grant has as much time until it is stale.
        }
        taken
    }

    /// (HANDOFF, head awake) -> GRANT. The word stays held. If it succeeds, it is the last access to the lock.
    ///
    /// Release hands over this section.
    pub(super) fn grant(&self, seen: u32) -> bool {
        let new = seen & !HANDOFF | GRANT;
        self.queue.state.compare_exchange(seen, new, Release, Relaxed).is_ok()
    }

    /// Called by a thread that has just become the head, when there was none.
    ///
    /// The holder writes the same word by plain stores, so this may be lost. Then a release takes the head to have
    /// waited longer than it has.
    pub(super) fn note_first(&self) {
        // Relaxed: a hint.
        let seen = self.queue.turn.load(Relaxed);
        let _ = self.queue.turn.compare_exchange(seen, turn::at(seen, M::micros()), Relaxed, Relaxed);
    }

    /// Called by the holder: a head has just got the lock, or a sleeper is called to be the head.
    pub(super) fn note_time(&self) {
        // Relaxed: the holder's own, and a hint for others.
        self.queue.turn.store(turn::at(self.queue.turn.load(Relaxed), M::micros()), Relaxed);
    }

    /// 0 -> held, by a waiter; to 2 if it has taken a wake-up on which others that sleep on the word still rely.
    pub(super) fn grab(&self, is_dirty: bool) -> bool {
        let held = if is_dirty { SLEEPERS } else { HELD };
        let taken = self.word.compare_exchange(FREE, held, Acquire, Relaxed).is_ok();
        if taken {
            turn::count::<M>(&self.queue.turn);
        }
        taken
    }

    /// One more call for sleepers. AcqRel: a thread that reads it sees the `TRANSIT` that was set before.
    pub(super) fn call(&self) -> *const M::Word {
        self.queue.calls.fetch_add(CALL, AcqRel);
        &raw const self.queue.calls
    }
}

/// After this long (µs) a grant that no thread has taken may be taken by any thread.
const STALE: u32 = 25_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquisitions_and_times_do_not_touch_each_other() {
        let before = turn::at(0xFFFE_0000, 5_000_000);
        let mut seen = before;
        for passed in 1..5 {
            seen = turn::next(seen);
            assert_eq!(turn::between(before, seen), passed);
            assert_eq!(turn::age(seen, 5_000_000), 0);
            assert_eq!(turn::is_multiple(seen, 4), passed == 2);
        }
        assert_eq!(turn::age(seen, 5_001_600), 1_600);
        assert_eq!(turn::age(turn::at(0, u32::MAX), 159), 160, "the clock wraps");
        for ahead in [16, 4_000] {
            assert_eq!(turn::age(turn::at(0, 5_000_000 + ahead), 5_000_000), 0, "a clock that is ahead");
        }
        let blind = (0..5_000_000).step_by(1_000).filter(|&age| turn::age(turn::at(0, 0), age) < 25_000).count();
        assert!(blind <= 25 + 4 * (25 + 5), "stale for all but 29 ms of each 1.05 s: {blind}");
        assert_eq!(turn::age(turn::at(0, 5_000_000), 5_000_000 + turn::OLDEST), turn::OLDEST);
    }

    #[test]
    fn the_place_of_the_head_is_kept_for_sleepers() {
        assert_eq!(after_head(HEAD | HANDOFF | GRANT), 0);
        assert_eq!(after_head(HEAD | GRANT | TIMED | SLEEPER), HEAD | PASS | TIMED | SLEEPER);
        assert_eq!(after_resigning(HEAD | HANDOFF), 0);
        assert_eq!((after_head(HEAD | TRANSIT), after_resigning(HEAD | TRANSIT)), (0, 0), "another head's");
        assert_eq!(after_resigning(HEAD | SLEEPER), HEAD | TRANSIT | SLEEPER);
        assert_eq!(after_stale_grant(HEAD | TRANSIT | SLEEPER), 0, "there is no sleeper left for the place");
        assert_eq!(after_stale_grant(HEAD | TRANSIT | (2 * SLEEPER)), HEAD | PASS | SLEEPER);
        assert_eq!(after_stale_grant(HEAD | SLEEPER), HEAD, "the head's place");
    }

    #[test]
    fn an_extra_head_and_the_last_sleeper_leave_the_place_to_others() {
        let others = HEAD | PASS | TIMED | SLEEPER;
        assert_eq!(after_extra_head(others | HANDOFF), others);
        assert_eq!(after_extra_head(HEAD | GRANT | TRANSIT), HEAD | TRANSIT);
        assert_eq!(after_extra_head(HEAD | HANDOFF | GRANT | SLEEPER), HEAD | HANDOFF | SLEEPER, "the head has asked");
        assert_eq!(after_extra_head(HANDOFF), 0, "there is nobody to hand it to");
        assert_eq!(after_sleeper(others), TIMED, "the release calls no thread");
        assert_eq!(after_sleeper(others + SLEEPER), others);
        assert_eq!(after_sleeper(HEAD | SLEEPER), HEAD);
    }

    /// What a program may keep where a lock was: zeros, small numbers, one value everywhere, pointers.
    #[test]
    fn other_contents_of_memory_are_not_taken_for_a_lock() {
        let (epoch, lock) = (1 << EPOCH_AT, 1 << EPOCH_AT | HEAD | SLEEPER);
        assert!((FREE..=AWAITED).all(|word| is_waited_for(word, lock, epoch)));
        assert!(!is_waited_for(HELD, lock, 2 << EPOCH_AT), "another process's");
        assert!((0..SLEEPER).all(|small| !is_waited_for(0, small, epoch)));
        assert!((0..=u32::MAX).step_by(0xFFFF).all(|every| !is_waited_for(every, every, epoch)));
        assert!(!is_waited_for(0x5567_89A1, lock, epoch) && !is_waited_for(HELD, lock & !HEAD, epoch));
    }

    #[test]
    fn the_count_is_full_before_it_overflows() {
        assert!(!is_full(COUNT - SLEEPER, 1) && is_full(COUNT - SLEEPER, 2) && is_full(COUNT | HEAD, 1));
        assert_eq!(without_sleeper(HEAD), HEAD);
    }
}
