//! # The levels of cohort locks
//!
//! What a [cohort lock](super) asks of the locks that it is made of, and the locks. A local lock lives in a part of the side block; a global one in the
//! lock's word and up to two words more, and in the side block if it needs lines of its own.
//!
//! | part's word | MCS | ticket |
//! |---|---|---|
//! | `since` | `tail` | `next` |
//! | `granted_at` | `next` | `serving` |
//! | `left` | nodes left behind | – |
//! | `passes` | the cohort's | the cohort's |
//!
//! ## The partitioned ticket lock
//! A number n waits on **grant** n mod [`GRANTS`], which says n when it is served; grants are parts of a side block of their own, named by `role` of the
//! lock's index. The holder's number is in `serving`.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | word CAS in [`BackOff`] | Acquire | its store | sees the last section |
//! | word store in [`BackOff`] | Release | that CAS | hands over this section |
//! | grant load that finds our number | Acquire | grant store | sees the last section |
//! | grant store | Release | that load | hands over this section |

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::event::Event;
use crate::machine::{Deadline, Machine, Patience, TimedOut, Word};
use crate::node::Node;
use crate::queue::mcs::{InOrder, Service, Turn, Words};
use crate::side::Side;
use crate::spin::tas;
use crate::spin::ticket::{self, Numbers};
use crate::wait::left::LeftBehind;
use crate::wait::{SpinThenPark, WaitPolicy};

/// How many grants a partitioned ticket lock has. (A power of two, for numbers wrap.)
const GRANTS: u32 = 4;
const _: () = assert!(GRANTS.is_power_of_two() && GRANTS <= crate::side::SLOTS);

/// The first and the longest pause of a thread that backs off for ever, in steps of [`Machine::pause`].
const PAUSE: [u32; 2] = [4, 512];

/// An acquisition that may have to wait, at either level: it is contended once.
pub struct Waiting<M: Machine> {
    began: Option<u64>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Waiting<M> {
    pub(super) fn new() -> Self {
        Self { began: None, machine: PhantomData }
    }

    /// It has to.
    fn begin(&mut self) {
        if self.began.is_none() {
            M::trace(Event::Contended);
            self.began = Some(M::stamp());
        }
    }

    /// It is over.
    pub(super) fn end(self, how: Result<(), TimedOut>) -> Result<(), TimedOut> {
        match (how, self.began) {
            (Ok(()), Some(stamp)) => M::waited(stamp),
            (Ok(()), None) => {}
            (Err(_), _) => M::trace(Event::TimedOut),
        }
        how
    }
}

/// A lock among the threads of a NUMA node.
pub trait LocalLock: 'static {
    /// Whether a waiter may leave when its deadline has passed. If not, none with a deadline comes.
    const CAN_LEAVE: bool;

    /// Acquires it. How many hand-overs ago the global lock was acquired, which came with it; 0 if it did not. `passes` of the part says the same then.
    fn lock<M: Machine>(part: &Node<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<u32, TimedOut>;

    /// For the holder: whether somebody waits, or did a moment ago.
    fn has_waiters<M: Machine>(part: &Node<M>) -> bool;

    /// Hands it to the next waiter, who cannot leave it any more, with the global lock, for the `passes`th time. Whether there was one; if not, the
    /// caller still holds it.
    fn pass<M: Machine>(part: &Node<M>, passes: u32) -> bool;

    /// Releases it. Of a free one: nothing.
    fn unlock<M: Machine>(part: &Node<M>);

    /// In a forked child: nobody waits; free, or `held`. Nobody else is there.
    fn reset<M: Machine>(part: &Node<M>, held: bool);
}

/// A lock among NUMA nodes; any thread may release it.
pub trait Global: 'static {
    /// What it has beside the word.
    type State<M: Machine>: 'static;

    /// A free lock's.
    fn new<M: Machine>() -> Self::State<M>;

