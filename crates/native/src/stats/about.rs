//! # The object that the calling thread is using
//!
//! A lock's events are about the lock at an address ([`about`](fn@about)). Where it serves a pthread object, its caller
//! knows more: it calls [`begin`] before and [`Scope::end`] after each operation that may acquire something. Events and
//! waits in between are counted for that object, whichever lock serves it; all others for the lock itself, which a
//! program has embedded. Nothing here has a destructor. A cancelled thread leaves a stale subject, which its next call
//! replaces.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::event::Event;

use super::objects::{Entry, Key, Kind, Use};
use super::{PROCESS, Shard, attached, count_wait, count_wait_in_vain, shard};
use crate::clock;
use crate::local::zeroed_per_thread;

/// The object that a thread is using. All-zero: none.
#[derive(Clone, Copy)]
struct Subject {
    /// The lock whose function the thread is in; 0: none.
    lock: usize,
    /// Whether a caller of the lock has said what the object is ([`begin`]).
    known: bool,
    /// The object's entry.
    entry: Option<&'static Entry>,
    /// The index in [`Use::ALL`] of the purpose.
    what: usize,
    /// When the thread found that it must wait; 0 if it is not waiting.
    since: u64,
}

zeroed_per_thread! {
    static SUBJECT: Cell<Subject> = "flashlock_native_subject";
}

/// An operation that may acquire an object.
pub struct Scope {
    before: Subject,
}

/// Says that the calling thread is about to acquire the object at this address, and will return to `site` (0: unknown).
pub fn begin(what: Use, address: usize, site: usize) -> Scope {
    let before = SUBJECT.with(Cell::get);
    if let Some(shard) = shard() {
        let entry = Some(entry(shard, what.kind(), address, site, false));
        let known = Subject { lock: before.lock, known: true, entry, what: what as usize, since: 0 };
        SUBJECT.with(|subject| subject.set(known));
    }
    Scope { before }
}

/// Says that the calling thread's events are about the lock at this address from now on. Returns what they were about.
pub fn about(lock: usize) -> usize {
    let before = SUBJECT.with(Cell::get);
    let nothing_known = Subject { lock, known: false, entry: None, what: 0, since: 0 };
    SUBJECT.with(|subject| subject.set(if before.known { Subject { lock, ..before } } else { nothing_known }));
    before.lock
}

/// What a lock is used for that reports this event, if that is counted for each lock.
fn purpose(event: Event) -> Option<Use> {
    match event {
        Event::Acquire | Event::Contended => Some(Use::Mutex),
        Event::RwRead => Some(Use::Read),
        Event::RwWrite | Event::RwContended => Some(Use::Write),
        Event::SemAcquire | Event::SemQueued => Some(Use::Semaphore),
        Event::SpinAcquire | Event::SpinContended => Some(Use::Spinlock),
        _ => None,
    }
}

/// Says that a caller which will return to `site` is initialising an object.
pub fn made(kind: Kind, address: usize, site: usize) {
    if let Some(shard) = shard() {
        entry(shard, kind, address, site, true);
    }
}

