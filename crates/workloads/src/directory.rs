//! # A directory that all threads list
//!
//! Threads read shared data under a readers-writer lock, and rarely or never write. Use it to measure readers-writer
//! locks.
//!
//! **Source.** Scaling Synchronization Primitives (Kashyap's thesis defence on SOSP 2019's ShflLocks), slides 79 and
//! 80. Each thread enumerates the files of a shared directory, which takes the directory's lock for reading; no thread
//! writes. The slides say no more, so the number of files ([`Files::USUAL`]) is assumed. As an option, threads also
//! replace files from time to time, under the lock for writing.
//!
//! ## Invariants
//! 1. Only the thread that holds the lock for writing changes the entries and their sum. They are atomic because the
//!    lock under test may not exclude. If a list adds up to another sum than the recorded one, it has seen a change.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Workload;
use crate::backend::{Backend, Here, Lines, OwnLine};
use crate::catalogue::Runner;
use crate::lock::{LOST, RwLock};
use crate::random::XorShift;

/// The number of files, and the mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// The number of files; at least one. Each is a cache line.
    pub count: u32,
    /// Lists per 100 operations. The other operations replace a file.
    pub lists: u32,
}

impl Files {
    /// 64 files, which are only listed.
    pub const USUAL: Self = Self { count: 64, lists: 100 };
}

/// The workload of the catalogue.
pub(crate) fn start<R: Runner>(mut runner: R) -> R::Outcome {
    let files = Files { lists: runner.setup().values.get("lookups"), ..Files::USUAL };
    let directory = Directory::<_, R::Backend>::new(runner.lock("the lock"), files);
    runner.run(directory)
}

/// The directory with its lock.
pub struct Directory<L: RwLock, G: Backend = Here> {
    lock: OwnLine<L>,
    files: Files,
    /// The recorded sum of the entries, which is updated with each replacement.
    sum: OwnLine<AtomicU64>,
    entries: Vec<OwnLine<AtomicU64>>,
    /// Stands for the sum (line 0) and the entries.
    shadow: G::Shadow,
    /// The totals of all clients.
    done: OwnLine<Done<AtomicU64>>,
}

/// Counts of operations.
#[derive(Debug, Default)]
struct Done<T> {
    lists: T,
    replaced: T,
    /// Lists that saw a change.
    torn: T,
}

/// The state of one thread. Not shared.
pub struct Client {
    random: XorShift,
    done: Done<u64>,
}

impl<L: RwLock, G: Backend> Directory<L, G> {
    /// A directory with all its files.
    pub fn new(lock: L, files: Files) -> Self {
        Self {
            lock: OwnLine(lock),
            files,
            sum: OwnLine::default(),
            entries: (0..files.count).map(|_| OwnLine::default()).collect(),
            shadow: G::shadow(1 + files.count),
            done: OwnLine::default(),
        }
    }

    /// Whether the entries add up to the recorded sum. `visit` is called with each line before it is read.
    fn adds_up(&self, visit: impl Fn(u32)) -> bool {
        visit(0);
        let sum = self.sum.0.load(Relaxed);
        let add = |rest: u64, (line, entry): (u32, &OwnLine<AtomicU64>)| {
            visit(line);
            rest.wrapping_sub(entry.0.load(Relaxed))
        };
        (1..).zip(&self.entries).fold(sum, add) == 0
    }

    fn replace(&self, file: u32) {
        let add = |line: u32, word: &OwnLine<AtomicU64>| {
            self.shadow.write(line);
            // In two steps: if another thread is inside, its change or this one is lost.
            word.0.store(word.0.load(Relaxed) + 1, Relaxed);
        };
        add(1 + file, &self.entries[file as usize]);
        add(0, &self.sum);
    }
}

impl<L: RwLock, G: Backend> Workload for Directory<L, G> {
    type Client = Client;

    fn client(&self, seed: u64, number: u32) -> Client {
        Client { random: XorShift::new(seed, number), done: Done::default() }
    }

    #[inline]
    fn operate(&self, client: &mut Client) {
        let (choice, file) = (client.random.below(100), client.random.below(self.files.count));
        G::worked(2 * XorShift::DRAW_NS);
        if choice < self.files.lists {
            let mut whole = false;
            self.lock.0.shared(|| whole = self.adds_up(|line| self.shadow.read(line)));
            client.done.lists += 1;
            client.done.torn += u64::from(!whole);
        } else {
            self.lock.0.section(|| self.replace(file));
            client.done.replaced += 1;
        }
    }

    fn retire(&self, client: Client) {
        let (all, its) = (&self.done.0, client.done);
        for (sum, part) in [(&all.lists, its.lists), (&all.replaced, its.replaced), (&all.torn, its.torn)] {
            sum.fetch_add(part, Relaxed);
        }
    }

    /// Checks that no list saw a change, and that no change was lost.
    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        let Done { lists, replaced, torn } = &self.done.0;
        let replaced = replaced.load(Relaxed);
        match () {
            () if torn.load(Relaxed) > 0 => Err("a list saw a change: a reader and a writer were inside at once"),
            () if !self.adds_up(|_| ()) || self.sum.0.load(Relaxed) != replaced => Err(LOST),
            () if lists.load(Relaxed) + replaced != operations => Err("operations were not counted"),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;
    use crate::recorder::{Ledger, Recorder};

    const MIXED: Files = Files { count: 8, lists: 50 };

    #[test]
    fn a_list_visits_every_file() {
        let mut directory: Directory<NoLock, Recorder> = Directory::new(NoLock, Files::USUAL);
        let mut client = directory.client(1, 0);
        Ledger::take();
        (0..10).for_each(|_| directory.operate(&mut client));
        let worked = u64::from(20 * XorShift::DRAW_NS);
        assert_eq!(Ledger::take(), Ledger { reads: 650, worked, ..Ledger::default() });
        directory.retire(client);
        assert_eq!(directory.check(10), Ok(()));
        assert!(directory.check(11).is_err());
    }

    #[test]
    fn what_is_lost_or_torn_is_noticed() {
        let mut directory: Directory<NoLock> = Directory::new(NoLock, MIXED);
        let mut client = directory.client(1, 0);
        (0..100).for_each(|_| directory.operate(&mut client));
        assert!((20..80).contains(&client.done.lists), "{:?}", client.done);
        // As if a writer were half way.
        directory.sum.0.fetch_add(1, Relaxed);
        while client.done.torn == 0 {
            directory.operate(&mut client);
        }
        directory.sum.0.fetch_sub(1, Relaxed);
        let operations = client.done.lists + client.done.replaced;
        directory.retire(client);
        assert!(directory.check(operations).is_err_and(|error| error.contains("a reader and a writer")));
        directory.done.0.torn = AtomicU64::new(0);
        assert_eq!(directory.check(operations), Ok(()));
        // As if two writers had been inside at once.
        directory.sum.0.fetch_sub(1, Relaxed);
        directory.entries[0].0.fetch_sub(1, Relaxed);
        assert_eq!(directory.check(operations), Err(LOST));
    }
}
