//! # What `flash` knows, and what follows from it
//!
//! Evidence and decisions, apart from the mechanism: what a machine measures comes in here, and how long a thread waits
//! in which way goes out. Times are in µs. A transfer of the line, a sleep, and a move of the lock are measured; the
//! other figures are constants, from the prototype's grid of two CPUs.
//!
//! | decision | by what |
//! |---|---|
//! | how long an arrival polls | [`SPIN`], below what a sleep costs on any machine: whoever releases a short section is seen |
//! | how long it offers its CPU before it sleeps | [`patience`]: until a sleep costs less than a tenth of the wait so far |
//! | whether the lock is *hot* | [`HOT`] acquisitions seen while polling: more waiters awake do not help |
//! | after how many steps the second look comes | [`second_look`]: what it takes the line to travel to and fro |
//! | after how many more, if the lock had better stay | [`stay`](super::stay): what a move costs, and how soon it is taken again |
//! | how long a head naps that contends for a hot lock | [`NAP`], doubling up to [`LONGEST_NAP`] |
//! | when the head is handed the lock | `bound=` |

use crate::machine::Machine;

/// For so long a waiter polls before it offers its CPU.
pub const SPIN: u32 = 5;
/// And between two offers.
pub const SPIN_BETWEEN: u32 = 4;
/// And once more when its wait has become overdue.
pub const SPIN_OVERDUE: u32 = 2;
/// So many acquisitions, seen in one poll, say that the lock is hot.
pub const HOT: u32 = 2;
/// After so many of them a poll ends: enough others circulate.
pub const TOO_HOT: u32 = 48;
/// The first nap of a head that contends for a hot lock.
pub const NAP: u32 = 50;
/// The longest.
pub const LONGEST_NAP: u32 = 400;
/// The longest pause between two looks, in steps.
pub const LONGEST_PAUSE: u32 = 64;
/// The longest before the second look.
pub const LONGEST_SECOND: u32 = 16;
/// Once in so many acquisitions the holder looks how long the head has waited.
pub const LOOK_EVERY: u32 = 64;
/// The longest time (steps) for which a free lock is left to its last holder.
pub const LONGEST_STAY: u32 = 2040;
/// One in so many sections after a move is timed.
pub const TIME_EVERY: u32 = 16;
/// One in so many, by a thread that has timed none of this lock.
pub const TIME_FIRST: u32 = 4;
/// A waiter watches how soon the lock is taken again once in so many looks at a free one.
pub const WATCH_EVERY: u32 = 16;
/// So seldom, if it did not pay.
pub const WATCH_SELDOM: u32 = 1024;
/// The first timed look of a sleeper, at least.
const SLEEPER_LOOKS: u32 = 16_000;
/// So many times as long as sleepers need until it is their turn, if each head is handed the lock when it is overdue.
const BEYOND_TURN: u32 = 4;

/// For a sleep that costs `cost`, the wait that makes that a tenth.
const WORTH: u32 = 10;
/// Limits of [`patience`].
const PATIENCE: core::ops::RangeInclusive<u32> = 100..=1_000;

/// How long an arrival offers its CPU to others before it sleeps.
///
/// If it slept, and the lock became free at once, the lock would stand still for as long as a sleep costs. The longer
/// the wait already is, the longer are the sections of this lock, and the less that matters.
pub fn patience<M: Machine>() -> u32 {
    (M::sleep_cost() * WORTH).clamp(*PATIENCE.start(), *PATIENCE.end())
}

/// After which time one of so many sleepers first looks by itself. Each next look comes after twice the time.
///
/// Whoever gets up loses its place among the sleepers. So this must not happen before its turn, but for a head that
/// does not run.
pub fn first_look<M: Machine>(sleepers: u32) -> u32 {
    sleepers.saturating_mul(M::tunables().bound_us.saturating_mul(BEYOND_TURN)).max(SLEEPER_LOOKS)
}

/// After how many steps a waiter that found the lock free looks again before it takes it.
///
/// If it takes the lock, its line travels here, and back to the thread that released it, which may be about to come
/// again. One that comes within that time had better find the lock where it left it.
pub fn second_look<M: Machine>() -> u32 {
    M::transfer_cost(2).max(1)
}
