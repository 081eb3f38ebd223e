//! # Readers-writer ShflLock: a counter in front, one queue of readers and writers behind it
//!
//! A small readers-writer lock for several NUMA nodes: one counter says how it is held, and readers and writers wait in
//! one queue.
//!
//! **Problem.** A readers-writer lock should cost one atomic operation without contention, and let neither readers nor
//! writers starve. It should keep its throughput with more threads than CPUs and on several NUMA nodes. And it should
//! need only a few bytes. **Idea.** As in the [mutex](crate::mutex::shuffle::shfl), holding and waiting are decoupled.
//! A central counter counts readers, and says whether a writer holds the lock. A thread that has to wait, for reading
//! or for writing, joins one queue. Only the head of the queue contends for the counter. The waiters reorder the queue:
//! writers next to writers, readers next to readers of their NUMA node. **Source.** Kashyap et al., SOSP'19; thesis
//! defence, slides 71–72, 79–80. The split into a counter and a queue of those that contend for it is Linux's
//! `qrwlock`.
//!
//! **Use it** when writers are frequent, or locks are many: it is small, and needs no side block. **Rather not** when
//! nearly all acquisitions are for reading and come from many CPUs: all readers write one counter. The default,
//! [`cst-rw`](super::cst), avoids that.
//!
//! **Departures.**
//! 1. *The test-and-set word and the counter are one word* (4 + 8 bytes in the paper). The writer's bit is the
//!    test-and-set word; of the queued threads only the head contends for it. If no thread waits, a release is one
//!    subtraction, after which nothing is accessed.
//! 2. *Readers count themselves first, and then look*: one addition, which cannot fail under contention as a
//!    compare-and-exchange does. A reader that may not enter takes itself out again before it queues.
//! 3. *Bars, not phases.* A *bar* is a flag that keeps new readers, or new writers, out. A writer at the head that has
//!    polled in vain bars new readers while it goes on polling. It sleeps behind a bar only if its wait is overdue
//!    (`bound`), or where writers are preferred. Until then running threads may take the lock, because a lock that is
//!    kept for a sleeper makes every thread wait. An overdue head of either kind bars other writers, too. So a head
//!    that sleeps wakes up once by itself, when the bound is over. After that it sleeps until it is woken.
//! 4. *Readers pass waiting writers* if they hold a read lock, and otherwise after the bound; see [`rw`](super). Each
//!    reader that passes a head in this way doubles the wait of the next one (up to [`MOST_DOUBLINGS`] times).
//! 5. *A reader that enters wakes the next waiter at once* if that one sleeps: it may read, too. A writer moves the
//!    next waiter to the counter, where the writer's release wakes it.
//! 6. *Sleepers sleep until woken*, as in the mutex, except: (a) readers that may pass waiting writers look for
//!    themselves when the bound is over, then after twice as long, and so on without end; (b) other waiters look for
//!    themselves as long as they have not seen the head asleep. A head that does not run loses its bars, and its place.
//! 7. *With too few CPUs, a waiter competes before it queues*, until its wait is overdue. It sleeps on the counter, a
//!    release wakes one such waiter, and that one competes with running threads. A queue would pass the lock from
//!    sleeper to sleeper. Each of them must first get a CPU, and meanwhile all running threads would join the queue.
//!    Where the program prefers writers, waiters queue at once.
//!
//! ## State: 12 bytes
//! ```text
//! count   31 .................... 6   5        4      3        2            1            0
//!         readers, even tentative ones AWAITED  WOKEN  SLEEPER  BAR_WRITERS  BAR_READERS  WRITER
//! ```
//! | bit | set by | cleared by | meaning |
//! |---|---|---|---|
//! | [`WRITER`] | a thread that acquires for writing | its release | held for writing |
//! | [`BAR_READERS`] | a writer at the head; one that leaves, for the next | the head, when it has the lock, leaves, or sleeps; a thread that finds it stale | new readers stay out |
//! | [`BAR_WRITERS`] | the head, overdue | the same | new writers stay out |
//! | [`SLEEPER`] | the head, before it sleeps on `count`; a writer that has moved it there | the release that wakes the head; the head, awake | the thread that makes the lock free, or free of readers, wakes the head |
//! | [`WOKEN`] | the release that wakes the head | the head, awake | the head was woken and has not run since: it needs no other wake-up, but it may be frozen |
//! | [`AWAITED`] | a waiter outside the queue, before it sleeps on `count`; one that has slept, once it holds the lock | the release that wakes one of them | departure 7 |
//!
//! `head` and `tail`: see [`front`](crate::parts::shuffle::front). [`turn`] is the wait in the queue, [`head`] that of
//! the head.
//!
//! ## The bound
//! Let n other threads use the lock, each with sections of at most s. Let T be `bound=`, and let d be the longest time
//! until a thread that was woken runs. (With `wait=spin`, d is 5 ms, for which a head polls before it looks at the
//! clock.) Then a thread that wants the lock has it after at most **(n + 2) · (2 s + T + d) + 2 T + p · s**, where p is
//! the number of readers that pass a waiting writer meanwhile (departure 4; `rw_passed` in the statistics), if
//! - woken threads run, and threads do not stop;
//! - it does not time out, no thread calls `trylock`, and no thread reads recursively.
//!
//! *Why.* With too few CPUs, a thread competes for T before it queues. Then, for T at most, later arrivals are moved
//! before it ([`GroupByRole`]). From then on at most n waiters are before it. A waiter becomes head when the head
//! before it acquires the lock; its clock starts then. When T is over, the head raises bars: a reader against writers,
//! a writer against all newcomers. If it is asleep, it wakes up by itself at that time; or, if a writer has moved it to
//! the counter, that writer's release wakes it. So the bars are up after at most T + d, or s + d if that is more. Then
//! only the section that runs is in its way, and readers that pass. It is woken when that section ends. So one head
//! follows another after at most T + 2 s + d, and the sections of readers that pass. Two more terms are the section
//! that runs when the thread arrives, and its own.
//!
//! *How many pass.* The first reader that passes a head has waited for T, the second for 2 T, and so on, up to 1,024 T.
//! They keep a writer out only while their sections overlap. Let r threads read. Among any r + 1 that pass one after
//! another, one thread passes twice, and waits in between. So if **r · s < 1,024 T**, at most 2 r + 11 pass one head.
//! If r · s is more, readers that come back again and again can keep a writer out without end: **then there is no bound
//! for writers**. (With T = 1 ms that takes eleven threads that read for 100 ms each.) The simulator checks the bound
//! with random n, s and numbers of writers.
//!
//! ## Invariants (in addition to those of `front`)
//! 1. A thread that sets WRITER, while there are no readers, holds the lock for writing until WRITER is cleared.
//! 2. If a thread adds a reader while neither WRITER nor a bar that it must respect is set, it holds the lock for
//!    reading until it takes that reader out. A thread that has added one and sees WRITER, or such a bar, holds
//!    nothing, and takes it out again.
//! 3. Of the threads in the queue only the head sleeps on `count`. Either it falls asleep after SLEEPER was set, while
//!    `count` is as it was then. Or a writer moves it there, and sets SLEEPER before it releases. Waiters outside the
//!    queue sleep there, too, and set AWAITED before.
//!    An evicted head does not sleep there: it sees that it was evicted, or its evictor wakes it (`rouse_evicted`).
//! 4. The head leaves the queue only after it has cleared its name from `head`, which it and the thread that
//!    evicts it compete for.
//! 5. After the release of WRITER, or of a reader, the releaser touches only nodes and futex addresses.
//! 6. A release that clears SLEEPER wakes all that sleep on `count`. A thread that is about to sleep there sees that
//!    `count` has changed.
//! 7. Bars keep no thread out for ever: the head that raised them says when it last ran, and stale ones are ignored.
//!    - A thread may take down the flags of a head that it does not know: if it was evicted and goes on; or if it saw
//!      no head, or an idle one.
//!    - Then it wakes all that sleep on `count`, and that head sets its flags again.
//!    - A head does not fall asleep without its bars.
//! 8. A release that clears AWAITED wakes one waiter outside the queue. That waiter sets it again once it holds the
//!    lock, and before it sleeps again. If it leaves without the lock, it wakes another one.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `count` + reader in `enter`, CAS in `admit_…` | Acquire | the releases | sees the last section |
//! | `count` − reader, − WRITER | Release | both | hands over this section |
//! | `count`: `fetch_or` of SLEEPER (head), `fetch_and` (its evictor) | AcqRel | each other | one sees the other |
//! | `count`: `fetch_or`, `fetch_and` (other flags) | Relaxed | – | flags order nothing; they hand a release on |
//!
//! **Cannot:** exclude code that bypasses flashlock and runs glibc's functions on the same lock.

