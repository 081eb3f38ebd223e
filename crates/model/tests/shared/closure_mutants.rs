//! Closure locks to check, and such with one bug each: the production code's steps with one of them done wrong.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::closure::cc_synch::CcSynchState;
use flashlock_locks::closure::flat_combining::FlatState;
use flashlock_locks::closure::{RawClosure, Request, publish, serve};
use flashlock_locks::machine::node::{Node, state};
use flashlock_locks::machine::{Handle, Machine, Word as _};
use flashlock_locks::parts::zeroed::Zeroed;
use flashlock_model::arena::{handle_in, take_node};
use flashlock_model::checker::{Checker, Data};
use flashlock_model::word::Word;
use flashlock_model::{Field, Model};

/// State whose words can be marked with their purpose.
pub(crate) trait Words<C: Checker> {
    /// Each word, and its purpose.
    fn words(&self) -> Vec<(&Word<C>, Field)>;
}

impl<C: Checker> Words<C> for CcSynchState<Model<C>> {
    fn words(&self) -> Vec<(&Word<C>, Field)> {
        vec![(&self.tail, Field::LockTail)]
    }
}

impl<C: Checker> Words<C> for FlatState<Model<C>> {
    fn words(&self) -> Vec<(&Word<C>, Field)> {
        let lists = [(&self.active, Field::LockHead), (&self.records, Field::LockNext)];
        let others = [(&self.first, Field::Untagged), (&self.passes, Field::Untagged)];
        [(&self.lock, Field::LockWord)].into_iter().chain(lists).chain(others).collect()
    }
}

/// A closure lock with what it protects.
pub(crate) struct Guarded<C: Checker, L: RawClosure<Model<C>>> {
    state: L::State,
    data: C::Data,
    /// All that was asked for, until the execution is over: a mutant may run a request too late.
    visits: Mutex<Vec<Asked<C>>>,
}

/// A visit to the data, and something of the asking thread's own, which the request accesses too.
#[repr(C)]
struct Visit<C: Checker> {
    request: Request,
    data: *const C::Data,
    own: C::Data,
    breaks: u32,
}

/// A visit that stays where it is.
struct Asked<C: Checker>(*mut Visit<C>);

// SAFETY: threads of a model run one at a time.
unsafe impl<C: Checker> Send for Asked<C> {}

impl<C: Checker> Drop for Asked<C> {
    fn drop(&mut self) {
        // SAFETY: from a box; dropped with the lock, when no thread uses it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<C: Checker> Visit<C> {
    /// # Safety
    /// The request is a visit's.
    unsafe fn act(request: *mut Request) {
        // SAFETY: the callers' promise; the data are there as long as the visit.
        let (visit, data) = unsafe { (&*request.cast::<Self>(), &*(*request.cast::<Self>()).data) };
        assert_eq!(visit.own.visit(), 1, "run twice, or before it was asked for");
        (0..visit.breaks).for_each(|_| C::yield_now());
        data.visit();
    }
}

impl<C: Checker, L: RawClosure<Model<C>, State: Words<C>>> Guarded<C, L> {
    /// A free lock.
    pub(crate) fn new() -> Self {
        let this = Self { state: Zeroed::zeroed(), data: C::Data::new(), visits: Mutex::default() };
        this.state.words().iter().for_each(|(word, field)| word.tag(*field));
        this
    }

    /// Has one section run, with so many breaks in it, in which others run.
    pub(crate) fn section(&self, breaks: u32) {
        let request = Request::new(Visit::<C>::act);
        let visit =
            Box::into_raw(Box::new(Visit::<C> { request, data: &raw const self.data, own: C::Data::new(), breaks }));
        self.visits.lock().expect("no panic").push(Asked(visit));
        // SAFETY: it stays there, and so does the lock, until all threads have been joined.
        let own = unsafe { &(*visit).own };
        own.visit();
        // SAFETY: as above.
        unsafe { L::run(&self.state, visit.cast()) };
        assert_eq!(own.look(), 2, "not run");
    }

