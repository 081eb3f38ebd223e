//! # Waiting policies
//!
//! How a thread waits for its turn (Dice, *Malthusian Locks*, §5.1). A policy is orthogonal to the queue that it is
//! used with.
//!
//! | policy | `wait=` | a waiter … | when |
//! |---|---|---|---|
//! | [`Spin`] | `spin` | polls until its turn comes | never more threads than CPUs |
//! | [`SpinThenPark`] | `stp` | polls for about one context-switch round trip, then sleeps; 2-competitive | default |
//! | [`Park`] | `park` | sleeps at once, in a queue; who contends for a word (`loiter`, `c-bo-mcs`) polls before | CPU time matters more than latency |
//! | [`Umwait`] | `umwait` | lets its CPU rest until the line changes, for as long as `stp` would poll, then sleeps | CPUs that have it, with hardware threads that share a core, or where power counts |
//!
//! **`umwait` is `stp` whose polls are rests** (Dice, §5.1: to wait for a change of a line "is tantamount to spinning,
//! but more polite", and serves as the first phase of spin-then-park). A CPU at rest is given to no other thread, so
//! who waits for long must sleep, as under `stp`. Only whom one store is meant for rests: a waiter that polls a word of
//! its own, or the first of a queue. Those who contend with the holder for his word go on polling, with growing pauses:
//! all of them would wake up at each change. So a lock that has no queue has no `umwait`.
//!
//! The spin budget is the machine's ([`Patience::Budget`]): a measured round trip, cut short where another task is seen
//! to want the CPU.

pub mod left;
pub mod polling;

use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, Patience, TimedOut, Word};
use crate::node::{Node, is_asleep, is_head, state};
use left::LeftBehind;

/// How threads wait.
pub trait WaitPolicy: 'static {
    /// Whether a waiter polls before it sleeps.
    const SPINS: bool;
    /// Whether a waiter ever sleeps.
    const PARKS: bool;
    /// Whether a waiter polls on for a while when its budget is spent, as long as there are CPUs for that
    /// ([`Machine::crowded`]).
    const STAYS: bool = false;

    /// Whether the CPU rests between polls, if it can.
    const RESTS: bool = false;

    /// [`Machine::spin_until`], as the policy polls: a word that one waiter looks at, or two.
    #[inline(always)]
    fn poll<M: Machine>(
        word: &M::Word,
        order: Ordering,
        patience: Patience,
        done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        if Self::RESTS {
            M::rest_until(word, order, patience, done)
        } else {
            M::spin_until(word, order, patience, done)
        }
    }

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
/// outrank him.
pub(crate) const STAY: u32 = 10_000;

/// Poll for ever.
pub struct Spin;
/// Poll for a while, then sleep.
pub struct SpinThenPark;
/// Sleep at once.
pub struct Park;
/// Rest until the line changes, for a while, then sleep.
pub struct Umwait;
/// As `W`, but whoever polls before he sleeps goes on polling for a while as long as there are CPUs for that. Part of
/// some locks, not a way of waiting that anybody chooses.
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

/// Waits until a node's state is one that ends the wait: that state; or, when the deadline has passed, WAITING or
/// PARKED.
///
/// Acquire on `state` pairs with the Release of whoever stores what is waited for: what the lock hands over goes
/// through this word.
pub(crate) fn notified<M: Machine, W: WaitPolicy>(
    node: &Node<M>,
    until: Option<Deadline>,
    is_notified: impl Fn(u32) -> bool,
) -> Result<u32, u32> {
    if W::SPINS {
        let stays = W::STAYS.then(|| M::sooner(STAY, until));
        loop {
            let notified = W::poll::<M>(&node.state, Acquire, W::patience(until, Patience::Budget), &is_notified);
            if let Some(notified) = notified {
                return Ok(notified);
            }
            if stays.is_none_or(|end| M::crowded() || M::expired(&end)) {
                break;
            }
        }
    }
    if W::PARKS {
        // WAITING -> PARKED. Fails if we are told just now, or if the node was adopted asleep; both show below.
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
            M::trace(Event::Park);
            M::park(&node.state, state::PARKED, until);
        }
    }
}

/// Waits in a strict queue: WAITING | PARKED -> HEAD (`Ok`), or, when the deadline has passed, -> ABANDONED, and the
/// node is the queue's, where it is counted.
pub fn turn<M: Machine, W: WaitPolicy>(
    node: &Node<M>,
    until: Option<Deadline>,
    left: &LeftBehind<M>,
) -> Result<(), TimedOut> {
    notified::<M, W>(node, until, is_head).map_or_else(|seen| abandon(node, seen, left), |_| Ok(()))
}