pub mod head;
pub mod turn;
pub mod wait;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::node::{Node, state};
use crate::machine::{Deadline, Handle, Machine, TimedOut, Word};
use crate::parts::counted::wake;
use crate::parts::policy::{Admission, GroupByRole};
use crate::parts::shuffle::ShflQueue;
use crate::parts::shuffle::front::named;
use crate::parts::shuffle::rouse::{rouse, rouse_any, vouch_for};
use crate::parts::wait::{SpinThenPark, WaitPolicy};
use crate::rw::shfl::wait::{OtherEntry, Wait};
use crate::rw::{RawRwLock, Reader, Refusal, Writer};

/// Held for writing.
pub const WRITER: u32 = 1;
/// New readers stay out.
pub const BAR_READERS: u32 = 1 << 1;
/// New writers stay out.
pub const BAR_WRITERS: u32 = 1 << 2;
/// The head sleeps on the counter.
pub const SLEEPER: u32 = 1 << 3;
/// A release has woken the head, which has not run since.
pub const WOKEN: u32 = 1 << 4;
/// A newcomer sleeps on the counter, before it queues.
pub const AWAITED: u32 = 1 << 5;
/// One reader.
pub const READER: u32 = 1 << 6;
/// Both bars.
pub const BARS: u32 = BAR_READERS | BAR_WRITERS;
/// The flags that make a release more than one subtraction.
const BUSY: u32 = BARS | ASLEEP | AWAITED;
/// The head sleeps, or slept when it last ran.
pub(crate) const ASLEEP: u32 = SLEEPER | WOKEN;
/// From this value on there are too many readers. The rest of the word has room for readers that have not noticed yet.
const FULL: u32 = 1 << 31;
/// How often the wait of a reader that only a waiting writer keeps out may be doubled.
pub const MOST_DOUBLINGS: u32 = 10;