    /// So many sections were run, and all are done.
    pub(crate) fn check(&self, sections: u32) {
        assert_eq!(self.data.visit(), sections);
        // SAFETY: all threads are done, as `visit` shows.
        unsafe { L::destroy(&self.state) };
        self.state.words().iter().for_each(|(word, _)| word.tag(Field::Freed));
    }
}

/// Nothing is wrong: the skeletons of the mutants must hold.
pub(crate) const SOUND: u8 = 0;

/// WAITING -> PARKED -> the state that ends the wait.
fn sleep<M: Machine>(node: &Node<M>) -> u32 {
    let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
    loop {
        match node.state.load(Acquire) {
            state::PARKED => _ = M::park(&node.state, state::PARKED, None),
            notified => return notified,
        }
    }
}

fn tell<M: Machine>(node: &Node<M>, what: u32) {
    if node.state.swap(what, AcqRel) == state::PARKED {
        M::wake(&raw const node.state, 1);
    }
}

fn put<M: Machine>(node: &Node<M>, request: *mut Request) {
    // SAFETY: the promise of `run`'s caller, except for a mutant's bug.
    unsafe { publish(node, request) };
}

/// Runs a request, if all of its address is there.
fn run<M: Machine>(node: &Node<M>) {
    let written = node.mutex.iter().all(|half| half.load(Relaxed) != 0);
    assert!(written, "run before it was written");
    // SAFETY: it was published, except for a mutant's bug; visits stay where they are, whichever thread runs them when.
    unsafe { serve(node) }
}

/// CC-Synch with the bug `B`; a combiner runs two requests.
pub(crate) struct MutantCc<const B: u8>;
/// The queue is emptied by a plain store, not by a compare-exchange of its end.
pub(crate) const STORES_FREE: u8 = 1;
/// A request is linked before it is written.
pub(crate) const LINKS_FIRST: u8 = 2;
/// The next combiner forgets its own request.
pub(crate) const FORGETS_ITS_OWN: u8 = 3;
/// A combiner that has run as many as it may just goes.
pub(crate) const JUST_GOES: u8 = 4;
/// A request is marked as served before it is.
pub(crate) const ANSWERS_FIRST: u8 = 5;

impl<const B: u8> MutantCc<B> {
    fn combine<M: Machine>(lock: &CcSynchState<M>, mut here: Handle) {
        let mut served = 1;
        while let Some(next) = handle_in(here.node::<M>().next.load(Acquire)) {
            let node = here.node::<M>();
            if served >= 2 {
                if B != JUST_GOES {
                    tell(node, state::HEAD);
                }
                return;
            }
            if B == ANSWERS_FIRST {
                tell(node, state::SERVED);
            }
            run(node);
            if B != ANSWERS_FIRST {
                tell(node, state::SERVED);
            }
            (here, served) = (next, served + 1);
        }
        if B == STORES_FREE {
            lock.tail.store(0, Release);
            return M::give_node(here);
        }
        match lock.tail.compare_exchange(here.word(), 0, Release, Relaxed) {
            Ok(_) => M::give_node(here),
            Err(_) => tell::<M>(here.node(), state::HEAD),
        }
    }
}

// SAFETY: none; models only, in which all that is accessed stays where it is until the execution is over.
unsafe impl<M: Machine, const B: u8> RawClosure<M> for MutantCc<B> {
    type State = CcSynchState<M>;

    unsafe fn serve(lock: &CcSynchState<M>, request: *mut Request) {
        let empty = take_node::<M>();
        empty.node::<M>().prepare(state::WAITING);
        if B == LINKS_FIRST {
            put::<M>(empty.node(), std::ptr::null_mut());
        }
        let mut own = true;
        if let Some(me) = handle_in(lock.tail.swap(empty.word(), AcqRel)) {
            let node = me.node::<M>();
            if B == LINKS_FIRST {
                node.next.store(empty.word(), Release);
                put(node, request);
            } else {
                put(node, request);
                node.next.store(empty.word(), Release);
            }
            let notified = sleep(node);
            M::give_node(me);
            if notified == state::SERVED {
                return;
            }
            own = B != FORGETS_ITS_OWN;
        }
        if own {
            // SAFETY: the callers' promise.
            unsafe { Request::act(request) };
        }
        Self::combine(lock, empty);
    }
}

/// Flat combining with the bug `B`; a combiner makes one pass, each of which cleans up, and threads always look for a
/// record.
pub(crate) struct MutantFlat<const B: u8>;
/// A sleeper does not mark the lock.
pub(crate) const SLEEPS_UNMARKED: u8 = 1;
/// The release ignores a mark.
pub(crate) const IGNORES_MARK: u8 = 2;
/// The lock is freed, and handed over.
pub(crate) const FREES_AND_HANDS_OVER: u8 = 3;
/// A record that was taken again while it was unlinked is not linked again.
pub(crate) const LOSES_RECORD: u8 = 4;
/// A record that is idle is taken by a store.
pub(crate) const TAKES_BY_STORE: u8 = 5;

const IDLE: u32 = 16;
const INACTIVE: u32 = 17;
const TAKEN: u32 = 18;

fn waits(seen: u32) -> bool {
    matches!(seen, state::WAITING | state::PARKED)
}

fn list<M: Machine>(head: u32, link: fn(&Node<M>) -> &M::Word) -> impl Iterator<Item = Handle> {
    let next = move |here: &Handle| handle_in(link(here.node()).load(Relaxed));
    std::iter::successors(handle_in(head), next)
}

fn push<M: Machine>(head: &M::Word, handle: Handle, link: &M::Word) {
    loop {
        let seen = head.load(Relaxed);
        link.store(seen, Relaxed);
        if head.compare_exchange(seen, handle.word(), Release, Relaxed).is_ok() {
            return;
        }
    }
}

impl<const B: u8> MutantFlat<B> {
    fn take_record<M: Machine>(lock: &FlatState<M>) -> (Handle, bool) {
        for record in list::<M>(lock.records.load(Acquire), |node| &node.numa) {
            let state = &record.node::<M>().state;
            for from in [IDLE, INACTIVE] {
                let taken = if B == TAKES_BY_STORE {
                    state.load(Acquire) == from && {
                        state.store(TAKEN, Relaxed);
                        true
                    }
                } else {
                    state.compare_exchange(from, TAKEN, Acquire, Relaxed).is_ok()
                };
                if taken {
                    return (record, from == IDLE);
                }
            }
        }
        let record = take_node::<M>();
        record.node::<M>().prepare(TAKEN);
        push::<M>(&lock.records, record, &record.node::<M>().numa);
        (record, false)
    }

