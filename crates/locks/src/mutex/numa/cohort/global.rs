//! # The global locks of cohort locks
//!
//! A global lock stands in the lock's word, and in its state beside the word. The partitioned ticket lock has a page of
//! its own: [`partitioned`](super::partitioned).
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | word CAS in [`BackOff`] | Acquire | its store | sees the last section |
//! | word store in [`BackOff`], or exchange where waiters sleep | Release | that CAS | hands over this section |

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::level::{Global, Place};
use crate::machine::{Deadline, Machine, Patience, Pause, TimedOut, Word};
use crate::mutex::spin::ticket::Numbers;
use crate::mutex::spin::{tas, word};
use crate::parts::counted::Contention;
use crate::parts::queue::k42::Words;
use crate::parts::wait::{SpinThenPark, WaitPolicy};

/// The first and the longest pause, in [steps](Pause::Steps), of a thread that
/// backs off without ever sleeping.
const PAUSE: [u32; 2] = [4, 512];

/// Test-and-set with back-off, in the word. Policy `W` decides whether waiters only poll, or nap and then sleep.
pub struct BackOff<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

// SAFETY: it uses neither blocks nor nodes.
unsafe impl<W: WaitPolicy> Global for BackOff<W> {
    type State<M: Machine> = ();

    fn try_lock<M: Machine>(at: &Place<'_, M, ()>) -> bool {
        word::try_take::<M>(at.word)
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, ()>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut> {
        if word::try_take::<M>(at.word) {
            return Ok(());
        }
        waiting.begin();
        if W::PARKS {
            return tas::contend::<M>(at.word, until);
        }
        let [mut pause, longest] = PAUSE;
        let taken = |seen| {
            let taken = seen == 0 && word::try_take::<M>(at.word);
            if !taken {
                M::pause(Pause::Steps(pause / 2 + M::random() % pause));
                pause = (2 * pause).min(longest);
            }
            taken
        };
        let patience = W::patience(until, Patience::Contend);
        M::spin_until(at.word, Relaxed, patience, taken).map_or(Err(TimedOut), |_| Ok(()))
    }

    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        if W::PARKS { word::release::<M>(at.word) } else { at.word.store(0, Release) }
    }

    fn is_held<M: Machine>(word: &M::Word, (): &()) -> bool {
        word.load(Relaxed) != 0
    }

    fn reset<M: Machine>(_: &Place<'_, M, ()>, _: bool) {}
}

/// The counters of a global ticket lock.
#[repr(C)]
pub struct TicketWords<M: Machine> {
    /// The number that is drawn next.
    pub next: M::Word,
    /// The number that has the lock, or will have it next.
    pub serving: M::Word,
}

crate::zeroed!(TicketWords<M> { next, serving });

impl<M: Machine> TicketWords<M> {
    pub(super) fn numbers(&self) -> Numbers<'_, M> {
        Numbers { next: &self.next, serving: &self.serving }
    }
}

/// A ticket lock whose counters stand in the lock.
pub struct GlobalTicket;

// SAFETY: it uses neither blocks nor nodes.
unsafe impl Global for GlobalTicket {
    type State<M: Machine> = TicketWords<M>;

    fn try_lock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) -> bool {
        at.state.numbers().try_draw()
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, TicketWords<M>>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut> {
        let numbers = at.state.numbers();
        if let Some(deadline) = until {
            return if numbers.try_draw() {
                Ok(())
            } else {
                waiting.begin();
                numbers.poll(deadline)
            };
        }
        let (mine, served) = numbers.draw();
        if !served {
            waiting.begin();
            numbers.await_turn(mine);
        }
        Ok(())
    }

    fn unlock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) {
        at.state.numbers().call();
    }

    fn is_held<M: Machine>(_: &M::Word, state: &TicketWords<M>) -> bool {
        state.numbers().is_held()
    }

    fn reset<M: Machine>(at: &Place<'_, M, TicketWords<M>>, held: bool) {
        at.state.numbers().reset(held);
    }
}

/// MCS; its tail is the lock's word. Waiters wait by policy `W`.
pub struct GlobalMcs<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// The state of a global MCS lock beside the word.
#[repr(C)]
pub struct McsRest<M: Machine> {
    /// The holder's successor.
    pub next: M::Word,
}

crate::zeroed!(McsRest<M> { next });

impl<'a, M: Machine> Place<'a, M, McsRest<M>> {
    fn words(&self) -> Words<'a, M> {
        Words { tail: self.word, next: &self.state.next }
    }
}

// SAFETY: it uses no blocks; nodes by the invariants of `k42`.
unsafe impl<W: WaitPolicy> Global for GlobalMcs<W> {
    type State<M: Machine> = McsRest<M>;

    fn try_lock<M: Machine>(at: &Place<'_, M, McsRest<M>>) -> bool {
        at.words().try_lock()
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, McsRest<M>>,
        until: Option<Deadline>,
        waiting: &mut Contention<M>,
    ) -> Result<(), TimedOut> {
        if at.words().try_lock() {
            return Ok(());
        }
        waiting.begin();
        at.words().wait::<W>(until)
    }

    fn unlock<M: Machine>(at: &Place<'_, M, McsRest<M>>) {
        at.words().unlock();
    }

    fn is_held<M: Machine>(word: &M::Word, _: &McsRest<M>) -> bool {
        word.load(Relaxed) != 0
    }

    fn reset<M: Machine>(at: &Place<'_, M, McsRest<M>>, held: bool) {
        at.words().reset(held);
    }
}
