//! # A pool of few buffers for many threads
//!
//! Threads share a few buffers and wait when all are in use. Use it to measure the order in which condition variables
//! and semaphores wake their waiters.
//!
//! **Source.** Malthusian locks (EuroSys 2017), section 6.11, figure 14. A thread takes a buffer from a pool of five,
//! and waits if there is none. It exchanges random words of the buffer with a buffer of its own, gives it back, and
//! updates random words of its own. The pool is a lock, a stack, and a condition variable, or, in a variant, a
//! semaphore. The order in which these wake their waiters decides how many threads circulate, and so how many buffers,
//! including the threads' own, compete for the caches. **Departure.** The paper does not give the size of a thread's
//! own buffer. Here it is as large as the others.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::Workload;
use crate::backend::{Backend, Here, Lines, OwnLine};
use crate::catalogue::Runner;
use crate::lock::{LOST, Lock};
use crate::random::XorShift;
use crate::wait::{Condition, Permits, RawCond, RawSem};

/// The maximum number of buffers in a pool.
const MOST: usize = 16;

/// The sizes, and the number of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Buffers in the pool; at most 16.
    pub count: u32,
    /// 32-bit words in each buffer; at least one.
    pub words: u32,
    /// Words exchanged between the pool's buffer and the thread's own.
    pub exchanges: u32,
    /// Words of the thread's own buffer that are updated afterwards.
    pub updates: u32,
    /// The cost of choosing a word, in ns, on backends where only reported computing takes time.
    pub draw_ns: u32,
}

impl Buffers {
    /// The paper's values.
    pub const PAPER: Self =
        Self { count: 5, words: 256 << 10, exchanges: 500, updates: 5000, draw_ns: XorShift::DRAW_NS };

    const WORDS_PER_LINE: u32 = 16;

    /// Cache lines of each buffer.
    pub const fn lines(&self) -> u32 {
        self.words.div_ceil(Self::WORDS_PER_LINE)
    }

    fn buffer<G: Backend>(&self) -> G::Lines {
        G::lines(self.lines())
    }

    fn line(&self, random: &mut XorShift) -> u32 {
        random.below(self.words) / Self::WORDS_PER_LINE
    }
}

/// How threads wait for a buffer.
pub trait Supply<L: Lock>: Sync {
    /// Acquires the lock when there is a buffer. `ready` says whether there is one, under the lock.
    fn enter(&self, lock: &L, ready: impl Fn() -> bool);
    /// Releases the lock. The pool has one more buffer.
    fn leave(&self, lock: &L);
}

/// With a condition variable.
pub struct ByCondition<C: Condition>(pub C);

impl<L: Lock, C: Condition> Supply<L> for ByCondition<C> {
    fn enter(&self, lock: &L, ready: impl Fn() -> bool) {
        lock.acquire();
        while !ready() {
            self.0.wait(lock);
        }
    }

    fn leave(&self, lock: &L) {
        lock.release();
        self.0.signal();
    }
}

/// With a semaphore, which has a permit for each buffer.
pub struct ByPermits<P: Permits>(pub P);

impl<L: Lock, P: Permits> Supply<L> for ByPermits<P> {
    fn enter(&self, lock: &L, _ready: impl Fn() -> bool) {
        self.0.take();
        lock.acquire();
    }

    fn leave(&self, lock: &L) {
        lock.release();
        self.0.give();
    }
}

/// The workload of the catalogue, with a condition variable.
pub(crate) fn start_with_condition<R: Runner>(runner: R) -> R::Outcome {
    let supply = ByCondition(RawCond::<R::Machine>::new(runner.setup().waiting));
    start(runner, supply)
}

/// The workload of the catalogue, with a semaphore.
pub(crate) fn start_with_permits<R: Runner>(runner: R) -> R::Outcome {
    let supply = ByPermits(RawSem::<R::Machine>::new(Buffers::PAPER.count, runner.setup().waiting));
    start(runner, supply)
}

fn start<R: Runner, S: Supply<R::Lock> + 'static>(mut runner: R, supply: S) -> R::Outcome {
    let pool = BufferPool::<_, _, R::Backend>::new(runner.lock("the lock"), supply, Buffers::PAPER);
    runner.run(pool)
}

/// The pool.
pub struct BufferPool<L: Lock, S: Supply<L>, G: Backend = Here> {
    lock: OwnLine<L>,
    supply: OwnLine<S>,
    /// The number of buffers in the pool, and which they are: a stack. Only the lock's holder changes it. It is atomic
    /// because the lock under test may not exclude.
    there: OwnLine<AtomicU32>,
    stack: [AtomicU32; MOST],
    size: Buffers,
    buffers: [Option<G::Lines>; MOST],
}

