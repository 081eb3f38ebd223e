//! # Waiting in the queue of a readers-writer ShflLock
//!
//! The wait from the failed attempt on the counter to the front of the queue, and what a waiter may do before its turn.
//! See [`shfl`](super), departures 4 and 6.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::machine::event::Event;
use crate::machine::node::state;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::counted::park;
use crate::parts::naps::{nap_longer, stay_away};
use crate::parts::policy::{Admission, roles};
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::front::{naming, start_clock};
use crate::parts::shuffle::rouse::{rouse, wake};
use crate::parts::shuffle::turn::{Contended, Turn, Waiter};
use crate::parts::wait::WaitPolicy;
use crate::rw::shfl::wait::Wait;
use crate::rw::shfl::{ASLEEP, AWAITED, BAR_READERS, BARS, MOST_DOUBLINGS, ShflRwState, Want};
use crate::rw::{Reader, Writer};

/// How long (µs) a head that leaves waits for a thread that is evicting it.
const BREAK: u32 = 10;

/// What a waiter in the queue may do about the lock before its turn.
struct Waiting<'a, 'b, M: Machine> {
    state: &'a ShflRwState<M>,
    wait: &'a Wait<'b>,
}

impl<M: Machine> Waiter for Waiting<'_, '_, M> {
    fn look_after(&self, last: Option<u32>) -> u32 {
        last.map_or_else(|| self.wait.look::<M>(), |last| last.saturating_mul(2))
    }

    fn take(&mut self, late: bool) -> bool {
        self.state.admit_out_of_turn(self.wait, late) || self.wait.is_over()
    }

    fn has_taken(&self) {
        self.state.evict_idle_head(self.wait.want);
    }

    fn trusts(&self, behind: Option<Handle>) -> bool {
        !self.wait.passes() && self.state.is_wake_up_assured(self.wait.want, behind)
    }
}

impl<M: Machine> ShflRwState<M> {
    /// Waits for the lock, and acquires it.
    #[cold]
    pub(super) fn wait<W: WaitPolicy, P: Admission>(
        &self,
        wait: &Wait<'_>,
        until: Option<Deadline>,
    ) -> Result<(), TimedOut> {
        M::trace(Event::RwContended);
        let want = wait.want;
        if W::SPINS && self.queue.arrive(&self.count, |seen| want.could(seen) && self.admit(want, want.bars(), 0)) {
            return Ok(());
        }
        if W::PARKS
            && M::crowded()
            && let Some(ended) = self.wait_outside(wait, until)
        {
            return ended;
        }
        let late = || until.is_some_and(|deadline| M::expired(&deadline));
        let take = || self.admit_out_of_turn(wait, late()) || wait.is_over();
        if let Some(ended) = self.queue.left().keep_out(&self.count, until, take) {
            return ended;
        }
        // SAFETY: its life in the queue is that of invariant 4, and of 1 to 5 of `front`.
        let me = unsafe { M::take_node() };
        let mut turn = self.queue_up::<W, P>(me, wait, until);
        loop {
            let contended = match turn {
                Turn::Won => return Ok(()),
                Turn::TimedOut => Contended::TimedOut,
                Turn::Head => {
                    let until = wait.at_head.map_or(until, |us| Some(M::sooner(us, until)));
                    self.contend::<W, P>(me, wait, until, false)
                }
                Turn::HeadHolding => self.contend::<W, P>(me, wait, until, true),
            };
            match contended {
                Contended::Won => return Ok(()),
                Contended::TimedOut => return Err(TimedOut),
                Contended::Evicted => turn = self.queue_up::<W, P>(me, wait, until),
            }
        }
    }

    /// Departure 7: sleeps on the counter and competes for the lock when woken, until the wait is overdue or the
    /// deadline has passed: then `None`.
    fn wait_outside(&self, wait: &Wait<'_>, until: Option<Deadline>) -> Option<Result<(), TimedOut>> {
        let want = wait.want;
        if matches!(want, Want::Read(Reader::Behind) | Want::Write(Writer::Preferred)) {
            return None;
        }
        let waited = || M::micros().wrapping_sub(wait.since);
        let late = || until.is_some_and(|deadline| M::expired(&deadline));
        let mut slept = false;
        while let Some(left) = M::tunables().bound_us.checked_sub(waited()).filter(|left| *left > 0 && !late()) {
            if self.admit(want, want.bars(), 0) {
                if slept {
                    self.pass_wake_on(want);
                }
                return Some(Ok(()));
            }
            let seen = self.count.fetch_or(AWAITED, Relaxed) | AWAITED; // Relaxed: flags order nothing.
            if !want.could(seen) || seen & want.bars() != 0 {
                let ended = park::<M>(&self.count, seen, Some(M::sooner(left, until)));
                if !ended.is_by_others() && !M::is_there(&self.count) {
                    return Some(Err(stay_away::<M>(until)));
                }
                slept = true;
            }
        }
        if slept {
            // Invariant 8: this thread may have been woken for the lock, and leaves without it.
            M::wake(&raw const self.count, 1);
        }
        None
    }

    /// Invariant 8, for a waiter that has slept and holds the lock now. If it is a reader, other readers may enter,
    /// too.
    fn pass_wake_on(&self, want: Want) {
        self.count.fetch_or(AWAITED, Relaxed); // The holder's own flag, for its release.
        if !want.writes() {
            M::wake(&raw const self.count, 1);
        }
    }