    /// Acquires it, if that is possible at once.
    fn try_lock<M: Machine>(at: &Place<'_, M, Self::State<M>>) -> bool;

    /// Acquires it.
    fn lock<M: Machine>(
        at: &Place<'_, M, Self::State<M>>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
    ) -> Result<(), TimedOut>;

    /// Releases it. The last access is the store that lets another thread in.
    fn unlock<M: Machine>(at: &Place<'_, M, Self::State<M>>);

    /// Whether somebody holds it, or did a moment ago.
    fn is_held<M: Machine>(word: &M::Word, state: &Self::State<M>) -> bool;

    /// In a forked child: nobody waits; free, or `held`. Nobody else is there.
    fn reset<M: Machine>(at: &Place<'_, M, Self::State<M>>, held: bool);

    /// Gives back what it has in the side block beside the parts.
    fn destroy<M: Machine>(_: Side<M>) {}
}

/// Where a global lock is.
pub struct Place<'a, M: Machine, S> {
    pub(super) word: &'a M::Word,
    pub(super) state: &'a S,
    pub(super) side: Side<M>,
}

impl<M: Machine, S> Place<'_, M, S> {
    /// The lock's word.
    pub fn word(&self) -> &M::Word {
        self.word
    }

    /// Its side block.
    pub fn side(&self) -> Side<M> {
        self.side
    }
}

/// First come, first served; the number of hand-overs goes from node to node, whose line the waiter polls anyway.
struct Counting;

impl Service for Counting {
    fn arrive<M: Machine>(node: &Node<M>) {
        node.passes.store(0, Relaxed); // Published, like all below, with the node, or the lock.
    }

    fn await_turn<M: Machine, W: WaitPolicy>(node: &Node<M>, until: Option<Deadline>, left: &LeftBehind<M>) -> Turn {
        InOrder::await_turn::<M, W>(node, until, left)
    }

    fn passes_over<M: Machine>(_: &Node<M>) -> bool {
        false
    }

    fn tell<M: Machine>(node: &Node<M>, passes: u32) {
        node.passes.store(passes, Relaxed);
    }

    fn told<M: Machine>(node: &Node<M>) -> u32 {
        node.passes.load(Relaxed)
    }
}

/// MCS in a part; waiters wait by policy `W`.
pub struct LocalMcs<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

fn words<M: Machine>(part: &Node<M>) -> Words<'_, M> {
    Words { tail: &part.since, next: &part.granted_at, left: &part.left }
}

impl<W: WaitPolicy> LocalLock for LocalMcs<W> {
    const CAN_LEAVE: bool = true;

    #[inline]
    fn lock<M: Machine>(part: &Node<M>, until: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<u32, TimedOut> {
        if words(part).try_lock() {
            return Ok(0);
        }
        waiting.begin();
        let passes = words(part).wait::<W, Counting>(until)?;
        if passes != 0 {
            part.passes.store(passes, Relaxed);
        }
        Ok(passes)
    }

    fn has_waiters<M: Machine>(part: &Node<M>) -> bool {
        words(part).has_waiters()
    }

    fn pass<M: Machine>(part: &Node<M>, passes: u32) -> bool {
        words(part).pass::<Counting>(passes)
    }

    fn unlock<M: Machine>(part: &Node<M>) {
        words(part).unlock::<Counting>();
    }

    fn reset<M: Machine>(part: &Node<M>, held: bool) {
        words(part).reset(held);
    }
}

/// A ticket lock in a part.
pub struct LocalTicket;

fn numbers<M: Machine>(part: &Node<M>) -> Numbers<'_, M> {
    Numbers { next: &part.since, serving: &part.granted_at }
}

impl LocalLock for LocalTicket {
    const CAN_LEAVE: bool = false;

    #[inline]
    fn lock<M: Machine>(part: &Node<M>, _: Option<Deadline>, waiting: &mut Waiting<M>) -> Result<u32, TimedOut> {
        let (mine, served) = numbers(part).draw();
        if !served {
            waiting.begin();
            numbers(part).await_turn(mine);
        }
        Ok(part.passes.load(Relaxed))
    }

    fn has_waiters<M: Machine>(part: &Node<M>) -> bool {
        numbers(part).has_waiters()
    }

    /// Who has drawn a number waits for it.
    fn pass<M: Machine>(part: &Node<M>, passes: u32) -> bool {
        part.passes.store(passes, Relaxed);
        M::trace(Event::HandoffSame);
        numbers(part).call();
        true
    }

    fn unlock<M: Machine>(part: &Node<M>) {
        if numbers(part).is_held() {
            numbers(part).call();
        }
    }

    fn reset<M: Machine>(part: &Node<M>, held: bool) {
        numbers(part).reset(held);
    }
}

