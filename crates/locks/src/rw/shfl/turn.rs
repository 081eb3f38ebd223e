//! # Waiting in the queue of a readers-writer ShflLock
//!
//! From the failed attempt on the counter to the front of the queue, and what a waiter may do when its patience is at an end. See
//! [`shfl`](super), departures 4 and 6.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::event::Event;
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::node::state;
use crate::policy::{Admission, roles};
use crate::rw::shfl::head::{Contended, is_idle};
use crate::rw::shfl::{BAR_READERS, BARS, MOST_DOUBLINGS, SLEEPER, ShflRwState, Want};
use crate::rw::{Reader, Writer};
use crate::shuffle::front::{naming, start_clock};
use crate::shuffle::release::{rouse, wake};
use crate::shuffle::turn::{PATIENCE, Turn, is_told};
use crate::wait::WaitPolicy;

/// The longest patience (µs) of a waiter: after so much silence, it looks for itself.
const PATIENCE_MAX: u32 = 80_000;

/// What it means that the time of a wait is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The caller's deadline has passed: it leaves, and readers that pass writers at all do so now.
    Late,
    /// The same; and once it is first it waits for so long (µs) at most.
    SoonerAtHead(u32),
    /// The caller looks at something else, and comes back.
    ToLookAround,
}

/// A wait: what for, and how long it has lasted.
struct Wait {
    want: Want,
    /// When it began, in µs.
    since: u32,
    /// Whether it goes on when its time is over: then that is no reason to pass anybody.
    goes_on: bool,
}

impl Wait {
    fn begin<M: Machine>(want: Want, ends: Ends) -> Self {
        Self { want, since: M::micros(), goes_on: ends == Ends::ToLookAround }
    }

    /// How long (µs) the waiter sleeps, at first, before it looks for itself.
    fn patience<M: Machine>(&self) -> u32 {
        match self.want {
            Want::Read(Reader::Newcomer | Reader::Again) => M::tunables().bound_us.clamp(1, PATIENCE),
            _ => PATIENCE,
        }
    }
}

impl<M: Machine> ShflRwState<M> {
    /// Waits for the lock, and acquires it.
    #[cold]
    pub(super) fn wait<W: WaitPolicy, P: Admission>(
        &self,
        want: Want,
        until: Option<Deadline>,
        ends: Ends,
    ) -> Result<(), TimedOut> {
        M::trace(Event::RwContended);
        if W::SPINS && self.queue.arrive(&self.count, |seen| want.could(seen) && self.admit(want, want.bars(), 0)) {
            return Ok(());
        }
        let wait = Wait::begin::<M>(want, ends);
        let late = || until.is_some_and(|deadline| M::expired(&deadline));
        let take = || self.admit_out_of_turn(&wait, late());
        if let Some(ended) = self.queue.left().keep_out(until, take) {
            return ended;
        }
        let me = M::take_node();
        let mut turn = self.line_up::<W, P>(me, &wait, until);
        loop {
            let contended = match turn {
                Turn::Won => return Ok(()),
                Turn::TimedOut => Contended::TimedOut,
                Turn::Head => {
                    let until = match ends {
                        Ends::SoonerAtHead(us) => Some(M::sooner(us, until)),
                        _ => until,
                    };
                    self.contend::<W, P>(me, want, until, false)
                }
                Turn::HeadHolding => self.contend::<W, P>(me, want, until, true),
            };
            match contended {
                Contended::Won => return Ok(()),
                Contended::TimedOut => return Err(TimedOut),
                Contended::Evicted => turn = self.line_up::<W, P>(me, &wait, until),
            }
        }
    }

    /// Joins the queue and waits in it.
    fn line_up<W: WaitPolicy, P: Admission>(&self, me: Handle, wait: &Wait, until: Option<Deadline>) -> Turn {
        let node = me.node::<M>();
        node.prepare(state::WAITING);
        node.role.store(if wait.want.writes() { roles::WRITES } else { roles::READS }, Relaxed); // Published as the rest, by `join`.
        if !self.queue.join(me, me) {
            return self.wait_turn::<W, P>(me, wait, until);
        }
        start_clock(node);
        node.state.store(state::HEAD, Relaxed); // Nobody else changes it yet: `head` does not name it.
        self.queue.set_head(naming(me));
        Turn::Head
    }

