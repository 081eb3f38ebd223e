//! # Objects to check: mutexes, condition variables, semaphores
//!
//! Models use these objects. They are what `posix` makes of the locks, without POSIX: a lock with its state and the
//! data that it protects; a condition variable with the four ways in which a wait can end.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::cond::deferral::{Place, leave, take, take_back};
use flashlock_locks::cond::{CondQueue, Defer, Morph, Outcome};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::{Deadline, Handle, Word as _};
use flashlock_locks::parts::adoption::{Chain, pass_baton, signal_all};
use flashlock_locks::parts::raw::RawLock;
use flashlock_locks::parts::zeroed::Zeroed;
use flashlock_locks::rw::{RawRwLock, Reader, Writer};
use flashlock_locks::sem::{Ended, Entry, SemQueue, Semaphore};

use crate::Model;
use crate::checker::{Checker, Data};
use crate::tag::Tag;
use crate::word::{Field, Word};
use crate::world::World;

/// A lock and the data that it protects.
///
/// Models may break the contract of its functions, as to a seeded bug. Memory stays intact all the same: nodes are
/// reached through an arena that checks handles, and the checkers watch the data.
pub struct Mutex<C: Checker, L: RawLock<Model<C>>> {
    /// The lock's word.
    pub word: Word<C>,
    /// The rest of its state.
    pub queue: L::Queue,
    /// What its release has to do besides.
    pub release: Release<C>,
    data: C::Data,
}

impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Mutex<C, L> {
    /// A free lock.
    pub fn new() -> Self {
        Self::with(Zeroed::zeroed)
    }

    /// A free lock with the queue that this makes.
    pub(crate) fn with(queue: impl FnOnce() -> L::Queue) -> Self {
        let mutex = Self { word: Word::new(0), queue: queue(), release: Release::new(), data: C::Data::new() };
        mutex.word.tag(Field::LockWord);
        mutex.queue.tag();
        mutex
    }

    /// Acquires it.
    pub fn lock(&self) {
        // SAFETY: see `Mutex`.
        unsafe { L::lock(&self.word, &self.queue) };
        self.release.name_holder();
    }

    /// Acquires it, unless the deadline passes first. Returns whether it did.
    pub fn lock_until(&self, until: Deadline) -> bool {
        // SAFETY: see `Mutex`.
        self.release.name_holder_if(unsafe { L::lock_until(&self.word, &self.queue, until).is_ok() })
    }

    /// Acquires it if it is free.
    pub fn try_lock(&self) -> bool {
        // SAFETY: see `Mutex`.
        self.release.name_holder_if(unsafe { L::try_lock(&self.word, &self.queue) })
    }

    /// Releases it, then wakes the waiter that a signal has left to this release.
    pub fn unlock(&self) {
        let waiter = self.release.take();
        // SAFETY: see `Mutex`.
        unsafe { L::unlock(&self.word, &self.queue) };
        if let Some(waiter) = waiter {
            signal_all::<Model<C>>(waiter);
        }
    }

    /// Takes over the waiters of a broadcast.
    pub fn adopt(&self, chain: Chain) {
        // SAFETY: see `Mutex`.
        unsafe { L::adopt(&self.word, &self.queue, chain) };
    }

    /// Waits until the lock is acquired, after a signal.
    pub fn lock_woken(&self) {
        // SAFETY: see `Mutex`.
        unsafe { L::lock_woken(&self.word, &self.queue) };
        self.release.name_holder();
    }

    /// Waits until the lock, which has adopted the node, is acquired.
    pub fn lock_adopted(&self, node: Handle) {
        // SAFETY: see `Mutex`.
        unsafe { L::lock_adopted(&self.word, &self.queue, node) };
        self.release.name_holder();
    }

    /// Whether a thread holds it.
    pub fn is_locked(&self) -> bool {
        // SAFETY: see `Mutex`.
        unsafe { L::is_locked(&self.word, &self.queue) }
    }

    /// Accesses the data; only the holder may call this. Returns how often that was done before.
    pub fn visit(&self) -> u32 {
        self.data.visit()
    }

    /// A complete critical section.
    pub fn section(&self) {
        self.lock();
        self.visit();
        self.unlock();
    }

    /// A complete critical section, if the lock can be acquired within this many ticks. Returns whether it was.
    pub fn section_within(&self, ticks: u32) -> bool {
        self.section_until(World::<C>::get().deadline(ticks))
    }

    /// A complete critical section, if the lock can be acquired before the deadline. Returns whether it was.
    pub fn section_until(&self, until: Deadline) -> bool {
        let held = self.lock_until(until);
        if held {
            self.visit();
            self.unlock();
        }
        held
    }

    /// Destroys the lock and frees its memory. The data stays: it belongs to the program.
    pub fn free(&self) {
        let beside = self.queue.beside();
        // SAFETY: see `Mutex`.
        unsafe { L::destroy(&self.word, &self.queue) };
        self.word.tag(Field::Freed);
        self.release.waiter.tag(Field::Freed);
        self.queue.free();
        World::<C>::current(|world| world.arena.bar(&beside));
    }

    /// Identifies the mutex to a condition variable: the address of its [`Release`].
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(&self.release) as u64
    }
}