    /// Joins the queue and waits in it.
    fn queue_up<W: WaitPolicy, P: Admission>(&self, me: Handle, wait: &Wait<'_>, until: Option<Deadline>) -> Turn {
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        // `join` publishes these, with the rest.
        let role = if wait.want.writes() { roles::WRITES } else { roles::READS };
        node.role.store(self.queue.marked(role), Relaxed);
        node.check_at.store(0, Relaxed);
        node.queued_at.store(M::micros(), Relaxed);
        let behind = self.queue.join_behind(me, me);
        if behind.is_some() {
            return self.queue.wait_turn::<W, P>(me, behind, until, Waiting { state: self, wait });
        }
        start_clock(node);
        node.state.store(state::HEAD, Relaxed); // No other thread changes it yet: `head` does not name it.
        self.queue.set_head(naming(me));
        Turn::Head
    }

    /// Whether the head sleeps on the counter, and must: then a release wakes it, and later releases check whether it
    /// has run since; and whether the waiter that joined behind `behind` is linked. Relaxed: this is true now, or was
    /// true a moment ago.
    fn is_wake_up_assured(&self, want: Want, behind: Option<Handle>) -> bool {
        let asleep = |head: Handle| head.node::<M>().state.load(Relaxed) == state::NAPPING;
        let count = self.count.load(Relaxed);
        self.live_head().is_some_and(asleep)
            && count & ASLEEP != 0
            && !want.could(count)
            && behind.is_none_or(ShflQueue::<M>::is_linked)
    }

    /// Acquires the lock past waiters that came first, if the wait has been long enough for that. A bar is no obstacle
    /// if the head that raised it does not run. `late`: the deadline has passed, so readers that may pass writers at
    /// all do so now.
    fn admit_out_of_turn(&self, wait: &Wait<'_>, late: bool) -> bool {
        let head = self.live_head();
        let idle = head.is_some_and(|head| wait.want.could(self.count.load(Relaxed)) && self.is_idle(head.node::<M>()));
        if head.is_none() || idle {
            // Invariant 7. If the head runs after all, it raises its bars anew; if it sleeps, it does not sleep for
            // long. If writers are preferred, readers wait even for a head that does not run, as in glibc: it may only
            // lack a CPU.
            let prefers = matches!(wait.want, Want::Read(Reader::Behind) | Want::Write(Writer::Preferred));
            let kept = if idle && prefers { BAR_READERS } else { 0 };
            let sleeper = if idle { ASLEEP } else { 0 };
            let down = (BARS | sleeper) & !kept;
            if self.count.fetch_and(!down, Relaxed) & down != 0 {
                self.call_head(); // By now there may be another head, which has raised them, and sleeps.
            }
            return self.admit(wait.want, kept & wait.want.bars(), 0);
        }
        let (Want::Read(Reader::Newcomer | Reader::Again), Some(head)) = (wait.want, head) else {
            return self.admit(wait.want, wait.want.bars(), 0);
        };
        let passed = &head.node::<M>().passes;
        let bound = u64::from(M::tunables().bound_us) << passed.load(Relaxed).min(MOST_DOUBLINGS);
        let waited = u64::from(M::micros().wrapping_sub(wait.since));
        if !late && waited < bound {
            return self.admit(wait.want, BAR_READERS, 0);
        }
        let barred = self.count.load(Relaxed) & BAR_READERS != 0;
        let admitted = self.admit(wait.want, 0, 0);
        if admitted && barred {
            // Relaxed: a hint. If the head has left meanwhile, another waiter counts as passed once too often.
            passed.fetch_add(1, Relaxed);
            M::trace(Event::RwPassed);
        }
        admitted
    }

    /// A thread that has won out of turn evicts the head if the head does not run.
    fn evict_idle_head(&self, want: Want) {
        let Some(head) = self.live_head().filter(|head| self.is_idle(head.node::<M>())) else { return };
        let onto = want.writes().then_some(&self.count);
        let next = self.queue.evict(head, onto);
        self.rouse_evicted();
        match next {
            Some(_) if onto.is_some() => self.note_sleeper(0),
            Some(next) => wake::<M>(next),
            None => {}
        }
        if let Some(head) = self.live_head() {
            rouse::<M>(head);
        }
    }

    /// The evicted head may be about to sleep on the counter, where no release would wake it: the next head clears its
    /// flag, and may have done so already. If it has set SLEEPER before this, it is woken, or finds that the counter
    /// has changed. Otherwise it sees that it was evicted: AcqRel pairs with `park_on_count`. The caller holds the
    /// lock.
    fn rouse_evicted(&self) {
        self.count.fetch_and(!ASLEEP, AcqRel);
        M::wake(&raw const self.count, u32::MAX);
    }

    /// Wakes the head if it sleeps on the counter: flags that it relies on may have been taken down. It sets them
    /// again, or finds the lock free.
    pub(super) fn call_head(&self) {
        M::wake(&raw const self.count, u32::MAX);
    }

    /// Removes this head from the queue and installs the next: invariant 4. Returns the next head if it sleeps. Without
    /// `onto`, the caller must wake it; with `onto`, it sleeps on that word.
    pub(super) fn depart(&self, me: Handle, onto: Option<&M::Word>) -> Option<Handle> {
        let (node, mut nap) = (me.node::<M>(), BREAK);
        while !self.queue.unname(me) {
            if !node.is_alive() {
                // A forked child, without the queue. The node is lost: the tail may still name it.
                return None;
            }
            // Another thread is evicting this one, or is giving that up.
            let gone = |seen| seen == state::EVICTED;
            if M::spin_until(&node.state, Acquire, crate::machine::Patience::Budget, gone).is_some() {
                self.call_head(); // This thread took flags down, for itself: they may have been the next head's.
                M::give_node(me);
                return None;
            }
            nap_longer::<M>(&mut nap, None);
        }
        self.queue.pass(me, onto)
    }
}
