//! # What `flash` knows, and what follows from it
//!
//! What a machine measures, and the decisions that follow from it: for how long a thread waits, and in which way. The
//! mechanism is elsewhere. Times are in µs. A transfer of the line, a sleep, and a move of the lock are measured. The
//! other figures are constants, from the prototype's measurements on two CPUs.
//!
//! | decision | decided by |
//! |---|---|
//! | how long an arrival polls | [`SPIN`], which is less than a sleep costs on any machine: it sees the release of a short section |
//! | how long it offers its CPU before it sleeps | [`patience`]: until a sleep costs less than a tenth of the wait so far |
//! | whether the lock is *hot* | [`HOT`] acquisitions seen while polling: more waiters awake do not help |
//! | after how many steps the second look comes | [`second_look`]: how long the line takes to travel to and fro |
//! | after how many more steps, if the lock should stay where it is | [`stay`](super::stay): what a move costs, and how soon the lock is taken again |
//! | how long a head naps while it contends for a hot lock | [`NAP`], doubling up to [`LONGEST_NAP`] |
//! | when the head is handed the lock | `bound=` |

use crate::machine::Machine;

/// How long a waiter polls before it offers its CPU.
pub const SPIN: u32 = 5;
/// How long it polls between two offers.
pub const SPIN_BETWEEN: u32 = 4;
/// How long it polls once more when its wait has become overdue.
pub const SPIN_OVERDUE: u32 = 2;
/// A waiter that sees this many acquisitions in one poll considers the lock hot.
pub const HOT: u32 = 2;
/// A poll ends after this many acquisitions: enough others circulate.
pub const TOO_HOT: u32 = 48;
/// The first nap of a head that contends for a hot lock.
pub const NAP: u32 = 50;
/// Its longest nap.
pub const LONGEST_NAP: u32 = 400;
/// The longest pause between two looks, in steps.
pub const LONGEST_PAUSE: u32 = 64;
/// The longest pause before the second look, in steps.
pub const LONGEST_SECOND: u32 = 16;
/// Once in this many acquisitions, the holder checks how long the head has waited.
pub const LOOK_EVERY: u32 = 64;
/// The longest time (steps) for which a free lock is left to its last holder.
pub const LONGEST_STAY: u32 = 2040;
/// One in this many sections after a move is timed.
pub const TIME_EVERY: u32 = 16;
/// The same, for a thread that has timed no section of this lock.
pub const TIME_FIRST: u32 = 4;
/// Once in this many looks at a free lock, a waiter watches how soon the lock is taken again.
pub const WATCH_EVERY: u32 = 16;
/// The upper limit of that number, which doubles each time that watching did not pay.
pub const WATCH_SELDOM: u32 = 1024;
/// The shortest time before a sleeper first looks by itself.
const SLEEPER_LOOKS: u32 = 16_000;
/// That time as a multiple of the time until it is the sleeper's turn, if each head is handed the lock when it is
/// overdue.
const BEYOND_TURN: u32 = 4;

/// A sleep is worth while when the wait is this many times as long as what the sleep costs.
const WORTH: u32 = 10;
/// Limits of [`patience`].
const PATIENCE: core::ops::RangeInclusive<u32> = 100..=1_000;

/// How long an arrival offers its CPU to others before it sleeps.
///
/// If it slept, and the lock became free at once, the lock would stand still for as long as a sleep costs. The longer
/// the thread has waited already, the longer the sections of this lock are, and the less that loss matters.
pub fn patience<M: Machine>() -> u32 {
    (M::sleep_cost() * WORTH).clamp(*PATIENCE.start(), *PATIENCE.end())
}

/// How long one of this many sleepers sleeps before it first looks by itself. Each later look comes after twice the
/// time of the one before.
///
/// A sleeper that wakes up by itself loses its place among the sleepers. So its first look comes after its turn, unless
/// sections are long or the head does not run.
pub fn first_look<M: Machine>(sleepers: u32) -> u32 {
    sleepers.saturating_mul(M::tunables().bound_us.saturating_mul(BEYOND_TURN)).max(SLEEPER_LOOKS)
}

/// How long one of this many sleepers sleeps at most after a signal has interrupted it: then it has lost its place, and
/// should notice its turn soon.
pub fn soonest_look<M: Machine>(sleepers: u32) -> u32 {
    sleepers.saturating_mul(M::tunables().bound_us).max(SLEEPER_LOOKS)
}

/// After how many steps a waiter that found the lock free looks again before it takes it.
///
/// If it takes the lock, the line travels here, and back to the thread that released it, which may be about to take the
/// lock again. If that thread comes within this time, it should find the lock where it left it.
pub fn second_look<M: Machine>() -> u32 {
    M::transfer_cost(2).max(1)
}