/// Which thread holds a mutex, and the waiter of a condition variable that its release wakes: what `posix` keeps in a
/// `pthread_mutex_t` beside the lock.
pub struct Release<C: Checker> {
    held: std::sync::Mutex<Held<C>>,
    waiter: Word<C>,
}

/// What only the holder writes.
struct Held<C: Checker> {
    by: Option<C::Id>,
    /// The epoch in which a waiter was left to the release.
    deferred_in: Option<u32>,
}

impl<C: Checker> Release<C> {
    fn new() -> Self {
        Self { held: std::sync::Mutex::new(Held { by: None, deferred_in: None }), waiter: Word::new(0) }
    }

    fn held<R>(&self, act: impl FnOnce(&mut Held<C>) -> R) -> R {
        act(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn name_holder(&self) {
        self.held(|held| held.by = Some(C::id()));
    }

    fn name_holder_if(&self, acquired: bool) -> bool {
        if acquired {
            self.name_holder();
        }
        acquired
    }

    /// The word in the mutex of this address that holds the waiter, for seeded bugs.
    pub fn waiter_in(mutex: u64) -> &'static Word<C> {
        &ToRelease::of(mutex).waiter
    }

    /// Takes the waiter, before the release. (It is the owner's: then no access is modelled if nothing was left here.)
    fn take(&self) -> Option<Handle> {
        let is_marked = self.held(|held| {
            held.by = None;
            held.deferred_in.is_some()
        });
        if is_marked { take::<Model<C>>(self) } else { None }
    }
}

impl<C: Checker> Place<Model<C>> for Release<C> {
    fn is_mine(&self) -> bool {
        self.held(|held| held.by == Some(C::id()))
    }

    fn waiter(&self) -> &Word<C> {
        &self.waiter
    }

    fn mark(&self, epoch: u32) {
        self.held(|held| held.deferred_in = Some(epoch));
    }

    fn unmark(&self) {
        self.held(|held| held.deferred_in = None);
    }

    fn is_marked(&self, epoch: u32) -> bool {
        self.held(|held| held.deferred_in == Some(epoch))
    }

    fn fence(&self) {
        C::fence();
    }
}

/// Leaves wake-ups to the release of mutexes.
pub struct ToRelease<C>(PhantomData<C>);

impl<C: Checker> ToRelease<C> {
    /// The only one.
    pub const NEW: Self = Self(PhantomData);

    fn of(mutex: u64) -> &'static Release<C> {
        // SAFETY: a waiter that has yet to acquire the mutex names it; models drop their mutexes at their end.
        unsafe { &*(mutex as *const Release<C>) }
    }
}

// SAFETY: `Mutex::unlock` does so.
unsafe impl<C: Checker> Defer for ToRelease<C> {
    fn defer(&self, mutex: u64, waiter: Handle) -> bool {
        mutex != 0 && leave(Self::of(mutex), waiter)
    }

    fn recall(&self, mutex: u64, waiter: Handle) -> bool {
        take_back(Self::of(mutex), waiter)
    }
}

impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Default for Mutex<C, L> {
    fn default() -> Self {
        Self::new()
    }
}

/// A readers-writer lock and the data that it protects.
pub struct RwLock<C: Checker, L: RawRwLock<Model<C>>> {
    /// The lock's state.
    pub state: L::State,
    data: C::Data,
}

impl<C: Checker, L: RawRwLock<Model<C>, State: Tag>> RwLock<C, L> {
    /// A free lock.
    pub fn new() -> Self {
        let lock = Self { state: Zeroed::zeroed(), data: C::Data::new() };
        lock.state.tag();
        lock
    }