    fn pass<M: Machine>(lock: &FlatState<M>) {
        let mut before: Option<&Node<M>> = None;
        for record in list::<M>(lock.active.load(Acquire), |node| &node.next) {
            let node = record.node::<M>();
            if waits(node.state.load(Acquire)) {
                run(node);
                tell(node, state::SERVED);
            } else if let Some(before) = before {
                before.next.store(node.next.load(Relaxed), Relaxed);
                if node.state.compare_exchange(IDLE, INACTIVE, Release, Relaxed).is_ok() {
                    continue;
                }
                if B != LOSES_RECORD {
                    before.next.store(record.word(), Relaxed);
                }
            }
            before = Some(node);
        }
    }

    fn combine<M: Machine>(lock: &FlatState<M>) {
        loop {
            Self::pass(lock);
            if B == IGNORES_MARK {
                return lock.lock.store(0, Release);
            }
            if lock.lock.compare_exchange(1, 0, Release, Relaxed).is_ok() {
                return;
            }
            lock.lock.swap(1, Acquire);
            let mut records = list::<M>(lock.active.load(Acquire), |node| &node.next);
            if let Some(waiter) = records.find(|record| waits(record.node::<M>().state.load(Relaxed))) {
                if B == FREES_AND_HANDS_OVER {
                    lock.lock.store(0, Release);
                }
                return tell::<M>(waiter.node(), state::HEAD);
            }
        }
    }

    /// Whether the lock is ours.
    fn wait<M: Machine>(lock: &FlatState<M>, node: &Node<M>) -> bool {
        let _ = node.state.compare_exchange(state::WAITING, state::PARKED, Relaxed, Relaxed);
        loop {
            let notified = node.state.load(Acquire);
            match notified {
                state::SERVED => return false,
                state::PARKED => {
                    let free = match B {
                        SLEEPS_UNMARKED => lock.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok(),
                        _ => lock.lock.swap(2, AcqRel) == 0,
                    };
                    if !free {
                        M::park(&node.state, state::PARKED, None);
                        continue;
                    }
                }
                _ => {}
            }
            let _ = node.state.compare_exchange(notified, state::WAITING, Relaxed, Relaxed);
            return true;
        }
    }
}

// SAFETY: none; as above.
unsafe impl<M: Machine, const B: u8> RawClosure<M> for MutantFlat<B> {
    type State = FlatState<M>;

    unsafe fn serve(lock: &FlatState<M>, request: *mut Request) {
        if lock.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            // SAFETY: the callers' promise.
            unsafe { Request::act(request) };
            return Self::combine(lock);
        }
        let (record, listed) = Self::take_record(lock);
        let node = record.node::<M>();
        put(node, request);
        node.state.store(state::WAITING, Release);
        if !listed {
            push::<M>(&lock.active, record, &node.next);
        }
        if Self::wait(lock, node) {
            Self::combine(lock);
        }
        node.state.store(IDLE, Release);
    }

    unsafe fn destroy(lock: &FlatState<M>) {
        list::<M>(lock.records.load(Acquire), |node| &node.numa).for_each(M::give_node);
    }
}
