//! Algorithms 1 to 3 of Lozi et al., ATC 2012, as they are printed, and with their faults repaired one by one. (What
//! `rcl` does instead, its page says.)
//!
//! All words are accessed in one order here; sections are numbers, which say what is done.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

use flashlock_locks::closure::rcl::turn::elect_by_priority;
use flashlock_locks::machine::{Waiting as _, Word as _};
use flashlock_model::Model;
use flashlock_model::checker::{Checker, Data};
use flashlock_model::word::Word;

/// Which lines are as printed.
#[derive(Clone, Copy, Default)]
pub(crate) struct AsPrinted {
    /// Algorithm 1, lines 14 and 15: `code` is cleared first, and the lock released through the slot.
    pub(crate) releases_through_the_slot: bool,
    /// Lines 11 to 13: the slot is not read again after the lock is taken, nor marked.
    pub(crate) reads_once: bool,
    /// Lines 20 to 24: a thread that suspends stays in the count of free threads.
    pub(crate) stays_counted: bool,
    /// Line 6: alive once a scan.
    pub(crate) alive_once_a_scan: bool,
}

/// What a section does: visits the lock's data, and then this.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    Breaks,
    /// Waits for that flag.
    Awaits(usize),
    /// Sets that flag.
    Sets(usize),
}

/// `code` while a repaired thread runs the section.
const RUNS: u32 = u32::MAX;

struct Request<C: Checker> {
    code: Word<C>,
    lock: Word<C>,
}

/// A server, its locks and its clients.
pub(crate) struct Printed<C: Checker> {
    as_printed: AsPrinted,
    requests: Vec<Request<C>>,
    is_locked: Vec<Word<C>>,
    data: Vec<C::Data>,
    flags: Vec<Word<C>>,
    /// What has been asked for, by `code` less one, and how often it was run.
    sections: RefCell<Vec<(Then, u32)>>,
    free: Word<C>,
    servicing: Word<C>,
    is_alive: Word<C>,
    is_servicing: Vec<Word<C>>,
    prepared: RefCell<Vec<usize>>,
    /// How many sections have ended.
    ended: Cell<u32>,
    over: Word<C>,
}

// SAFETY: threads of a model run one at a time.
unsafe impl<C: Checker> Send for Printed<C> {}
// SAFETY: as above.
unsafe impl<C: Checker> Sync for Printed<C> {}

fn words<C: Checker>(count: usize) -> Vec<Word<C>> {
    (0..count).map(|_| Word::new(0)).collect()
}

impl<C: Checker> Printed<C> {
    pub(crate) fn new(as_printed: AsPrinted, clients: usize, threads: usize) -> Self {
        Self {
            as_printed,
            requests: (0..clients).map(|_| Request { code: Word::new(0), lock: Word::new(0) }).collect(),
            is_locked: words(2),
            data: (0..2).map(|_| C::Data::new()).collect(),
            flags: words(4),
            sections: RefCell::default(),
            free: Word::new(1),
            servicing: Word::new(1),
            is_alive: Word::new(0),
            is_servicing: words(threads),
            prepared: RefCell::default(),
            ended: Cell::new(0),
            over: Word::new(0),
        }
    }

    /// Algorithm 2, lines 6 to 9.
    pub(crate) fn client(&self, me: usize, lock: u32, then: Then) {
        let code = {
            let mut sections = self.sections.borrow_mut();
            sections.push((then, 0));
            sections.len() as u32
        };
        let request = &self.requests[me];
        request.lock.store(lock, SeqCst);
        request.code.store(code, SeqCst);
        while request.code.load(SeqCst) != 0 {
            C::yield_now();
        }
        assert_eq!(self.sections.borrow()[code as usize - 1].1, 1, "not run once");
    }

    fn run(&self, code: u32, lock: usize) {
        assert!(code != 0 && code != RUNS, "null is called");
        let then = {
            let (then, runs) = &mut self.sections.borrow_mut()[code as usize - 1];
            *runs += 1;
            assert_eq!(*runs, 1, "run twice");
            *then
        };
        self.data[lock].visit();
        match then {
            Then::Nothing => {}
            Then::Breaks => (0..6).for_each(|_| C::yield_now()),
            Then::Awaits(flag) => {
                while self.flags[flag].load(SeqCst) == 0 {
                    C::yield_now();
                }
            }
            Then::Sets(flag) => self.flags[flag].store(1, SeqCst),
        }
        self.data[lock].visit();
    }