    /// Acquires it for reading, as `pthread_rwlock_rdlock` does: fast path first.
    pub fn read(&self, how: Reader, until: Option<Deadline>) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::enter(&self.state) || L::read(&self.state, how, until).is_ok() }
    }

    /// Acquires it for writing.
    pub fn write(&self, how: Writer, until: Option<Deadline>) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::write(&self.state, how, until).is_ok() }
    }

    /// Tries to acquire it for reading.
    pub fn try_read(&self, how: Reader) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::try_read(&self.state, how).is_ok() }
    }

    /// Tries to acquire it for writing.
    pub fn try_write(&self) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::try_write(&self.state) }
    }

    /// Releases it.
    pub fn unlock(&self) {
        // SAFETY: as in `Mutex`.
        unsafe { L::unlock(&self.state) };
    }

    /// Whether a thread holds it.
    pub fn is_held(&self) -> bool {
        // SAFETY: as in `Mutex`.
        unsafe { L::is_held(&self.state) }
    }

    /// Reads the data; only a thread that holds the lock may call this. Returns how often the data was written.
    pub fn look(&self) -> u32 {
        self.data.look()
    }

    /// Writes the data; only the writer that holds the lock may call this. Returns how often that was done before.
    pub fn visit(&self) -> u32 {
        self.data.visit()
    }

    /// Destroys the lock and frees its memory. The data stays: it belongs to the program.
    pub fn free(&self) {
        // SAFETY: as in `Mutex`.
        unsafe { L::destroy(&self.state) };
        self.state.free();
    }
}

impl<C: Checker, L: RawRwLock<Model<C>, State: Tag>> Default for RwLock<C, L> {
    fn default() -> Self {
        Self::new()
    }
}

/// How a wait on a condition variable ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// By a signal or a broadcast.
    Woken,
    /// By the deadline or by cancellation: no signal was consumed.
    GaveUp,
}

/// A condition variable.
pub struct Cond<C: Checker> {
    /// Its state.
    pub queue: CondQueue<Model<C>>,
}

impl<C: Checker> Cond<C> {
    /// A condition variable without waiters.
    pub fn new() -> Self {
        let queue = CondQueue::new();
        queue.tag();
        Self { queue }
    }

    /// Queues the calling thread; the mutex is at that address.
    pub fn enqueue(&self, mutex: u64) -> Handle {
        // SAFETY: a model may do anything with it: see `arena::handle_in`.
        unsafe { self.queue.enqueue(mutex) }
    }

    /// Waits; the caller holds the mutex before and after.
    pub fn wait<L>(&self, mutex: &Mutex<C, L>, until: Option<Deadline>) -> Waited
    where
        L: RawLock<Model<C>, Queue: Tag>,
    {
        let me = self.enqueue(mutex.address());
        mutex.unlock();
        finish(self.queue.wait(me, until), mutex)
    }

    /// A wait that is cancelled as soon as it has begun.
    pub fn wait_cancelled<L>(&self, mutex: &Mutex<C, L>) -> Waited
    where
        L: RawLock<Model<C>, Queue: Tag>,
    {
        let me = self.enqueue(mutex.address());
        mutex.unlock();
        finish(self.queue.cancel(me), mutex)
    }

    /// Destroys it and frees its memory. If a thread waits, returns false.
    pub fn destroy(&self) -> bool {
        let destroyed = self.queue.destroy(&ToRelease::<C>::NEW).is_ok();
        if destroyed {
            self.free();
        }
        destroyed
    }

    /// Frees its memory.
    pub fn free(&self) {
        self.queue.free();
    }

    /// Wakes one waiter; if the calling thread holds its mutex, when it releases that.
    pub fn signal(&self) {
        self.queue.signal(&ToRelease::<C>::NEW);
    }

    /// Wakes all waiters: if `moves`, by moving them to the lock's queue; otherwise one after the other, or, if the
    /// calling thread holds the mutex, when it releases that.
    pub fn broadcast<L>(&self, mutex: &Mutex<C, L>, moves: bool)
    where
        L: RawLock<Model<C>, Queue: Tag>,
    {
        self.queue.broadcast(&ToQueue { mutex, moves });
    }
}

impl<C: Checker> Default for Cond<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Acquires the mutex as the outcome of the wait requires.
pub fn finish<C: Checker, L>(outcome: Outcome, mutex: &Mutex<C, L>) -> Waited
where
    L: RawLock<Model<C>, Queue: Tag>,
{
    match outcome {
        Outcome::Signaled(baton) => {
            mutex.lock_woken();
            pass_baton::<Model<C>>(baton);
            Waited::Woken
        }
        Outcome::Moved(me) => {
            mutex.lock_adopted(me);
            Waited::Woken
        }
        Outcome::TimedOut => {
            mutex.lock();
            Waited::GaveUp
        }
    }
}

