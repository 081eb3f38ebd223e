//! Servers of `rcl` to check, with their clients, workers and manager; a lock that they serve, and what it protects.

// Each checker's tests use a part of it.
#![allow(dead_code)]

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flashlock_locks::closure::rcl::{
    Head, Lock, Look, Pass, Roster, Section, Server, Slot, Watch, Worker, acquire, assign, exec, release, slot,
};
use flashlock_locks::machine::{Waiting as _, Word as _};
use flashlock_locks::parts::wait::WaitPolicy;
use flashlock_model::checker::{Checker, Data};
use flashlock_model::word::Word;
use flashlock_model::{Field, Model};

/// A server's memory.
struct Host<C: Checker> {
    head: Head<Model<C>>,
    live: Box<[Word<C>]>,
    busy: Box<[Word<C>]>,
    slots: Box<[Slot<Model<C>>]>,
    workers: Box<[Worker<Model<C>>]>,
}

fn field(name: &str) -> Field {
    match name {
        "code" => Field::RclCode,
        "asleep" => Field::RclAsleep,
        "sleep" => Field::RclSleep,
        "quiet" => Field::RclQuiet,
        "turn" => Field::RclTurn,
        "range" => Field::RclRange,
        "at" => Field::RclAt,
        "bed" => Field::RclBed,
        "blocked" => Field::Untagged,
        other => unreachable!("a word called {other}"),
    }
}

impl<C: Checker> Host<C> {
    fn new(groups: usize, workers: usize) -> Self {
        let words = |field| {
            let word = |_| {
                let word = Word::new(0);
                word.tag(field);
                word
            };
            (0..groups).map(word).collect::<Box<[_]>>()
        };
        let host = Self {
            head: Head::new(),
            live: words(Field::RclLive),
            busy: words(Field::RclBusy),
            slots: (0..groups * 32).map(|_| Slot::new()).collect(),
            workers: (0..workers).map(|_| Worker::new()).collect(),
        };
        let of_slots = host.slots.iter().flat_map(Slot::words);
        let of_workers = host.workers.iter().flat_map(Worker::words);
        host.head.words().into_iter().chain(of_slots).chain(of_workers).for_each(|(word, name)| word.tag(field(name)));
        host
    }

    fn server(&self) -> Server<'_, Model<C>> {
        // SAFETY: the parts were made for it; models keep its rules, except for a seeded bug.
        unsafe { Server::new(&self.head, (&self.live, &self.busy), &self.slots, &self.workers) }
    }
}

/// A thread's identity and roles.
struct Who<C: Checker> {
    id: C::Id,
    worker: Option<(u32, u32)>,
    idle: bool,
    clients: Vec<(u32, u32)>,
}

/// Servers, numbered from 1, three locks, and what each of them protects.
pub(crate) struct Ring<C: Checker, W: WaitPolicy> {
    hosts: Vec<Host<C>>,
    locks: [Lock<Model<C>>; 3],
    data: [C::Data; 3],
    /// What a section may wait for, until another one sets it.
    flag: Word<C>,
    /// The server where the first lock is to be: its holders follow.
    wanted: Word<C>,
    /// Changes when a server's manager must look.
    bells: Vec<Word<C>>,
    /// A worker that need not sleep after all calls nobody: a bug.
    careless: AtomicBool,
    /// A manager that can make no more workers does nothing: a bug.
    lazy: AtomicBool,
    /// Servers up to this number are in the process's table. Whoever takes a lock to a server looks it up there.
    opened: Word<C>,
    who: RefCell<Vec<Who<C>>>,
    /// All that was asked for, until the execution is over: a mutant may run a section too late.
    asked: RefCell<Vec<*mut Visit<C, W>>>,
    wait: PhantomData<W>,
}

// SAFETY: threads of a model run one at a time.
unsafe impl<C: Checker, W: WaitPolicy> Send for Ring<C, W> {}
// SAFETY: as above.
unsafe impl<C: Checker, W: WaitPolicy> Sync for Ring<C, W> {}

