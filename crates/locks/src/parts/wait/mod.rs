//! # Waiting policies
//!
//! How a thread waits for its turn (Dice, *Malthusian Locks*, §5.1). A policy can be combined with any queue.
//!
//! | policy | `wait=` | a waiter … | when |
//! |---|---|---|---|
//! | [`Spin`] | `spin` | polls until its turn comes | never more threads than CPUs |
//! | [`SpinThenPark`] | `stp` | polls for about one context-switch round trip, then sleeps; 2-competitive | default |
//! | [`Park`] | `park` | sleeps at once, in a queue; if it contends for a word (`loiter`, `c-bo-mcs`), it polls first | CPU time matters more than latency |
//! | [`Umwait`] | `umwait` | lets its CPU rest until the line changes, for as long as `stp` would poll, then sleeps | CPUs that have it, with hardware threads that share a core, or where power counts |
//!
//! **`umwait` is `stp` whose polls are rests** (Dice, §5.1: to wait for a change of a line "is tantamount to spinning,
//! but more polite", and serves as the first phase of spin-then-park). A CPU at rest runs no other thread, so a waiter
//! that waits for long must sleep, as under `stp`. A waiter rests only if one store is meant for it alone: it polls a
//! word of its own, or is the first of a queue. Threads that contend with the holder for its word go on polling, with
//! growing pauses, because all of them would wake up at each change. So a lock that has no queue has no `umwait`.
//!
//! The spin budget is the machine's ([`Patience::Budget`]): a measured round trip, cut short where another task is seen
//! to want the CPU.

pub mod left;

use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use crate::machine::event::Event;
use crate::machine::node::{Node, is_asleep, is_head, state};
use crate::machine::{Deadline, Handle, Machine, Manner, Patience, TimedOut, Word};
use crate::parts::counted::{park, unpark, wake};
use left::LeftBehind;

/// How threads wait.
pub trait WaitPolicy: 'static {
    /// Whether a waiter polls before it sleeps.
    const SPINS: bool;
    /// Whether a waiter ever sleeps.
    const PARKS: bool;
    /// Whether a waiter goes on polling for a while when its budget is spent, as long as there are CPUs for that
    /// ([`Waiting::crowded`](crate::machine::Waiting::crowded)).
    const STAYS: bool = false;

    /// Whether the CPU rests between polls, if it can.
    const RESTS: bool = false;

    /// How long a waiter with this deadline may poll before it does something else; a waiter that sleeps polls for
    /// `budget`.
    fn patience(until: Option<Deadline>, budget: Patience) -> Patience {
        match until {
            _ if Self::PARKS => budget,
            Some(deadline) => Patience::Until(deadline),
            None => Patience::Forever,
        }
    }
}

/// How long (µs) a waiter that [stays](WaitPolicy::STAYS) polls at most: it may have the CPU that the holder needs, and
/// a higher priority than the holder.
pub(crate) const STAY: u32 = 10_000;

/// Poll forever.
pub struct Spin;
/// Poll for a while, then sleep.
pub struct SpinThenPark;
/// Sleep at once.
pub struct Park;
/// Rest until the line changes, for a while, then sleep.
pub struct Umwait;
/// As `W`, but a waiter that polls before it sleeps goes on polling for a while, as long as there are CPUs for that.
/// Part of some locks, not a policy that a user chooses.
pub struct Staying<W>(core::marker::PhantomData<W>);

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
impl WaitPolicy for Umwait {
    const SPINS: bool = true;
    const PARKS: bool = true;
    const RESTS: bool = true;
}
impl<W: WaitPolicy> WaitPolicy for Staying<W> {
    const SPINS: bool = W::SPINS;
    const PARKS: bool = W::PARKS;
    const RESTS: bool = W::RESTS;
    const STAYS: bool = W::SPINS && W::PARKS;
}

/// [`Waiting::spin_until`](crate::machine::Waiting::spin_until), in the way in which the policy polls: for a word that
/// one or two waiters look at.
#[inline(always)]
pub(crate) fn poll<M: Machine, W: WaitPolicy>(
    word: &M::Word,
    order: Ordering,
    patience: Patience,
    done: impl FnMut(u32) -> bool,
) -> Option<u32> {
    if W::RESTS {
        M::poll_until(word, order, patience, Manner::Rests, done)
    } else {
        M::spin_until(word, order, patience, done)
    }
}

/// Waits until a node's state ends the wait. `Ok` is that state. When the deadline has passed, the error is the state
/// then: WAITING or PARKED.
///
/// Acquire on `state` pairs with the Release of the thread that stores what is waited for: what the lock hands over
/// goes through this word.
pub(crate) fn notified<M: Machine, W: WaitPolicy>(
    node: &Node<M>,
    until: Option<Deadline>,
    is_notified: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    if W::SPINS {
        let stays = W::STAYS.then(|| M::sooner(STAY, until));
        loop {
            let notified = poll::<M, W>(&node.state, Acquire, W::patience(until, Patience::Budget), &is_notified);
            if let Some(notified) = notified {
                return Ok(notified);
            }
            if stays.is_none_or(|end| M::crowded() || M::expired(&end)) {
                break;
            }
        }
    }
    if W::PARKS {
        // WAITING -> PARKED. If it fails, we have just been notified, or the node was adopted asleep; the loop below
        // sees which.
        let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
    }
    loop {
        let seen = node.state.load(Acquire);
        if is_notified(seen) {
            return Ok(seen);
        }
        if until.is_some_and(|deadline| M::expired(&deadline)) {
            return Err(seen);
        }
        if seen == state::PARKED {
            park::<M>(&node.state, state::PARKED, until);
        }
    }
}