struct ToQueue<'a, C: Checker, L: RawLock<Model<C>>> {
    mutex: &'a Mutex<C, L>,
    moves: bool,
}

// SAFETY: the chain goes to the lock, or is let go.
unsafe impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Morph for ToQueue<'_, C, L> {
    fn few(&self) -> u32 {
        if self.moves { 1 } else { u32::MAX }
    }

    fn adopt(&self, mutex: u64, chain: Chain) {
        assert_eq!(mutex, self.mutex.address());
        if self.moves {
            self.mutex.adopt(chain);
        } else {
            chain.hand_over_hand::<Model<C>>();
        }
    }
}

// SAFETY: as for `ToRelease`.
unsafe impl<C: Checker, L: RawLock<Model<C>, Queue: Tag>> Defer for ToQueue<'_, C, L> {
    fn defer(&self, mutex: u64, waiter: Handle) -> bool {
        ToRelease::<C>::NEW.defer(mutex, waiter)
    }

    fn recall(&self, mutex: u64, waiter: Handle) -> bool {
        ToRelease::<C>::NEW.recall(mutex, waiter)
    }
}

/// A semaphore, and data that its permit protects if there is only one.
pub struct Sem<C: Checker> {
    word: Word<C>,
    queue: SemQueue<Model<C>>,
    data: C::Data,
}

impl<C: Checker> Sem<C> {
    /// A semaphore with this many permits.
    pub fn new(permits: u32) -> Self {
        let sem = Self { word: Word::new(permits), queue: SemQueue::new(), data: C::Data::new() };
        sem.word.tag(Field::SemWord);
        sem.queue.tag();
        sem
    }

    /// The production semaphore.
    pub fn semaphore(&self) -> Semaphore<'_, Model<C>> {
        // SAFETY: the two are private.
        unsafe { Semaphore::new(&self.word, &self.queue) }
    }

    /// Begins a wait.
    pub fn begin(&self) -> Entry {
        // SAFETY: as for `Cond::enqueue`.
        unsafe { self.semaphore().begin(None) }
    }

    /// Gives a permit.
    pub fn post(&self) {
        self.semaphore().post().expect("room for a permit");
    }

    /// Takes a permit. Returns whether there was one in time.
    pub fn wait(&self, until: Option<Deadline>) -> bool {
        self.semaphore().wait(until) == Ended::Acquired
    }

    /// Accesses the data; only the thread that has the permit may call this.
    pub fn visit(&self) -> u32 {
        self.data.visit()
    }

    /// The number of permits.
    pub fn value(&self) -> u32 {
        self.semaphore().value()
    }

    /// Destroys it, and frees its memory (but not the data).
    pub fn destroy(&self) {
        self.semaphore().destroy();
        self.word.tag(Field::Freed);
        self.queue.free();
    }
}

/// What happened in all executions of a model together.
pub struct Totals {
    /// The number of executions.
    pub executions: usize,
    events: Vec<u64>,
}

impl Totals {
    pub(crate) fn counters() -> Vec<AtomicU64> {
        Event::ALL.iter().map(|_| AtomicU64::new(0)).collect()
    }

    pub(crate) fn add<C: Checker>(counters: &[AtomicU64], world: &World<C>) {
        for (&event, counter) in Event::ALL.iter().zip(counters) {
            counter.fetch_add(u64::from(world.events(event)), Relaxed);
        }
    }

    pub(crate) fn new(counters: &[AtomicU64]) -> Self {
        Self { executions: 0, events: counters.iter().map(|counter| counter.load(Relaxed)).collect() }
    }

    /// How often an event happened.
    pub fn of(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Panics if one of the events never happened: then the model does not show what it is meant to show.
    pub fn shows(&self, events: &[Event]) {
        for &event in events {
            assert!(self.of(event) > 0, "no execution showed {event:?}");
        }
    }
}

/// A seeded bug that was found.
#[derive(Debug)]
pub struct Found {
    /// The execution that found it.
    pub executions: usize,
    /// What the checker said.
    pub message: String,
}

impl Found {
    pub(crate) fn report(name: &str, checker: &str, executions: usize, message: String) -> Self {
        let line = message.lines().next().unwrap_or_default();
        let gave_up = ["exceeded maximum number of branches", "exceeded max_steps"];
        assert!(!gave_up.iter().any(|&limit| line.contains(limit)), "{name}: {checker} gave up: {line}");
        println!("found: {name} | {checker} | {executions} | {line}");
        Self { executions, message }
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)").to_owned()
}