/// What is done in a section, beside the visit to the data.
pub(crate) type Inside<C, W> = fn(&Arc<Ring<C, W>>);

struct Visit<C: Checker, W: WaitPolicy> {
    ring: Arc<Ring<C, W>>,
    lock: usize,
    own: C::Data,
    inside: Inside<C, W>,
}

/// # Safety
/// The context is a visit's.
unsafe fn visit<C: Checker, W: WaitPolicy>(context: *mut ()) {
    // SAFETY: the callers' promise; visits stay where they are.
    let visit = unsafe { &*context.cast::<Visit<C, W>>() };
    assert_eq!(visit.own.visit(), 1, "run twice, or before it was asked for");
    visit.ring.data[visit.lock].visit();
    (visit.inside)(&visit.ring);
}

impl<C: Checker, W: WaitPolicy> Drop for Ring<C, W> {
    fn drop(&mut self) {
        for visit in self.asked.get_mut().drain(..) {
            // SAFETY: from a box; no thread uses it any more.
            drop(unsafe { Box::from_raw(visit) });
        }
    }
}

impl<C: Checker, W: WaitPolicy> Ring<C, W> {
    /// So many servers with so many workers each, and room for 32 clients a group.
    pub(crate) fn new(servers: u32, groups: usize, workers: usize) -> Arc<Self> {
        Self::with_locks(servers, groups, workers, [0; 3])
    }

    /// The same, with locks that are theirs already.
    pub(crate) fn with_locks(servers: u32, groups: usize, workers: usize, of: [u32; 3]) -> Arc<Self> {
        let hosts: Vec<_> = (0..servers).map(|_| Host::new(groups, workers)).collect();
        (1..).zip(&hosts).for_each(|(number, host)| host.server().open(number));
        let ring = Self {
            hosts,
            locks: of.map(Lock::of),
            data: std::array::from_fn(|_| C::Data::new()),
            flag: Word::new(0),
            wanted: Word::new(of[0]),
            bells: (0..servers).map(|_| Word::new(0)).collect(),
            careless: AtomicBool::new(false),
            lazy: AtomicBool::new(false),
            opened: Word::new(servers),
            who: RefCell::default(),
            asked: RefCell::default(),
            wait: PhantomData,
        };
        ring.locks.iter().for_each(|lock| lock.word.tag(Field::RclWord));
        ring.wanted.tag(Field::RclWanted);
        ring.bells.iter().for_each(|bell| bell.tag(Field::RclBell));
        Arc::new(ring)
    }

