//! # Producers, consumers, and a bounded queue between them
//!
//! Threads pass messages through a queue of limited size, and wait when it is full or empty. Use it to measure the cost
//! of waiting on condition variables under a lock.
//!
//! **Source.** Malthusian locks (EuroSys 2017), section 6.7, figure 10, after the benchmark of COZ. There are three
//! consumers, and the other threads produce; a queue of 10,000 messages, a lock, and two condition variables. Under a
//! FIFO lock, producers acquire it only to find the queue full, wait, and acquire it again: three acquisitions for each
//! message. Under a lock with concurrency restriction, a small balanced set of threads circulates: two acquisitions.
//! **Departure.** The queue is full at the start, as it would be after a while.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::Workload;
use crate::backend::{Backend, Here, Lines, OwnLine};
use crate::catalogue::Runner;
use crate::lock::{LOST, Lock};
use crate::wait::{Condition, RawCond};

/// The sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The first so many clients consume.
    pub consumers: u32,
    /// The capacity of the queue in messages; at least one.
    pub bound: u32,
    /// The cost of putting a message into the queue or taking one out, in ns, on backends where only reported computing
    /// takes time.
    pub message_ns: u32,
}

impl Traffic {
    /// The paper's values.
    pub const PAPER: Self = Self { consumers: 3, bound: 10_000, message_ns: 10 };

    const MESSAGES_PER_LINE: u32 = 16;
}

/// The workload of the catalogue. Three threads take messages, as in the paper, if then at least half of the threads
/// put messages in.
pub(crate) fn start<R: Runner>(mut runner: R) -> R::Outcome {
    let (threads, waiting) = (runner.setup().threads, runner.setup().waiting);
    let traffic = Traffic { consumers: Traffic::PAPER.consumers.min(threads / 2), ..Traffic::PAPER };
    let conditions = [(); 2].map(|()| RawCond::<R::Machine>::new(waiting));
    let queue = ProducerConsumer::<_, _, R::Backend>::new(runner.lock("the lock"), conditions, traffic);
    runner.run(queue)
}

/// The queue.
pub struct ProducerConsumer<L: Lock, C: Condition, G: Backend = Here> {
    lock: OwnLine<L>,
    not_full: OwnLine<C>,
    not_empty: OwnLine<C>,
    /// The number of messages in the queue, and how many were ever put in and taken out. Only the lock's holder changes
    /// them. They are atomic because the lock under test may not exclude.
    filled: OwnLine<AtomicU32>,
    put: AtomicU64,
    taken: AtomicU64,
    traffic: Traffic,
    ring: G::Lines,
    /// A client has retired: no thread waits any more.
    over: AtomicBool,
}

/// The state of one thread: whether it consumes.
pub struct Client {
    consumes: bool,
}

impl<L: Lock, C: Condition, G: Backend> ProducerConsumer<L, C, G> {
    /// A full queue.
    pub fn new(lock: L, [not_full, not_empty]: [C; 2], traffic: Traffic) -> Self {
        Self {
            lock: OwnLine(lock),
            not_full: OwnLine(not_full),
            not_empty: OwnLine(not_empty),
            filled: OwnLine(AtomicU32::new(traffic.bound)),
            put: AtomicU64::new(u64::from(traffic.bound)),
            taken: AtomicU64::new(0),
            ring: G::lines(traffic.bound.div_ceil(Traffic::MESSAGES_PER_LINE)),
            traffic,
            over: AtomicBool::new(false),
        }
    }

    /// Waits, with the lock held, until the queue's fill level is not `blocked`. Returns false if the run is over.
    fn wait_while(&self, condition: &C, blocked: u32) -> bool {
        while self.filled.0.load(Relaxed) == blocked {
            if self.over.load(Relaxed) {
                return false;
            }
            condition.wait(&self.lock.0);
        }
        true
    }

    /// The line of the message with this number.
    fn line(&self, number: u64) -> u32 {
        (number % u64::from(self.traffic.bound)) as u32 / Traffic::MESSAGES_PER_LINE
    }

    fn produce(&self) {
        self.lock.0.acquire();
        let room = self.wait_while(&self.not_full.0, self.traffic.bound);
        if room {
            let number = self.put.load(Relaxed);
            G::worked(self.traffic.message_ns);
            self.ring.write(self.line(number));
            self.put.store(number + 1, Relaxed);
            self.filled.0.store(self.filled.0.load(Relaxed) + 1, Relaxed);
        }
        self.lock.0.release();
        if room {
            self.not_empty.0.signal();
        }
    }

    fn consume(&self) {
        self.lock.0.acquire();
        let some = self.wait_while(&self.not_empty.0, 0);
        if some {
            let number = self.taken.load(Relaxed);
            G::worked(self.traffic.message_ns);
            self.ring.read(self.line(number));
            self.taken.store(number + 1, Relaxed);
            self.filled.0.store(self.filled.0.load(Relaxed).wrapping_sub(1), Relaxed);
        }
        self.lock.0.release();
        if some {
            self.not_full.0.signal();
        }
    }
}

impl<L: Lock, C: Condition, G: Backend> Workload for ProducerConsumer<L, C, G> {
    type Client = Client;

    fn client(&self, _seed: u64, number: u32) -> Client {
        Client { consumes: number < self.traffic.consumers }
    }

    fn operate(&self, client: &mut Client) {
        if client.consumes { self.consume() } else { self.produce() }
    }

    /// A message counts when it is consumed.
    fn counts(&self, client: &Client) -> bool {
        client.consumes
    }

    fn retire(&self, _client: Client) {
        self.lock.0.acquire();
        self.over.store(true, Relaxed);
        self.lock.0.release();
        self.not_full.0.broadcast();
        self.not_empty.0.broadcast();
    }

    fn check(&mut self, _operations: u64) -> Result<(), &'static str> {
        let left = self.put.load(Relaxed).wrapping_sub(self.taken.load(Relaxed));
        if left == u64::from(self.filled.0.load(Relaxed)) { Ok(()) } else { Err(LOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    /// A condition for tests in which no thread ever waits.
    struct Never;

    impl Condition for Never {
        fn wait(&self, _lock: &impl Lock) {
            panic!("one thread, and it would wait for ever");
        }
        fn signal(&self) {}
        fn broadcast(&self) {}
    }

    #[test]
    fn messages_go_through_the_queue() {
        let mut queue: ProducerConsumer<_, _, Recorder> = ProducerConsumer::new(NoLock, [Never, Never], Traffic::PAPER);
        let (mut consumer, mut producer) = (queue.client(1, 2), queue.client(1, 3));
        assert!(queue.counts(&consumer) && !queue.counts(&producer));
        Ledger::take();
        for _ in 0..100 {
            queue.operate(&mut consumer);
            queue.operate(&mut producer);
        }
        assert_eq!(Ledger::take(), Ledger { reads: 100, writes: 100, worked: 2000, ..Ledger::default() });
        assert_eq!(queue.check(200), Ok(()));
        queue.retire(consumer);
        queue.operate(&mut producer); // The queue is full, and no thread waits any more.
        assert_eq!(queue.check(201), Ok(()));
        queue.filled.0.store(7, Relaxed);
        assert!(queue.check(201).is_err());
    }
}
