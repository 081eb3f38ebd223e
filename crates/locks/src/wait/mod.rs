//! # Waiting policies
//!
//! How a thread waits for its turn (Dice, *Malthusian Locks*, §5.1). A policy is orthogonal to the queue that it is used
//! with.
//!
//! | policy | `wait=` | a waiter … | when |
//! |---|---|---|---|
//! | [`Spin`] | `spin` | polls until its turn comes | never more threads than CPUs |
//! | [`SpinThenPark`] | `stp` | polls for about one context-switch round trip, then sleeps; 2-competitive | default |
//! | [`Park`] | `park` | sleeps at once | CPU time matters more than latency |
//!
//! The spin budget is the machine's ([`Patience::Budget`]): a measured round trip, cut short where another task is seen
//! to want the CPU.

pub mod left;
pub mod polling;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Machine, Patience, TimedOut, Word};
use crate::node::{Node, state};
use left::LeftBehind;

/// How threads wait.
pub trait WaitPolicy: 'static {
    /// Whether a waiter polls before it sleeps.
    const SPINS: bool;
    /// Whether a waiter ever sleeps.
    const PARKS: bool;

    /// How long a waiter with this deadline may poll before it does something else; a waiter that sleeps polls for `budget`.
    fn patience(until: Option<Deadline>, budget: Patience) -> Patience {
        match until {
            _ if Self::PARKS => budget,
            Some(deadline) => Patience::Until(deadline),
            None => Patience::Forever,
        }
    }
}

/// Poll for ever.
pub struct Spin;
/// Poll for a while, then sleep.
pub struct SpinThenPark;
/// Sleep at once.
pub struct Park;

impl WaitPolicy for Spin {
    const SPINS: bool = true;
    const PARKS: bool = false;
}
impl WaitPolicy for SpinThenPark {
    const SPINS: bool = true;
    const PARKS: bool = true;
}
impl WaitPolicy for Park {
    const SPINS: bool = false;
    const PARKS: bool = true;
}

/// Waits in a strict queue: WAITING | PARKED -> HEAD (`Ok`), or, when the deadline has passed, -> ABANDONED, and the node
/// is the queue's, where it is counted.
///
/// Acquire on `state` pairs with the Release of whoever stores HEAD: the lock's hand-off goes through this word.
pub fn turn<M: Machine, W: WaitPolicy>(
    node: &Node<M>,
    until: Option<Deadline>,
    left: &LeftBehind<M>,
) -> Result<(), TimedOut> {
    let is_head = |s| s == state::HEAD;
    if W::SPINS && M::spin_until(&node.state, Acquire, W::patience(until, Patience::Budget), is_head).is_some() {
        return Ok(());
    }
    if W::PARKS {
        // WAITING -> PARKED. Fails if it is our turn, or if the node was adopted asleep; both show below.
        let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
    }
    loop {
        let seen = node.state.load(Acquire);
        if is_head(seen) {
            return Ok(());
        }
        if until.is_some_and(|deadline| M::expired(&deadline)) {
            return abandon(node, seen, left);
        }
        if seen == state::PARKED {
            M::trace(Event::Park);
            M::park(&node.state, state::PARKED, until);
        }
    }
}

/// `seen` (WAITING or PARKED) -> ABANDONED. If its turn came meanwhile, the waiter has the lock after all.
///
/// Release orders the leaver's last look at its node before its reuse by whoever finds it abandoned; Acquire on failure is
/// the hand-off.
fn abandon<M: Machine>(node: &Node<M>, seen: u32, left: &LeftBehind<M>) -> Result<(), TimedOut> {
    left.add();
    match node.state.compare_exchange(seen, state::ABANDONED, Release, Acquire) {
        Ok(_) => Err(TimedOut),
        Err(_) => {
            left.remove();
            Ok(())
        }
    }
}