    pub(crate) fn host(&self, number: u32) -> Server<'_, Model<C>> {
        self.hosts[number as usize - 1].server()
    }

    fn who<T>(&self, act: impl FnOnce(&mut Who<C>) -> T) -> T {
        let (mut all, id) = (self.who.borrow_mut(), C::id());
        if !all.iter().any(|who| who.id == id) {
            all.push(Who { id, worker: None, idle: false, clients: Vec::new() });
        }
        act(all.iter_mut().find(|who| who.id == id).expect("just there"))
    }

    /// A visit that was not made yet.
    fn ask(self: &Arc<Self>, lock: usize, inside: Inside<C, W>) -> *mut Visit<C, W> {
        let visit = Box::into_raw(Box::new(Visit { ring: self.clone(), lock, own: C::Data::new(), inside }));
        self.asked.borrow_mut().push(visit);
        // SAFETY: it stays there until the end.
        unsafe { (*visit).own.visit() };
        visit
    }

    /// A client of its own posts a section, and does not wait: its number.
    pub(crate) fn post(self: &Arc<Self>, number: u32, lock: usize, inside: Inside<C, W>) -> u32 {
        let client = self.host(number).join().expect("room for clients");
        self.post_as(client, number, lock, inside);
        client
    }

    /// The same, as this client, at an open server.
    pub(crate) fn post_as(self: &Arc<Self>, client: u32, number: u32, lock: usize, inside: Inside<C, W>) {
        let call = (self::visit::<C, W> as slot::Function, self.ask(lock, inside).cast());
        // SAFETY: the visit and the lock stay there until the end; the number has no request.
        assert!(unsafe { self.host(number).post(client, (slot::RUN, &self.locks[lock]), call) });
    }

    /// The same, and waits, unless the server is found closed. Returns whether the section was run.
    pub(crate) fn offer(self: &Arc<Self>, client: u32, number: u32, lock: usize, inside: Inside<C, W>) -> bool {
        let call = (self::visit::<C, W> as slot::Function, self.ask(lock, inside).cast());
        // SAFETY: as above.
        let posted = unsafe { self.host(number).post(client, (slot::RUN, &self.locks[lock]), call) };
        posted && self.host(number).wait::<W>(client, || ())
    }

    /// Has one section of that lock done by `exec`.
    pub(crate) fn section(self: &Arc<Self>, lock: usize, inside: Inside<C, W>) {
        let visit = self.ask(lock, inside);
        // SAFETY: it stays there until the end.
        let own = unsafe { &(*visit).own };
        // SAFETY: as above; and so does the lock.
        unsafe {
            let section = Section::new(self::visit::<C, W>, visit.cast());
            exec::<Model<C>, W, _>(&self.locks[lock], section, &**self);
        }
        assert_eq!(own.look(), 2, "not run");
    }

    /// Has that lock for a visit, which the calling thread makes.
    pub(crate) fn locked(&self, lock: usize) {
        acquire::<Model<C>, W, _>(&self.locks[lock], self);
        self.data[lock].visit();
        // SAFETY: acquired above; the lock stays there until the end.
        unsafe { release(&self.locks[lock], self) };
    }

    /// Gives the lock to that server, or makes it ordinary: to be called in a section of it.
    pub(crate) fn assign(&self, lock: usize, server: u32) {
        // SAFETY: callers hold it.
        unsafe { assign(&self.locks[lock], server, self) };
    }

    /// Servers up to this number are in the table from now on.
    pub(crate) fn opens(&self, number: u32) {
        self.opened.store(number, Release);
    }

    /// Says where the first lock is to be, as a governor does: without the lock.
    pub(crate) fn want(&self, server: u32) {
        self.wanted.swap(server, Release);
    }

    /// Has the first lock go where it is wanted: to be called in a section of it, as an adaptive lock does at its end.
    pub(crate) fn follow(&self) {
        let (wanted, lock) = (self.wanted.load(Acquire), &self.locks[0]);
        if wanted != lock.server() {
            assert!(self.opened.load(Acquire) >= wanted, "a lock is wanted at a server that was never opened");
            self.assign(0, wanted);
        }
    }

    /// The calling thread is that worker until the server is closed.
    pub(crate) fn work(&self, number: u32, me: u32) {
        self.who(|who| who.worker = Some((number, me)));
        self.host(number).work::<W, _>(me, self, |_| ());
        self.who(|who| who.worker = None);
    }

    /// The calling thread is that worker for one scan. `None` if it has not the turn.
    pub(crate) fn scan(&self, number: u32, me: u32) -> Pass {
        self.who(|who| who.worker = Some((number, me)));
        let pass = self.host(number).pass(me, self);
        self.who(|who| who.worker = None);
        pass
    }

    /// The calling thread is that worker as long as it has the turn and finds something.
    pub(crate) fn serve(&self, number: u32, me: u32) {
        loop {
            let pass = self.scan(number, me);
            if pass.lost || !pass.did_something() {
                return;
            }
        }
    }

    /// The manager looks so often.
    pub(crate) fn manage(&self, number: u32, looks: u32) -> Vec<Look> {
        let mut watch = Watch::default();
        (0..looks).map(|_| self.host(number).look(&mut watch, 0, 0)).collect()
    }

    /// Seeds a bug: see the field.
    pub(crate) fn seed_carelessness(&self) {
        self.careless.store(true, Relaxed);
    }

    /// Seeds a bug: see the field.
    pub(crate) fn seed_laziness(&self) {
        self.lazy.store(true, Relaxed);
    }

    /// Makes a server's manager look.
    fn call(&self, number: u32) {
        let bell = &self.bells[number as usize - 1];
        bell.fetch_add(1, Release);
        Model::<C>::wake(&raw const *bell, 1);
    }

    /// Closes a server, and has its manager see that.
    pub(crate) fn close(&self, number: u32) {
        self.host(number).close();
        self.call(number);
    }

    /// A manager's life: it looks again and again until `over`, and makes a worker by `make` when one is wanted, so
    /// many at most; then it stands in, unless it is lazy. While the server is asleep, it sleeps until it is called.
    /// Returns how many it made.
    pub(crate) fn manage_until(
        &self,
        number: u32,
        most: u32,
        over: impl Fn() -> bool,
        mut make: impl FnMut(u32),
    ) -> u32 {
        let (mut watch, mut made) = (Watch::default(), 0);
        let (host, at) = (self.host(number), &self.bells[number as usize - 1]);
        while !over() {
            let bell = at.load(Relaxed);
            match host.look(&mut watch, 0, 0) {
                Look::Wanted if made < most => {
                    make(made);
                    made += 1;
                }
                Look::Wanted if !self.lazy.load(Relaxed) => _ = host.stand_in(),
                _ => {}
            }
            if host.is_asleep() && host.falls_quiet() {
                Model::<C>::park(at, bell, None);
                host.ends_quiet();
            } else {
                C::yield_now();
            }
        }
        made
    }

    /// Blocks until the flag is set.
    pub(crate) fn await_flag(&self) {
        while self.flag.load(Acquire) == 0 {
            Model::<C>::park(&self.flag, 0, None);
        }
    }

    /// Sets it.
    pub(crate) fn set_flag(&self) {
        self.flag.swap(1, Release);
        Model::<C>::wake(&raw const self.flag, u32::MAX);
    }

    /// The calling thread's client numbers are given back.
    pub(crate) fn leave(&self) {
        let clients = self.who(|who| std::mem::take(&mut who.clients));
        clients.into_iter().for_each(|(number, client)| self.host(number).leave(client));
    }

    /// Touches the data of a lock; to be called in a section of it.
    pub(crate) fn visit(&self, lock: usize) {
        self.data[lock].visit();
    }

    /// How often the data of a lock were visited. To be called when all is over.
    pub(crate) fn visits(&self, lock: usize) -> u32 {
        self.data[lock].look()
    }

    /// Ends the cycle of what was asked for.
    pub(crate) fn end(self: Arc<Self>) {
        for visit in self.asked.take() {
            // SAFETY: from a box; no thread uses it any more.
            drop(unsafe { Box::from_raw(visit) });
        }
    }
}