/// Test-and-set with back-off, in the word; waiters nap, or poll, as `W` says.
pub struct BackOff<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

impl<W: WaitPolicy> Global for BackOff<W> {
    type State<M: Machine> = ();

    fn new<M: Machine>() {}

    fn try_lock<M: Machine>(at: &Place<'_, M, ()>) -> bool {
        tas::try_take::<M>(at.word)
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, ()>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
    ) -> Result<(), TimedOut> {
        if tas::try_take::<M>(at.word) {
            return Ok(());
        }
        waiting.begin();
        if W::PARKS {
            return tas::contend::<M>(at.word, until);
        }
        let [mut pause, longest] = PAUSE;
        let taken = |seen| {
            let taken = seen == 0 && tas::try_take::<M>(at.word);
            if !taken {
                M::pause(pause / 2 + M::random() % pause);
                pause = (2 * pause).min(longest);
            }
            taken
        };
        let patience = W::patience(until, Patience::Contend);
        M::spin_until(at.word, Relaxed, patience, taken).map_or(Err(TimedOut), |_| Ok(()))
    }

    fn unlock<M: Machine>(at: &Place<'_, M, ()>) {
        at.word.store(0, Release);
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
    /// The number that has the lock, or will have it.
    pub serving: M::Word,
}

impl<M: Machine> TicketWords<M> {
    fn new() -> Self {
        Self { next: M::Word::new(0), serving: M::Word::new(0) }
    }

    fn numbers(&self) -> Numbers<'_, M> {
        Numbers { next: &self.next, serving: &self.serving }
    }
}

/// A ticket lock in the lock.
pub struct GlobalTicket;

impl Global for GlobalTicket {
    type State<M: Machine> = TicketWords<M>;

    fn new<M: Machine>() -> TicketWords<M> {
        TicketWords::new()
    }

    fn try_lock<M: Machine>(at: &Place<'_, M, TicketWords<M>>) -> bool {
        at.state.numbers().try_draw()
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, TicketWords<M>>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
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

/// The partitioned ticket lock.
pub struct PartitionedTicket;

/// The word that says n when number n is served.
fn grant<M: Machine>(side: Side<M>, number: u32) -> &'static M::Word {
    let board = &side.0.role;
    let board = Side::<M>::of(board).unwrap_or_else(|| Side::make(board, |_| ()));
    &board.part_or_make(number % GRANTS).node::<M>().granted_at
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
        Side::<M>::give_back(&side.0.role);
    }
}

/// MCS; its tail is the word. Waiters wait by policy `W`.
pub struct GlobalMcs<W: WaitPolicy = SpinThenPark>(PhantomData<W>);

/// What a global MCS lock has beside the word.
#[repr(C)]
pub struct McsRest<M: Machine> {
    /// The holder's successor.
    pub next: M::Word,
    /// Nodes of waiters that gave up.
    pub left: LeftBehind<M>,
}

impl<'a, M: Machine> Place<'a, M, McsRest<M>> {
    fn words(&self) -> Words<'a, M> {
        Words { tail: self.word, next: &self.state.next, left: &self.state.left }
    }
}

impl<W: WaitPolicy> Global for GlobalMcs<W> {
    type State<M: Machine> = McsRest<M>;

    fn new<M: Machine>() -> McsRest<M> {
        McsRest { next: M::Word::new(0), left: LeftBehind::new() }
    }

    fn try_lock<M: Machine>(at: &Place<'_, M, McsRest<M>>) -> bool {
        at.words().try_lock()
    }

    fn lock<M: Machine>(
        at: &Place<'_, M, McsRest<M>>,
        until: Option<Deadline>,
        waiting: &mut Waiting<M>,
    ) -> Result<(), TimedOut> {
        if at.words().try_lock() {
            return Ok(());
        }
        waiting.begin();
        at.words().wait::<W, InOrder>(until).map(|_| ())
    }

    fn unlock<M: Machine>(at: &Place<'_, M, McsRest<M>>) {
        at.words().unlock::<InOrder>();
    }

    fn is_held<M: Machine>(word: &M::Word, _: &McsRest<M>) -> bool {
        word.load(Relaxed) != 0
    }

    fn reset<M: Machine>(at: &Place<'_, M, McsRest<M>>, held: bool) {
        at.words().reset(held);
    }
}