const _: () = assert!(FULL.is_multiple_of(READER) && WRITER | BUSY == READER - 1);

/// No thread holds the lock for reading, or asks for it.
#[inline]
pub(crate) fn has_no_readers(count: u32) -> bool {
    count < READER
}

/// A thread holds the lock for writing.
#[inline]
pub(crate) fn is_written(count: u32) -> bool {
    count & WRITER != 0
}

/// The blocking readers-writer ShflLock: waiters wait by `W` and are grouped by `P`.
pub struct ShflRw<W: WaitPolicy = SpinThenPark, P: Admission = GroupByRole>(PhantomData<(W, P)>);

/// The state of one lock.
#[repr(C)]
pub struct ShflRwState<M: Machine> {
    /// Readers and flags.
    pub count: M::Word,
    /// The waiters.
    pub queue: ShflQueue<M>,
}

crate::zeroed!(ShflRwState<M> { count, queue });

/// What a thread wants from the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Read(Reader),
    Write(Writer),
}

impl Want {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write(_))
    }

    /// Whether the counter lets it in, apart from bars.
    pub(crate) fn could(self, count: u32) -> bool {
        count & WRITER == 0 && (!self.writes() || has_no_readers(count))
    }

    /// The bars that it respects.
    pub(crate) fn bars(self) -> u32 {
        match self {
            Self::Read(Reader::Again) => 0,
            Self::Read(_) => BAR_READERS,
            Self::Write(_) => BAR_WRITERS,
        }
    }
}