// SAFETY: each thread keeps its client number; `who` says which of them work.
unsafe impl<C: Checker, W: WaitPolicy> Roster<Model<C>> for Ring<C, W> {
    fn server(&self, number: u32) -> Server<'_, Model<C>> {
        self.host(number)
    }

    fn client(&self, number: u32) -> u32 {
        let known = self.who(|who| who.clients.iter().find(|(of, _)| *of == number).map(|(_, client)| *client));
        known.unwrap_or_else(|| {
            let client = self.host(number).join().expect("room for clients");
            self.who(|who| who.clients.push((number, client)));
            client
        })
    }

    fn worker(&self) -> Option<(u32, u32)> {
        self.who(|who| who.worker)
    }

    fn calls(&self, number: u32) {
        self.call(number);
    }

    fn idles(&self) {
        self.who(|who| who.idle = true);
    }

    fn works(&self) {
        let slept = self.who(|who| std::mem::take(&mut who.idle));
        let Some((number, _)) = self.worker() else { return };
        if (slept || !self.careless.load(Relaxed)) && self.host(number).must_call() {
            self.call(number);
        }
    }
}

/// Nothing more than a visit.
pub(crate) fn plain<C: Checker, W: WaitPolicy>(_: &Arc<Ring<C, W>>) {}
