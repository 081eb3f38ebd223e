//! MCSCR and MCS-TP that pass over waiters which do not run, with one bug each in how they do so.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::node::{Node, is_head, state};
use flashlock_locks::machine::{Deadline, Machine, Patience, Word as _};
use flashlock_locks::mutex::malthusian::Mcscr;
use flashlock_locks::mutex::queue::mcs::Mcs;
use flashlock_locks::parts::queue::service::TimePublished;
use flashlock_locks::parts::queue::service::{Service, Turn};
use flashlock_locks::parts::wait::left::LeftBehind;
use flashlock_locks::parts::wait::{Park, WaitPolicy};

/// MCSCR whose service has the bug `B`, one of the constants below.
pub(crate) type Evicting<const B: u8, W> = Mcscr<W, MutantService<B>>;
/// MCS-TP whose service has the bug `B`.
pub(crate) type MutantTp<const B: u8> = Mcs<Park, MutantService<B>>;
/// Nothing is wrong: the skeleton of the mutants must hold.
pub(crate) const EVICTS: u8 = 0;
/// Passes over a waiter that sleeps, and does not wake it.
pub(crate) const EVICTS_SLEEPERS: u8 = 1;
/// Lets the waiter go at once, while it still holds the lock with its node.
pub(crate) const LETS_GO_EARLY: u8 = 2;
/// A waiter that is passed over does not wait until it is let go.
pub(crate) const GOES_EARLY: u8 = 3;
/// A waiter that gives up stores ABANDONED, even if it has just been passed over.
pub(crate) const ABANDONS: u8 = 4;

/// [`TimePublished`], with the bug.
pub(crate) struct MutantService<const B: u8>;
// SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
unsafe impl<const B: u8> Service for MutantService<B> {
    fn arrive<M: Machine>(node: &Node<M>) {
        TimePublished::arrive(node);
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: LeftBehind<M>) -> Turn {
        let notified = |seen| is_head(seen) || matches!(seen, state::LEAVING | state::EVICTED);
        let patience = W::patience(until, Patience::Forever);
        match B {
            GOES_EARLY => match M::spin_until(&node.state, Acquire, Patience::Budget, notified) {
                Some(state::LEAVING | state::EVICTED) => Turn::Evicted,
                _ => TimePublished::await_turn::<M, W>(node, until, left),
            },
            ABANDONS if M::spin_until(&node.state, Acquire, patience, notified).is_none() => {
                left.add();
                node.state.store(state::ABANDONED, Release);
                Turn::TimedOut
            }
            _ => TimePublished::await_turn::<M, W>(node, until, left),
        }
    }

    fn passes_over<M: Machine>(node: &Node<M>) -> bool {
        match B {
            EVICTS_SLEEPERS => {
                node.state.swap(state::LEAVING, AcqRel);
                true
            }
            LETS_GO_EARLY => node.state.compare_exchange(state::WAITING, state::EVICTED, Release, Relaxed).is_ok(),
            _ => TimePublished::passes_over(node),
        }
    }

    fn let_go<M: Machine>(node: &Node<M>) {
        if B != LETS_GO_EARLY {
            TimePublished::let_go(node);
        }
    }
}