/// The state of one thread: its buffer.
pub struct Client<G: Backend = Here> {
    random: XorShift,
    own: G::Lines,
}

impl<L: Lock, S: Supply<L>, G: Backend> BufferPool<L, S, G> {
    /// A full pool. If threads wait on a semaphore, it must have as many permits.
    pub fn new(lock: L, supply: S, size: Buffers) -> Self {
        let mut buffers = [const { None }; MOST];
        buffers.iter_mut().take(size.count as usize).for_each(|buffer| *buffer = Some(size.buffer::<G>()));
        let (there, stack) = (AtomicU32::new(size.count), core::array::from_fn(|at| AtomicU32::new(at as u32)));
        Self { lock: OwnLine(lock), supply: OwnLine(supply), there: OwnLine(there), stack, size, buffers }
    }

    /// Takes the buffer that was given back last.
    fn take(&self) -> u32 {
        self.supply.0.enter(&self.lock.0, || self.there.0.load(Relaxed) > 0);
        // If the lock does not exclude, there may be none.
        let left = self.there.0.load(Relaxed).saturating_sub(1);
        self.there.0.store(left, Relaxed);
        let buffer = self.stack[left as usize % MOST].load(Relaxed);
        self.lock.0.release();
        buffer
    }

    fn give(&self, buffer: u32) {
        self.lock.0.acquire();
        let there = self.there.0.load(Relaxed);
        self.stack[there as usize % MOST].store(buffer, Relaxed);
        self.there.0.store(there + 1, Relaxed);
        self.supply.0.leave(&self.lock.0);
    }
}

impl<L: Lock, S: Supply<L>, G: Backend> Workload for BufferPool<L, S, G> {
    type Client = Client<G>;

    fn client(&self, seed: u64, number: u32) -> Client<G> {
        Client { random: XorShift::new(seed, number), own: self.size.buffer::<G>() }
    }

    fn operate(&self, client: &mut Client<G>) {
        let (Client { random, own }, size) = (client, &self.size);
        let buffer = self.take();
        G::worked(size.exchanges * 2 * size.draw_ns);
        if let Some(lines) = &self.buffers[buffer as usize % MOST] {
            for _ in 0..size.exchanges {
                let (theirs, mine) = (size.line(random), size.line(random));
                lines.read(theirs);
                own.read(mine);
                lines.write(theirs);
                own.write(mine);
            }
        }
        self.give(buffer);
        G::worked(size.updates * size.draw_ns);
        let mut next = size.line(random);
        for left in (0..size.updates).rev() {
            let line = next;
            if left > 0 {
                next = size.line(random);
                own.expect(next);
            }
            own.read(line);
            own.write(line);
        }
    }

    fn check(&mut self, _operations: u64) -> Result<(), &'static str> {
        let mut found = [false; MOST];
        for buffer in &self.stack[..self.size.count as usize] {
            found[buffer.load(Relaxed) as usize % MOST] = true;
        }
        let all = found[..self.size.count as usize].iter().all(|found| *found);
        if all && self.there.0.load(Relaxed) == self.size.count { Ok(()) } else { Err(LOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    /// A condition for tests in which no thread ever waits.
    struct Plenty;

    impl Condition for Plenty {
        fn wait(&self, _lock: &impl Lock) {
            panic!("one thread, and no buffer");
        }
        fn signal(&self) {}
        fn broadcast(&self) {}
    }

    #[test]
    fn an_operation_is_what_the_paper_says() {
        let mut pool: BufferPool<_, _, Recorder> = BufferPool::new(NoLock, ByCondition(Plenty), Buffers::PAPER);
        let mut client = pool.client(1, 0);
        Ledger::take();
        (0..10).for_each(|_| pool.operate(&mut client));
        let touched = 10 * (2 * 500 + 5000);
        assert_eq!(
            Ledger::take(),
            Ledger { reads: touched, writes: touched, worked: 2 * touched, ..Ledger::default() }
        );
        assert_eq!(pool.check(10), Ok(()));
    }

    #[test]
    fn a_buffer_that_is_missing_is_noticed() {
        let mut pool: BufferPool<_, _, Recorder> = BufferPool::new(NoLock, ByCondition(Plenty), Buffers::PAPER);
        let buffer = pool.take();
        assert!(pool.check(0).is_err());
        pool.give(buffer);
        assert_eq!((buffer, pool.check(0)), (4, Ok(())));
        pool.stack[1].store(3, Relaxed);
        assert!(pool.check(0).is_err(), "one is there twice");
    }
}