/// WAITING | PARKED -> what the one who waits for that is to know, by a word that is in type-stable memory: it may go,
/// and do with the node what it wants, before it is woken.
///
/// Release hands over what was done, Acquire takes what the waiter had written.
pub(crate) fn tell<M: Machine>(state: &M::Word, what: u32) {
    if state.swap(what, AcqRel) == state::PARKED {
        M::trace(Event::Wake);
        M::wake(&raw const *state, 1);
    }
}

/// Hands the lock to a waiter in a strict queue: WAITING, or asleep -> HEAD. Whether it was still there; if it has
/// given up, the node is the caller's: a swap, not a CAS, for that reason. `here` says on which NUMA node the lock
/// comes from.
///
/// Release hands over the section, Acquire takes the node of one that has given up; both pair with `turn`.
pub fn grant<M: Machine>(waiter: Handle, here: fn() -> u32) -> bool {
    grant_with::<M>(waiter, None, here)
}

/// Hands the front to a waiter that neither sleeps nor gives up: WAITING -> HEAD, by a store, which the caller does not
/// wait for. Release as in [`grant`].
pub(crate) fn grant_patient<M: Machine>(waiter: Handle, here: fn() -> u32) {
    let node = waiter.node::<M>();
    let hand_off = hand_off(here, node); // Before the waiter may use the node for something else.
    node.state.store(state::HEAD, Release);
    if let Some(event) = hand_off {
        M::trace(event);
    }
}

/// [`grant`], and `with` it this handle ([`handed`]).
pub(crate) fn grant_with<M: Machine>(waiter: Handle, with: Option<Handle>, here: fn() -> u32) -> bool {
    let node = waiter.node::<M>();
    let hand_off = hand_off(here, node); // Before the waiter may use the node for something else.
    let before = node.state.swap(state::HEAD | with.map_or(0, Handle::word) << state::HANDED, AcqRel);
    if before == state::ABANDONED {
        return false;
    }
    if let Some(event) = hand_off {
        M::trace(event);
    }
    if is_asleep(before) {
        M::trace(Event::Wake);
        M::unpark(node);
    }
    true
}

/// WAITING -> HEAD, by the node's own thread, to whom the lock was given before anybody knew the node; with what goes
/// with it. Relaxed: its own.
pub(crate) fn take_given<M: Machine>(node: &Node<M>, with: Option<Handle>) {
    node.state.store(state::HEAD | with.map_or(0, Handle::word) << state::HANDED, Relaxed);
}

/// What the owner of a node was handed with the lock, if he was handed it. Relaxed: he has seen it before.
pub fn handed<M: Machine>(node: &Node<M>) -> Option<Handle> {
    let seen = node.state.load(Relaxed);
    if is_head(seen) { Handle::from_word(seen >> state::HANDED) } else { None }
}

/// [`grant`] to a waiter that is awake: WAITING -> HEAD. If it is not, what it is: asleep, or gone; then the node is
/// the caller's.
pub(crate) fn grant_awake<M: Machine>(waiter: Handle, here: fn() -> u32) -> Result<(), u32> {
    let node = waiter.node::<M>();
    let hand_off = hand_off(here, node); // Before the waiter may use the node for something else.
    node.state.compare_exchange(state::WAITING, state::HEAD, Release, Acquire)?;
    if let Some(event) = hand_off {
        M::trace(event);
    }
    Ok(())
}

/// Which hand-off one from `here` to this waiter is, where somebody counts them.
pub(crate) fn hand_off<M: Machine>(here: impl FnOnce() -> u32, waiter: &Node<M>) -> Option<Event> {
    M::counted_on(waiter).map(|there| if there == here() { Event::HandoffSame } else { Event::HandoffOther })
}

/// `seen` (WAITING or PARKED) -> ABANDONED. If it was told something meanwhile (in most queues: that it has the lock),
/// it does not leave.
///
/// Release orders the leaver's last look at its node before its reuse by whoever finds it abandoned; Acquire on failure
/// is the hand-off.
pub(crate) fn abandon<M: Machine>(node: &Node<M>, seen: u32, left: &LeftBehind<M>) -> Result<(), TimedOut> {
    left.add();
    match node.state.compare_exchange(seen, state::ABANDONED, Release, Acquire) {
        Ok(_) => Err(TimedOut),
        Err(_) => {
            left.remove();
            Ok(())
        }
    }
}