impl<M: Machine> ShflRwState<M> {
    /// (readers) -> (readers + 1), or (free) -> (WRITER), unless a bit of `closed` is set; also clears the bits of
    /// `clear`.
    pub(crate) fn admit(&self, want: Want, closed: u32, clear: u32) -> bool {
        let mut seen = self.count.load(Relaxed);
        loop {
            if !want.could(seen) || seen & closed != 0 || seen >= FULL {
                return false;
            }
            let new = if want.writes() { seen | WRITER } else { seen + READER };
            match self.count.compare_exchange(seen, new & !clear, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// (readers) -> (readers - 1), for a caller that saw no sleeper. If there is one by now, it is woken.
    fn take_out(&self) {
        self.subtract(READER);
    }

    /// (WRITER) -> (), for a caller that saw no sleeper.
    fn end_writing(&self) {
        self.subtract(WRITER);
    }

    fn subtract(&self, what: u32) {
        let (address, queue): (*const M::Word, *const ShflQueue<M>) = (&raw const self.count, &raw const self.queue);
        let seen = self.count.fetch_add(what.wrapping_neg(), Release);
        // Invariant 5. The flags stay: the next release finds them.
        if frees(seen, what) && seen & (SLEEPER | AWAITED) != 0 {
            rouse_unseen::<M>(address, queue, seen);
        }
    }

    /// Subtracts `what`, a READER or the WRITER. If that makes the lock free, wakes the sleepers on the counter, and
    /// clears their flags in the same step, so that no other release wakes them again. If the head was among them,
    /// returns how many were woken.
    fn give_back(&self, what: u32) -> Option<u32> {
        let address: *const M::Word = &raw const self.count;
        let mut seen = self.count.load(Relaxed);
        loop {
            let wakes = frees(seen, what) && seen & (SLEEPER | AWAITED) != 0;
            let head = wakes && seen & SLEEPER != 0;
            let left = seen.wrapping_sub(what) & if wakes { !(SLEEPER | AWAITED) } else { !0 };
            let new = if head { left | WOKEN } else { left };
            match self.count.compare_exchange(seen, new, Release, Relaxed) {
                Ok(_) => {
                    // Invariants 5 and 6.
                    let woken = wakes.then(|| rouse_sleepers::<M>(address, seen));
                    return woken.filter(|_| head);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// (no WRITER, no bar) -> (readers + 1). Returns what the counter was.
    #[inline]
    pub(crate) fn count_in(&self) -> Option<u32> {
        let seen = self.count.fetch_add(READER, Acquire);
        if seen & (WRITER | BAR_READERS) == 0 && seen < FULL {
            return Some(seen);
        }
        // Invariant 2.
        if let Some(woken) = self.give_back(READER)
            && let Some(head) = self.live_head()
        {
            vouch_for::<M>(head, woken);
        }
        None
    }

    /// Whether a thread holds the lock for writing, or did a moment ago.
    #[inline]
    pub(crate) fn is_written(&self) -> bool {
        is_written(self.count.load(Relaxed))
    }

    /// The same. If not, the last writer has finished with the lock.
    #[inline]
    pub(crate) fn is_written_acquire(&self) -> bool {
        is_written(self.count.load(Acquire))
    }

    /// Whether new readers stay out: a thread holds the lock for writing, or one that waits has raised the bar.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.count.load(Relaxed) & (WRITER | BAR_READERS) != 0
    }

    /// The same. If not, the last writer has finished with the lock.
    #[inline]
    pub(crate) fn is_closed_acquire(&self) -> bool {
        self.count.load(Acquire) & (WRITER | BAR_READERS) != 0
    }

    /// Acquires. It counts no event: the caller does, if it acquires for the program.
    #[inline]
    pub(crate) fn acquire<W: WaitPolicy, P: Admission>(
        &self,
        want: Want,
        until: Option<Deadline>,
        elsewhere: OtherEntry<'_>,
    ) -> Result<(), Refusal> {
        let taken = if want.writes() {
            self.count.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
        } else {
            self.admit(want, want.bars(), 0)
        };
        if taken {
            return Ok(());
        }
        if !want.writes() && self.count.load(Relaxed) >= FULL {
            return Err(Refusal::Overflow);
        }
        let wait = Wait::begin::<M>(want).looking(elsewhere);
        self.wait::<W, P>(&wait, until).map_err(|TimedOut| Refusal::TimedOut)
    }

    /// Acquires for reading if that is possible at once.
    pub(crate) fn try_read(&self, how: Reader) -> Result<(), Refusal> {
        let closed = if how == Reader::Behind { BAR_READERS & self.bars_that_hold() } else { 0 };
        if self.admit(Want::Read(how), closed, 0) {
            return Ok(());
        }
        Err(if self.count.load(Relaxed) >= FULL { Refusal::Overflow } else { Refusal::Busy })
    }

    /// Releases what the calling thread holds.
    #[inline]
    pub(crate) fn release(&self) {
        // Relaxed: as the caller holds the lock, it is seen whether for writing.
        let seen = self.count.load(Relaxed);
        if seen & (WRITER | BUSY) == 0 && seen >= READER {
            self.take_out();
        } else if seen & (WRITER | BUSY) == WRITER {
            self.end_writing();
        } else if seen & WRITER != 0 || seen >= READER {
            self.unlock_slow(seen);
        }
    }

    /// Whether a thread holds the lock, or did a moment ago.
    pub(crate) fn is_held(&self) -> bool {
        let seen = self.count.load(Relaxed);
        is_written(seen) || !has_no_readers(seen)
    }

    /// Acquires for writing if that is possible at once. Counts no event either.
    pub(crate) fn try_write(&self) -> bool {
        self.count.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
            || self.admit(Want::Write(Writer::Fair), self.bar_to_tries(), 0)
    }

    /// Acquires for writing, for the lock's own purposes. Once this thread is head, new readers are kept out, but for
    /// at most this long (µs). Otherwise arriving readers could keep the count above 0 for ever.
    pub(crate) fn acquire_uncounted<W: WaitPolicy>(&self, until: Deadline, at_head: u32) -> Result<(), TimedOut> {
        if self.count.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok() {
            return Ok(());
        }
        let wait = Wait::begin::<M>(Want::Write(Writer::Preferred)).at_head(at_head);
        self.wait::<W, GroupByRole>(&wait, Some(until))
    }

    /// The release of a lock that threads wait for. `count` is what the releaser saw.
    #[cold]
    fn unlock_slow(&self, count: u32) {
        let mut head = named(self.queue.head.load(Acquire));
        if head.is_some_and(|waiter| !waiter.node::<M>().is_alive()) {
            // A forked child.
            self.queue.discard_dead_queue(self.queue.head.load(Relaxed));
            self.count.fetch_and(!BUSY, Relaxed);
            head = None;
        }
        let woken = self.give_back(if count & WRITER != 0 { WRITER } else { READER });
        // From here on, only nodes are accessed.
        let Some(head) = head else { return };
        let naps = || head.node::<M>().state.load(Relaxed) == state::NAPPING;
        match woken {
            Some(woken) => vouch_for::<M>(head, woken),
            None if count & WOKEN != 0 && is_rarer(head.node::<M>()) && naps() => rouse::<M>(head),
            None => {}
        }
    }

    /// (held for writing) -> the same: the holder's release wakes the thread that was moved to the counter, and readers
    /// stay out if that bar is up. Relaxed: it is the holder's own release.
    fn note_sleeper(&self, bar: u32) {
        self.count.fetch_or(SLEEPER | bar, Relaxed);
    }

    /// The head, if it exists in this process.
    fn live_head(&self) -> Option<Handle> {
        named(self.queue.head.load(Acquire)).filter(|head| head.node::<M>().is_alive())
    }

    /// The bars that a tried acquisition respects: those of a head that exists.
    fn bars_that_hold(&self) -> u32 {
        if self.live_head().is_some() { BARS } else { 0 }
    }

    /// The bar that a writer's try respects: not if the head could have the lock, and does not run.
    fn bar_to_tries(&self) -> u32 {
        let could = || Want::Write(Writer::Fair).could(self.count.load(Relaxed));
        let idle = || self.live_head().is_some_and(|head| self.is_idle(head.node::<M>()));
        if could() && idle() { 0 } else { BAR_WRITERS & self.bars_that_hold() }
    }
}

/// Whether the lock is free, or free of readers, without `what`, which a release takes out. `seen` is the counter
/// before that.
#[inline]
fn frees(seen: u32, what: u32) -> bool {
    what == WRITER || !is_written(seen) && has_no_readers(seen.wrapping_sub(READER))
}

/// Counts the releases since the head was woken. Returns whether this release checks if the head has run since:
/// releases 1, 2, 4, 8, and so on do. The first ones check so that a frozen head does not hold up a lock that is seldom
/// released. Later checks are rare, because a head that only waits for a CPU needs no help. The count is a hint, in a
/// word that a head does not use otherwise.
fn is_rarer<M: Machine>(head: &Node<M>) -> bool {
    let releases = head.check_at.load(Relaxed).wrapping_add(1);
    head.check_at.store(releases, Relaxed);
    releases.is_power_of_two()
}

/// Wakes all that sleep on the counter if the head is among them, and otherwise one. Returns how many were woken.
#[cold]
fn rouse_sleepers<M: Machine>(address: *const M::Word, seen: u32) -> u32 {
    wake::<M>(address, if seen & SLEEPER != 0 { u32::MAX } else { 1 })
}

/// The same, for a releaser that saw no sleeper. If the head sleeps by now, waiters behind it may rely on its wake-up,
/// and it may be frozen: wakes one of them, too. The queue may be gone: only its address is used.
#[cold]
fn rouse_unseen<M: Machine>(address: *const M::Word, queue: *const ShflQueue<M>, seen: u32) {
    rouse_sleepers::<M>(address, seen);
    if seen & SLEEPER != 0 {
        rouse_any::<M>(ShflQueue::mark_of(queue));
    }
}

// SAFETY: invariants 1 to 5, and those of `front` and of the shuffler.
unsafe impl<M: Machine, W: WaitPolicy, P: Admission> RawRwLock<M> for ShflRw<W, P> {
    type State = ShflRwState<M>;

    const MOST_READERS: u32 = (FULL - READER) / READER;

    /// (no WRITER, no bar) -> (readers + 1)
    #[inline]
    unsafe fn acquire_fast(state: &ShflRwState<M>) -> bool {
        state.count_in().is_some()
    }

    unsafe fn acquire_read(state: &ShflRwState<M>, how: Reader, until: Option<Deadline>) -> Result<(), Refusal> {
        state.acquire::<W, P>(Want::Read(how), until, None)
    }

    unsafe fn try_acquire_read(state: &ShflRwState<M>, how: Reader) -> Result<(), Refusal> {
        state.try_read(how)
    }

    #[inline]
    unsafe fn acquire_write(state: &ShflRwState<M>, how: Writer, until: Option<Deadline>) -> Result<(), Refusal> {
        state.acquire::<W, P>(Want::Write(how), until, None)
    }

    unsafe fn try_acquire_write(state: &ShflRwState<M>) -> bool {
        state.try_write()
    }

    #[inline]
    unsafe fn release(state: &ShflRwState<M>) {
        state.release();
    }

    unsafe fn is_written(state: &ShflRwState<M>) -> bool {
        state.is_written()
    }

    unsafe fn is_held(state: &ShflRwState<M>) -> bool {
        state.is_held()
    }
}
