//! # The partitioned ticket lock, as the global lock of a cohort lock
//!
//! A ticket lock whose waiters poll different lines. The waiter with number n polls **grant** n mod [`GRANTS`], which
//! holds n when n is served. The grants are parts of a side block of their own, named by `board` of the lock's block.
//!
//! A thread that finds the lock free takes it with the number that it draws, and reads no grant. A release for which no
//! thread has drawn the next number uses no grant either. So a lock that no thread waits for needs no grants.
//!
//! | `next` | meaning |
//! |---|---|
//! | n, 0 | free; n is drawn next |
//! | n, [`HELD`] | held; n is drawn next |
//!
//! The holder's number is in `serving`, which only the holder accesses. Numbers have 31 bits.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | grant load that finds our number | Acquire | grant store | sees the last section |
//! | grant store | Release | that load | hands over this section |
//! | `next` CAS free -> held | Acquire | `next` CAS held -> free, Release | the same |
//! | `next` CAS that draws; the failing CAS of a release | Release; Acquire | each other | a releaser that finds a number drawn finds the side block of the thread that drew it |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::global::TicketWords;
use super::level::{Global, Place};
use crate::machine::{Deadline, Machine, TimedOut, Word};
use crate::mutex::spin::ticket;
use crate::parts::counted::Contention;
use crate::parts::side::Side;

/// The number of grants. (A power of two, because numbers wrap.)
const GRANTS: u32 = 4;
const _: () = assert!(GRANTS.is_power_of_two() && GRANTS <= crate::parts::side::MOST);

/// The partitioned ticket lock.
pub struct PartitionedTicket;

/// Bit of `next`: the lock is held.
const HELD: u32 = 1;
/// The unit by which a number counts in `next`.
const ONE: u32 = 2;
/// The value of a grant that has served no number yet.
const NOBODY: u32 = u32::MAX;

/// The grant of this number: it holds `number` when that is served.
fn grant<M: Machine>(side: Side<M>, number: u32) -> &'static M::Word {
    let board = &side.0.board;
    let board = Side::<M>::of(board).unwrap_or_else(|| Side::make(board, |_| ()));
    let part = board.part_or_make(number % GRANTS, None, |part| part.state.store(NOBODY, Relaxed));
    &part.block::<M>().state
}

/// The number in `next`.
const fn number(next: u32) -> u32 {
    next / ONE
}

/// (n, free) -> (n + 1, held), and n is the holder's number.
fn try_take<M: Machine>(state: &TicketWords<M>) -> bool {
    let seen = state.next.load(Relaxed);
    let taken =
        seen & HELD == 0 && state.next.compare_exchange(seen, seen.wrapping_add(ONE) | HELD, Acquire, Relaxed).is_ok();
    if taken {
        state.serving.store(number(seen), Relaxed);
    }
    taken
}

/// (n, held) -> (n + 1, held). Returns the number drawn, or none if the lock was free and has been taken.
fn draw<M: Machine>(state: &TicketWords<M>) -> Option<u32> {
    loop {
        if try_take(state) {
            return None;
        }
        let seen = state.next.load(Relaxed);
        if seen & HELD != 0 && state.next.compare_exchange(seen, seen.wrapping_add(ONE), Release, Relaxed).is_ok() {
            return Some(number(seen));
        }
    }
}

// SAFETY: of the side block it uses `board`; it has no nodes.
unsafe impl Global for PartitionedTicket {
    type State<M: Machine> = TicketWords<M>;

    fn try_lock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) -> bool {
        try_take(at.state)
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, TicketWords<M>>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut> {
        if try_take(at.state) {
            return Ok(());
        }
        if let Some(deadline) = until {
            waiting.begin();
            return ticket::poll::<M>(&at.state.next, deadline, || try_take(at.state));
        }
        let Some(side) = at.side() else { return Err(TimedOut) }; // There is one: see `Place::named`.
        if let Some(mine) = draw(at.state) {
            let grant = grant(side, mine);
            if grant.load(Acquire) != mine {
                waiting.begin();
                ticket::await_turn::<M>(grant, mine, 0);
            }
            at.state.serving.store(mine, Relaxed);
        }
        Ok(())
    }

    fn unlock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) {
        let next = at.state.serving.load(Relaxed).wrapping_add(1).wrapping_mul(ONE);
        if at.state.next.compare_exchange(next | HELD, next, Release, Acquire).is_ok() {
            return;
        }
        if let Some(side) = at.side() {
            grant(side, number(next)).store(number(next), Release);
        }
    }

    fn is_held<M: Machine>(_: &M::Word, state: &TicketWords<M>) -> bool {
        state.next.load(Relaxed) & HELD != 0
    }

    fn reset<M: Machine>(at: &Place<'_, M, TicketWords<M>>, held: bool) {
        let next = at.state.serving.load(Relaxed).wrapping_add(1).wrapping_mul(ONE);
        at.state.next.store(next | u32::from(held), Relaxed);
    }

    fn destroy<M: Machine>(side: Side<M>) {
        Side::<M>::give_back(&side.0.board);
    }
}