/// Waits in a strict queue: WAITING | PARKED -> HEAD (`Ok`). Or, when the deadline has passed, -> ABANDONED; then the
/// node belongs to the queue, and is counted there.
pub fn turn<M: Machine, W: WaitPolicy>(
    node: &Node<M>,
    until: Option<Deadline>,
    left: LeftBehind<M>,
) -> Result<(), TimedOut> {
    notified::<M, W>(node, until, is_head).map_or_else(|seen| abandon(node, seen, left), |_| Ok(()))
}

/// WAITING | PARKED -> `what`: notifies the waiter. The word is in type-stable memory, so the waiter may leave, and use
/// the node for anything else, before it is woken.
///
/// Release hands over what was done; Acquire takes what the waiter has written.
pub(crate) fn notify<M: Machine>(state: &M::Word, what: u32) {
    if state.swap(what, AcqRel) == state::PARKED {
        wake::<M>(&raw const *state, 1);
    }
}

/// Hands the lock to a waiter in a strict queue: WAITING, or asleep -> HEAD. Returns whether the waiter was still
/// there. If it has given up, the node belongs to the caller; hence a swap, not a CAS. `here` returns the NUMA node
/// from which the lock comes.
///
/// Release hands over the section; Acquire takes the node of a waiter that has given up. Both pair with `turn`.
pub fn grant<M: Machine>(waiter: Handle, here: fn() -> u32) -> bool {
    grant_with::<M>(waiter, None, here)
}

/// Hands the front to a waiter that neither sleeps nor gives up: WAITING -> HEAD, by a store, for which the caller does
/// not wait. Release as in [`grant`].
pub(crate) fn grant_patient<M: Machine>(waiter: Handle, here: fn() -> u32) {
    let node = waiter.node::<M>();
    let hand_off = hand_off(here, node); // Before the waiter may use the node for something else.
    node.state.store(state::HEAD, Release);
    hand_off.count::<M>();
}

/// [`grant`], with the handle `with` ([`handed`]).
pub(crate) fn grant_with<M: Machine>(waiter: Handle, with: Option<Handle>, here: fn() -> u32) -> bool {
    let node = waiter.node::<M>();
    let hand_off = hand_off(here, node); // Before the waiter may use the node for something else.
    let before = node.state.swap(state::HEAD | with.map_or(0, Handle::word) << state::HANDED, AcqRel);
    if before == state::ABANDONED {
        return false;
    }
    hand_off.count::<M>();
    if is_asleep(before) {
        unpark::<M>(node);
    }
    true
}

/// WAITING -> HEAD, with the handle `with` that comes with the lock. The node's own thread does this: it was given the
/// lock before any other thread knew the node. Relaxed: the node is its own.
pub(crate) fn take_given<M: Machine>(node: &Node<M>, with: Option<Handle>) {
    node.state.store(state::HEAD | with.map_or(0, Handle::word) << state::HANDED, Relaxed);
}

/// The handle that came to the node's owner with the lock, if one did. Relaxed: the owner has already seen it.
pub fn handed<M: Machine>(node: &Node<M>) -> Option<Handle> {
    let seen = node.state.load(Relaxed);
    if is_head(seen) { Handle::from_word(seen >> state::HANDED) } else { None }
}

/// [`grant`] to a waiter that is awake: WAITING -> HEAD. Otherwise the error is its state: asleep, or ABANDONED; if
/// ABANDONED, the node belongs to the caller.
pub(crate) fn grant_awake<M: Machine>(waiter: Handle, here: fn() -> u32) -> Result<(), u32> {
    let node = waiter.node::<M>();
    let hand_off = hand_off(here, node); // Before the waiter may use the node for something else.
    node.state.compare_exchange(state::WAITING, state::HEAD, Release, Acquire)?;
    hand_off.count::<M>();
    Ok(())
}

/// A hand-off as it is counted: [`hand_off`].
#[must_use]
pub(crate) struct HandOff(Option<Event>);

/// The kind of a hand-off from `here` to this waiter, if hand-offs are counted.
pub(crate) fn hand_off<M: Machine>(here: impl FnOnce() -> u32, waiter: &Node<M>) -> HandOff {
    HandOff(M::counted_on(waiter).map(|there| if there == here() { Event::HandoffSame } else { Event::HandoffOther }))
}

impl HandOff {
    /// Counts it: it was made.
    #[inline(always)]
    pub(crate) fn count<M: Machine>(self) {
        if let Some(event) = self.0 {
            M::trace(event);
        }
    }
}

/// `seen` (WAITING or PARKED) -> ABANDONED. If the waiter was notified meanwhile (in most queues: it has the lock), it
/// does not leave.
///
/// Release orders the leaving waiter's last look at its node before the node's reuse by the thread that finds it
/// abandoned. Acquire on failure is the hand-off.
pub(crate) fn abandon<M: Machine>(node: &Node<M>, seen: u32, left: LeftBehind<M>) -> Result<(), TimedOut> {
    left.add();
    match node.state.compare_exchange(seen, state::ABANDONED, Release, Acquire) {
        Ok(_) => Err(TimedOut),
        Err(_) => {
            left.remove();
            Ok(())
        }
    }
}