fn entry(shard: &'static Shard, kind: Kind, address: usize, site: usize, of_init: bool) -> &'static Entry {
    let process = PROCESS.load(Relaxed);
    let (entry, fresh) = shard.objects.entry(Key::new(process, kind, address), site, of_init);
    if fresh
        && site != 0
        && let Some(block) = attached()
    {
        block.modules.note_code_at(process, site);
    }
    entry
}

impl Scope {
    /// Ends the operation. If the thread had to wait, counts the wait, unless the lock has already reported it.
    pub fn end(self, acquired: bool) {
        let Subject { since, .. } = SUBJECT.with(Cell::get);
        if since != 0 {
            let count = if acquired { count_wait } else { count_wait_in_vain };
            count(clock::now().saturating_sub(since));
        }
        SUBJECT.with(|subject| subject.set(self.before));
    }
}

/// Counts an event for the object, if it concerns the object.
pub(super) fn count(event: Event, shard: &'static Shard) {
    let Some(what) = purpose(event) else { return };
    let mut subject = SUBJECT.with(Cell::get);
    if subject.entry.is_none() && subject.lock != 0 {
        subject.entry = Some(entry(shard, what.kind(), subject.lock, 0, false));
        subject.what = what as usize;
        SUBJECT.with(|cell| cell.set(subject));
    }
    let Some(entry) = subject.entry else { return };
    match event {
        Event::Acquire | Event::RwRead | Event::RwWrite | Event::SemAcquire | Event::SpinAcquire => {
            entry.acquired.fetch_add(1, Relaxed);
        }
        _ => {
            entry.contended.fetch_add(1, Relaxed);
            if subject.since == 0 {
                shard.waiting[subject.what].fetch_add(1, Relaxed);
                SUBJECT.with(|cell| cell.set(Subject { since: clock::now(), ..subject }));
            }
        }
    }
}

/// Ends a wait; returns what it was for.
pub(super) fn waited(ns: u64, shard: &Shard) -> Use {
    let subject = SUBJECT.with(Cell::get);
    if let Some(entry) = subject.entry {
        entry.waited(ns);
    }
    if subject.since != 0 {
        shard.waiting[subject.what].fetch_sub(1, Relaxed);
        SUBJECT.with(|cell| cell.set(Subject { since: 0, ..subject }));
    }
    Use::ALL[subject.what]
}

#[cfg(test)]
mod tests {
    use super::super::tests::block;
    use super::*;
    use crate::{Counting, Native};
    use flashlock_locks::mutex::queue::Mcs;
    use flashlock_locks::parts::raw::Raw;
    use flashlock_locks::parts::wait::Park;

    #[test]
    fn what_happens_in_a_call_is_the_objects() {
        let block = block();
        let outer = begin(Use::Write, 0x7_1000, 0x11);
        super::super::count(Event::RwContended);
        // A signal handler uses another object, and does not wait.
        let inner = begin(Use::Semaphore, 0x7_2000, 0x12);
        super::super::count(Event::SemAcquire);
        inner.end(true);
        super::super::count(Event::RwWrite);
        std::thread::sleep(std::time::Duration::from_millis(2));
        outer.end(true);
        super::super::count(Event::RwWrite);
        let of = |address| block.objects().into_iter().find(|sum| sum.address == Some(address)).unwrap();
        let (lock, semaphore) = (of(0x7_1000), of(0x7_2000));
        assert_eq!((lock.kind, lock.acquired, lock.contended), (Some(Kind::RwLock), 1, 1));
        assert!(lock.waited_ns >= 2_000_000 && lock.longest_ns == lock.waited_ns, "{lock:?}");
        assert_eq!((semaphore.acquired, semaphore.contended, semaphore.waited_ns), (1, 0, 0));
        assert_eq!(block.totals().waits_of(Use::Write).iter().sum::<u64>(), 1);
    }

    #[test]
    fn embedded_locks_are_counted_each() {
        let block = block();
        let locks = [const { Raw::<Native<Counting>, Mcs<Park>>::FREE }; 2];
        for lock in [&locks[0], &locks[1], &locks[1]] {
            lock.lock();
            // SAFETY: this thread holds it.
            unsafe { lock.unlock() };
        }
        let of = |lock: &Raw<_, _>| {
            let start = core::ptr::from_ref(lock).addr() as u64;
            let is_inside = |address| (start..start + size_of_val(lock) as u64).contains(&address);
            block.objects().into_iter().find(|sum| sum.address.is_some_and(is_inside)).map(|sum| sum.acquired)
        };
        assert_eq!([of(&locks[0]), of(&locks[1])], [Some(1), Some(2)]);
    }

    #[test]
    fn a_wait_is_counted_once_and_only_its_time_if_it_was_in_vain() {
        let block = block();
        let waits = || block.totals().waits_of(Use::Read).iter().sum::<u64>();
        let longest = || block.objects().iter().find(|sum| sum.address == Some(0x7_3000)).unwrap().longest_ns;
        let notified = begin(Use::Read, 0x7_3000, 0);
        super::super::count(Event::RwContended);
        count_wait(1_000);
        notified.end(true);
        assert_eq!(waits(), 1);
        let in_vain = begin(Use::Read, 0x7_3000, 0);
        super::super::count(Event::RwContended);
        assert_eq!(block.totals().waiting(Use::Read), 1);
        std::thread::sleep(std::time::Duration::from_millis(2));
        in_vain.end(false);
        assert_eq!((waits(), block.totals().waiting(Use::Read)), (1, 0));
        assert!(longest() >= 2_000_000 && block.totals().waited_ns(Use::Read) == 1_000 + longest());
    }
}