    /// Waits in the queue.
    fn wait_turn<W: WaitPolicy, P: Admission>(&self, me: Handle, wait: &Wait, until: Option<Deadline>) -> Turn {
        let node = me.node::<M>();
        let mut patience = wait.patience::<M>();
        loop {
            let limit = M::sooner(patience, until);
            if W::SPINS && self.queue.spin_while_shuffled::<W, P>(me, limit) {
                return Turn::Head;
            }
            match self.queue.sleep_in_queue::<W>(node, limit) {
                told if is_told(told) => return Turn::Head,
                state::WAITING if W::PARKS => continue, // woken ahead of its turn: spin
                _ => {}
            }
            if self.queue.claim_notice(me) {
                return Turn::Head;
            }
            let late = until.is_some_and(|deadline| M::expired(&deadline));
            let won = self.admit_out_of_turn(wait, late);
            if won || late {
                let turn = self.queue.leave_node(node, won);
                if matches!(turn, Turn::Won) {
                    self.evict_idle_head(wait.want);
                }
                return turn;
            }
            patience = (patience * 2).min(PATIENCE_MAX.max(M::tunables().bound_us));
        }
    }

    /// Acquires the lock past who came first, if the wait has been long enough for that; a bar is no obstacle if the head which raised it
    /// is not running. `late`: the deadline has passed, so readers that pass writers at all do so now.
    fn admit_out_of_turn(&self, wait: &Wait, late: bool) -> bool {
        let head = self.live_head();
        let idle = head.is_some_and(|head| is_idle(head.node::<M>()));
        if head.is_none() || idle {
            // Invariant 6. It raises them anew, should it run; and should it sleep, it does not do so for long. Where writers are
            // preferred, readers wait for one that does not run, too, as in glibc: it may only have no CPU.
            let prefers = matches!(wait.want, Want::Read(Reader::Behind) | Want::Write(Writer::Preferred));
            let kept = if idle && prefers { BAR_READERS } else { 0 };
            let sleeper = if idle { SLEEPER } else { 0 };
            self.count.fetch_and(!((BARS | sleeper) & !kept), Relaxed);
            return self.admit(wait.want, kept & wait.want.bars(), 0);
        }
        let (Want::Read(Reader::Newcomer | Reader::Again), Some(head)) = (wait.want, head) else {
            return self.admit(wait.want, wait.want.bars(), 0);
        };
        let passed = &head.node::<M>().passes;
        let bound = u64::from(M::tunables().bound_us) << passed.load(Relaxed).min(MOST_DOUBLINGS);
        let waited = u64::from(M::micros().wrapping_sub(wait.since));
        if (!late || wait.goes_on) && waited < bound {
            return self.admit(wait.want, BAR_READERS, 0);
        }
        let barred = self.count.load(Relaxed) & BAR_READERS != 0;
        let admitted = self.admit(wait.want, 0, 0);
        if admitted && barred {
            // Relaxed: a hint. If the head has left meanwhile, another waiter's wait counts as passed once too often.
            passed.fetch_add(1, Relaxed);
            M::trace(Event::RwPassed);
        }
        admitted
    }

    /// Who has won out of turn throws the head out of the queue if that has not run for long.
    fn evict_idle_head(&self, want: Want) {
        let Some(head) = self.live_head().filter(|head| is_idle(head.node::<M>())) else { return };
        if let Some(next) = self.queue.evict(head, want.writes()) {
            wake::<M>(next);
        } else if want.writes() {
            self.note_untold();
        }
        if let Some(head) = self.live_head() {
            rouse::<M>(head);
        }
    }

    /// (head = me) -> (head = the next), out of the queue: invariant 4. The next, if the caller is to wake it; with `defer`, the release
    /// is.
    pub(super) fn depart(&self, me: Handle, defer: bool) -> Option<Handle> {
        let node = me.node::<M>();
        while !self.queue.change_head(naming(me), 0) {
            // Somebody is evicting us, or takes that back.
            let gone = |seen| seen == state::EVICTED;
            if M::spin_until(&node.state, Acquire, crate::machine::Patience::Budget, gone).is_some() {
                M::give_node(me);
                return None;
            }
            M::relax(super::head::BREAK);
        }
        self.queue.pass(me, defer)
    }
}
