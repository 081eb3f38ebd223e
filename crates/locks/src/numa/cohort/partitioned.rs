//! # The partitioned ticket lock, as the global lock of a cohort lock
//!
//! A number n waits on **grant** n mod [`GRANTS`], which says n when it is served; grants are parts of a side block of their own, named
//! by `board` of the lock's block. The holder's number is in `serving`.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | grant load that finds our number | Acquire | grant store | sees the last section |
//! | grant store | Release | that load | hands over this section |

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::global::TicketWords;
use super::level::{Global, Place, Waiting};
use crate::machine::{Deadline, Machine, TimedOut, Word};
use crate::side::Side;
use crate::spin::ticket;

/// How many grants there are. (A power of two, for numbers wrap.)
const GRANTS: u32 = 4;
const _: () = assert!(GRANTS.is_power_of_two() && GRANTS <= crate::side::MOST);

/// The partitioned ticket lock.
pub struct PartitionedTicket;

/// The word that says n when number n is served.
fn grant<M: Machine>(side: Side<M>, number: u32) -> &'static M::Word {
    let board = &side.0.board;
    let board = Side::<M>::of(board).unwrap_or_else(|| Side::make(board, |_| ()));
    &board.part_or_make(number % GRANTS, None, |_| ()).block::<M>().state
}

/// (n, n) -> (n + 1, n), if n is served.
fn try_draw<M: Machine>(at: &Place<'_, M, TicketWords<M>>) -> bool {
    let number = at.state.next.load(Relaxed);
    let grant = grant(at.side, number);
    if grant.load(Acquire) != number {
        return false;
    }
    if at.state.next.compare_exchange(number, number.wrapping_add(1), Relaxed, Relaxed).is_err() {
        return false;
    }
    if grant.load(Acquire) != number {
        ticket::await_turn::<M>(grant, number, 0); // 2^32 numbers were drawn in between.
    }
    true
}

impl Global for PartitionedTicket {
    type State<M: Machine> = TicketWords<M>;

    fn new<M: Machine>() -> TicketWords<M> {
        TicketWords::new()
    }

    fn try_lock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) -> bool {
        try_draw(at)
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, TicketWords<M>>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
    ) -> Result<(), TimedOut> {
        if let Some(deadline) = until {
            if !try_draw(at) {
                waiting.begin();
                ticket::poll::<M>(&at.state.serving, deadline, || try_draw(at))?;
            }
            return Ok(());
        }
        let mine = at.state.next.fetch_add(1, Relaxed);
        let grant = grant(at.side, mine);
        if grant.load(Acquire) != mine {
            waiting.begin();
            ticket::await_turn::<M>(grant, mine, 0);
        }
        Ok(())
    }

    /// Relaxed: `serving` is the holder's, until the grant is stored.
    fn unlock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) {
        let number = at.state.serving.load(Relaxed).wrapping_add(1);
        let grant = grant(at.side, number);
        at.state.serving.store(number, Relaxed);
        grant.store(number, Release);
    }

    fn is_held<M: Machine>(_: &M::Word, state: &TicketWords<M>) -> bool {
        state.numbers().is_held()
    }

    /// Its holder may not have come to the store of the grant.
    fn reset<M: Machine>(at: &Place<'_, M, TicketWords<M>>, held: bool) {
        let number = at.state.serving.load(Relaxed);
        at.state.numbers().reset(held);
        grant(at.side, number).store(number, Relaxed);
    }

    fn destroy<M: Machine>(side: Side<M>) {
        Side::<M>::give_back(&side.0.board);
    }
}