    /// Algorithm 1, lines 9 to 15, of one request.
    fn look(&self, request: &Request<C>) {
        let code = request.code.load(SeqCst);
        if code == 0 || code == RUNS {
            return;
        }
        let lock = request.lock.load(SeqCst) as usize;
        let mine = &self.is_locked[lock];
        if mine.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
            return;
        }
        let again = request.code.load(SeqCst);
        if !self.as_printed.reads_once {
            if again == 0 || again == RUNS || request.lock.load(SeqCst) as usize != lock {
                return mine.store(0, SeqCst);
            }
            request.code.store(RUNS, SeqCst);
        }
        self.run(again, lock);
        if !self.as_printed.alive_once_a_scan {
            self.is_alive.store(1, SeqCst);
        }
        self.ended.set(self.ended.get() + 1);
        if self.as_printed.releases_through_the_slot {
            request.code.store(0, SeqCst);
            self.is_locked[request.lock.load(SeqCst) as usize].store(0, SeqCst);
        } else {
            mine.store(0, SeqCst);
            request.code.store(0, SeqCst);
        }
    }

    /// Algorithm 1.
    pub(crate) fn servicing_thread(&self, me: usize) {
        self.is_servicing[me].store(1, SeqCst);
        while self.over.load(SeqCst) == 0 {
            self.is_alive.store(1, SeqCst);
            self.free.fetch_add(u32::MAX, SeqCst);
            self.requests.iter().for_each(|request| self.look(request));
            self.free.fetch_add(1, SeqCst);
            if self.servicing.load(SeqCst) > 1 {
                if self.free.load(SeqCst) <= 1 {
                    C::yield_now();
                } else {
                    self.is_servicing[me].store(0, SeqCst);
                    self.servicing.fetch_add(u32::MAX, SeqCst);
                    if !self.as_printed.stays_counted {
                        self.free.fetch_add(u32::MAX, SeqCst);
                    }
                    self.prepared.borrow_mut().push(me);
                    while self.is_servicing[me].load(SeqCst) == 0 && self.over.load(SeqCst) == 0 {
                        Model::<C>::park(&self.is_servicing[me], 0, None);
                    }
                }
            }
            C::yield_now();
        }
    }

    /// Algorithm 3, without `elect`: the model's threads all run. `start` makes a thread. Fails when requests are left
    /// after so many looks; and when a thread is elected though a section has ended since the last look.
    pub(crate) fn management(&self, looks: u32, mut start: impl FnMut(usize)) {
        start(0);
        let (mut threads, mut ended) = (1, 0);
        for _ in 0..looks {
            if self.over.load(SeqCst) != 0 {
                return;
            }
            let (alive, before) = (self.is_alive.swap(0, SeqCst), ended);
            ended = self.ended.get();
            if alive == 0 {
                assert_eq!(ended, before, "a thread is elected, though the one that serves makes progress");
                if self.free.load(SeqCst) == 0 {
                    self.servicing.fetch_add(1, SeqCst);
                    self.free.fetch_add(1, SeqCst);
                    let prepared = self.prepared.borrow_mut().pop();
                    if let Some(thread) = prepared {
                        self.is_servicing[thread].store(1, SeqCst);
                        Model::<C>::wake(&raw const self.is_servicing[thread], 1);
                    } else if threads < self.is_servicing.len() {
                        start(threads);
                        threads += 1;
                    }
                }
            }
            (0..20).for_each(|_| C::yield_now());
        }
        panic!("requests are left, and no thread is added");
    }

    pub(crate) fn end(&self) {
        self.over.store(1, SeqCst);
        for word in &self.is_servicing {
            word.store(1, SeqCst);
            Model::<C>::wake(&raw const *word, u32::MAX);
        }
    }
}

/// Threads of one priority in the scheduler's FIFO queue: the first one runs.
fn first_after_election(elect: impl FnOnce(&mut VecDeque<u32>, u32)) -> Option<u32> {
    let mut queue = VecDeque::from([3, 1, 4, 2]);
    elect(&mut queue, 4);
    queue.pop_front()
}

/// Lowered and raised: at the end.
fn requeue(queue: &mut VecDeque<u32>, thread: u32) {
    queue.retain(|other| *other != thread);
    queue.push_back(thread);
}

/// All but the elected one are moved. As printed, it is that one that is moved: then another one runs.
#[test]
fn an_election_by_priority() {
    let repaired = first_after_election(|queue, elected| {
        let all: Vec<_> = queue.iter().copied().collect();
        elect_by_priority(all.into_iter(), elected, |thread| requeue(queue, thread));
    });
    assert_eq!(repaired, Some(4));
    let printed = first_after_election(requeue);
    assert_eq!(printed, Some(3), "the printed election was to be found out");
}
