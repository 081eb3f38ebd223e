//! # Statistics of each object
//!
//! This module counts, for each lock object, how often it was acquired and how long threads waited for it. Each shard
//! has an open-addressing table in shared memory: which object, which code used it first, its acquisitions and its
//! waits. An entry is written only by the threads of its shard. So counting does not add to the traffic between CPUs
//! that it is to measure, and hardly lengthens a critical section. The reader sums the entries of an object.
//!
//! An object is identified by its address, its kind and its process. If an address is reused, the new object counts as
//! the same one. An object that finds no room in the table is counted under the place in the program that first used
//! it. If there is no room for the place either, it is counted with all others.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::HashMap;

use crate::clock;

/// Entries for objects in a shard. One bit of [`Objects::pages`] covers [`PAGE`] of them.
const OBJECTS: usize = 4096;
/// Entries for places in a shard.
const PLACES: usize = 256;
/// How many entries are probed before a table counts as full.
const PROBES: usize = 16;
/// Entries that one bit of [`Objects::pages`] covers.
const PAGE: usize = OBJECTS / u64::BITS as usize;
/// In [`Entry::site`]: the caller initialised the object.
const OF_INIT: u64 = 1 << 63;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// A readers-writer lock.
    RwLock,
    /// A semaphore.
    Semaphore,
    /// A spinlock.
    Spinlock,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Mutex, Self::RwLock, Self::Semaphore, Self::Spinlock];

    /// Its name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwLock => "rwlock",
            Self::Semaphore => "semaphore",
            Self::Spinlock => "spinlock",
        }
    }
}

/// What an object is acquired for. Waits are counted separately for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A mutex.
    Mutex,
    /// A readers-writer lock, for reading.
    Read,
    /// A readers-writer lock, for writing.
    Write,
    /// A permit of a semaphore.
    Semaphore,
    /// A spinlock.
    Spinlock,
}

impl Use {
    /// All uses, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Mutex, Self::Read, Self::Write, Self::Semaphore, Self::Spinlock];

    /// The kind of the object.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
            Self::Read | Self::Write => Kind::RwLock,
            Self::Semaphore => Kind::Semaphore,
            Self::Spinlock => Kind::Spinlock,
        }
    }
}

/// An object of a process, in one word that is never 0: process number, address, kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(u64);

impl Key {
    /// Bits of the address.
    const ADDRESS: u32 = 48;
    const KIND: u32 = 2;
    /// Processes with a higher number are counted under this one.
    pub(super) const MOST: u32 = (1 << (u64::BITS - Self::ADDRESS - Self::KIND)) - 1;

    pub(super) fn new(process: u32, kind: Kind, address: usize) -> Self {
        let address = address as u64 & ((1 << Self::ADDRESS) - 1);
        Self(u64::from(process.min(Self::MOST)) << (Self::ADDRESS + Self::KIND) | address << Self::KIND | kind as u64)
    }

    fn process(self) -> u32 {
        (self.0 >> (Self::ADDRESS + Self::KIND)) as u32
    }

    fn address(self) -> u64 {
        self.0 >> Self::KIND & ((1 << Self::ADDRESS) - 1)
    }

    fn kind(self) -> Kind {
        Kind::ALL[self.0 as usize & (Kind::ALL.len() - 1)]
    }

    /// Fibonacci hashing, into a table of `size`, which is a power of two.
    fn place(self, size: usize) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - size.ilog2())) as usize
    }
}

/// The counts of an object by the threads of a shard.
#[repr(C, align(64))]
pub(super) struct Entry {
    key: AtomicU64,
    /// Where in the program it was first used, or initialised ([`OF_INIT`]); 0 if unknown.
    site: AtomicU64,
    /// When it was first used or initialised.
    seen: AtomicU64,
    pub(super) acquired: AtomicU64,
    pub(super) contended: AtomicU64,
    waited_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Entry {
    /// Counts a wait.
    pub(super) fn waited(&self, ns: u64) {
        self.waited_ns.fetch_add(ns, Relaxed);
        self.longest_ns.fetch_max(ns, Relaxed);
    }

    fn begin(&self, site: u64) {
        self.site.store(site, Relaxed);
        self.seen.store(clock::now(), Relaxed);
    }

    fn is_used(&self) -> bool {
        self.acquired.load(Relaxed) > 0 || self.contended.load(Relaxed) > 0
    }
}

/// The result of looking for a key.
enum Found<'a> {
    Known(&'a Entry),
    /// A new entry, at this index.
    Fresh(&'a Entry, usize),
    NoRoom,
}

/// Finds or makes the entry of a key, in a table whose size is a power of two. If there is no room, it reuses an entry
/// that was initialised but never used.
fn find(table: &[Entry], key: Key) -> Found<'_> {
    let first = key.place(table.len());
    let places = || (first..first + PROBES).map(|place| place % table.len());
    for place in places() {
        let entry = &table[place];
        let mut known = entry.key.load(Relaxed);
        if known == 0 {
            match entry.key.compare_exchange(0, key.0, Relaxed, Relaxed) {
                Ok(_) => return Found::Fresh(entry, place),
                Err(winner) => known = winner,
            }
        }
        if known == key.0 {
            return Found::Known(entry);
        }
    }
    for place in places().filter(|&place| !table[place].is_used()) {
        let entry = &table[place];
        let idle = entry.key.load(Relaxed);
        if entry.key.compare_exchange(idle, key.0, Relaxed, Relaxed).is_ok() {
            return Found::Fresh(entry, place);
        }
    }
    Found::NoRoom
}

/// The counts of all objects by the threads of a shard.
#[repr(C)]
pub(super) struct Objects {
    /// Which parts of `objects` were ever used. The reader touches no other memory.
    pages: AtomicU64,
    objects: [Entry; OBJECTS],
    /// By the place in the program that first used or initialised an object.
    places: [Entry; PLACES],
    others: Entry,
}

impl Objects {
    /// The entry of an object that a caller at `site` (0: unknown) uses or initialises, and whether it is new.
    pub(super) fn entry(&self, key: Key, site: usize, of_init: bool) -> (&Entry, bool) {
        let site = site as u64 | if of_init { OF_INIT } else { 0 };
        match find(&self.objects, key) {
            Found::Known(entry) => {
                if of_init && !entry.is_used() {
                    entry.begin(site);
                }
                (entry, false)
            }
            Found::Fresh(entry, place) => {
                entry.begin(site);
                self.pages.fetch_or(1 << (place / PAGE), Relaxed);
                (entry, true)
            }
            Found::NoRoom => {
                let key = Key::new(key.process(), key.kind(), (site & !OF_INIT) as usize);
                match find(&self.places, key) {
                    Found::Known(entry) => (entry, false),
                    Found::Fresh(entry, _) => {
                        entry.begin(site);
                        (entry, true)
                    }
                    Found::NoRoom => (&self.others, false),
                }
            }
        }
    }

    /// Calls `f` with each entry that is in use.
    fn for_each(&self, mut f: impl FnMut(Owner, &Entry)) {
        let pages = self.pages.load(Relaxed);
        let touched = self.objects.chunks(PAGE).enumerate().filter(|(page, _)| pages & 1 << page != 0);
        // Includes entries that are unused in this shard: the thread that initialised an object may be of another shard
        // than those that use it.
        for entry in touched.flat_map(|(_, entries)| entries) {
            if let key @ 1.. = entry.key.load(Relaxed) {
                f(Owner::Object(Key(key)), entry);
            }
        }
        // Places and others are used only if objects found no room.
        if pages != 0 {
            let places = self.places.iter().filter(|entry| entry.is_used());
            places.for_each(|entry| f(Owner::Place(Key(entry.key.load(Relaxed))), entry));
            if self.others.is_used() {
                f(Owner::Others, &self.others);
            }
        }
    }
}

/// What an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Object(Key),
    Place(Key),
    Others,
}

/// Where in the program an object was first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address that the call returns to.
    pub address: u64,
    /// Whether the call initialised the object; otherwise it was the first that acquired it.
    pub of_init: bool,
}

/// The counts of one object, or of several objects that had no entry of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectTotals {
    /// The number of its process, in the order in which processes started; [`None`] for objects of several processes.
    pub process: Option<u32>,
    /// Its kind; [`None`] for objects of several kinds.
    pub kind: Option<Kind>,
    /// Its address; [`None`] for several objects that the same place in the program first used, or for all others
    /// together.
    pub address: Option<u64>,
    /// The code that used it first.
    pub site: Option<Site>,
    /// How often it was acquired.
    pub acquired: u64,
    /// How often it was found held, or without a permit.
    pub contended: u64,
    /// How long threads waited for it in total, in ns.
    pub waited_ns: u64,
    /// The longest wait, in ns.
    pub longest_ns: u64,
}

/// Sums per object.
#[derive(Default)]
pub(super) struct Sums(HashMap<Owner, (ObjectTotals, u64)>);

impl Sums {
    pub(super) fn add(&mut self, objects: &Objects) {
        objects.for_each(|owner, entry| self.add_entry(owner, entry));
    }

    fn add_entry(&mut self, owner: Owner, entry: &Entry) {
        let (key, address) = match owner {
            Owner::Object(key) => (Some(key), Some(key.address())),
            Owner::Place(key) => (Some(key), None),
            Owner::Others => (None, None),
        };
        let nothing = ObjectTotals {
            process: key.map(Key::process),
            kind: key.map(Key::kind),
            address,
            site: None,
            acquired: 0,
            contended: 0,
            waited_ns: 0,
            longest_ns: 0,
        };
        let (sum, seen) = self.0.entry(owner).or_insert((nothing, u64::MAX));
        let site = entry.site.load(Relaxed);
        let (address, of_init) = (site & !OF_INIT, site & OF_INIT != 0);
        // Prefer the site that initialised it; otherwise the first that used it.
        let here = entry.seen.load(Relaxed);
        let rank = |of_init: bool, seen: u64| (!of_init, seen);
        if address != 0 && sum.site.is_none_or(|known| rank(of_init, here) < rank(known.of_init, *seen)) {
            (sum.site, *seen) = (Some(Site { address, of_init }), here);
        }
        sum.acquired += entry.acquired.load(Relaxed);
        sum.contended += entry.contended.load(Relaxed);
        sum.waited_ns += entry.waited_ns.load(Relaxed);
        sum.longest_ns = sum.longest_ns.max(entry.longest_ns.load(Relaxed));
    }

    /// The objects that were used, sorted by total waiting time, then by acquisitions, then by address.
    pub(super) fn sorted(self) -> Vec<ObjectTotals> {
        let sums = self.0.into_values().map(|(sum, _)| sum);
        let mut all: Vec<ObjectTotals> = sums.filter(|sum| sum.acquired > 0 || sum.contended > 0).collect();
        all.sort_by_key(|sum| (u64::MAX - sum.waited_ns, u64::MAX - sum.acquired, sum.process, sum.address));
        all
    }
}

const _: () = assert!(size_of::<Entry>() == 64 && OBJECTS.is_power_of_two() && PLACES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    /// All-zero, like shared memory.
    fn objects() -> Box<Objects> {
        // SAFETY: all-zero atomics are valid.
        unsafe { Box::<Objects>::new_zeroed().assume_init() }
    }

    fn sums(objects: &[&Objects]) -> Vec<ObjectTotals> {
        let mut sums = Sums::default();
        objects.iter().for_each(|objects| sums.add(objects));
        sums.sorted()
    }

    fn acquire(objects: &Objects, address: usize, site: usize) {
        objects.entry(Key::new(1, Kind::Mutex, address), site, false).0.acquired.fetch_add(1, Relaxed);
    }

    #[test]
    fn keys_keep_what_they_are_made_of() {
        for kind in Kind::ALL {
            let key = Key::new(7, kind, 0x7fff_1234_5679);
            assert_eq!((key.process(), key.kind(), key.address()), (7, kind, 0x7fff_1234_5679));
        }
        assert_eq!(Key::new(u32::MAX, Kind::Mutex, 8).process(), Key::MOST);
    }

    #[test]
    fn an_object_is_added_up_over_shards_and_the_longest_waits_come_first() {
        let shards = [objects(), objects()];
        for shard in &shards {
            acquire(shard, 0x1000, 0x10);
            let entry = shard.entry(Key::new(1, Kind::Semaphore, 0x1000), 0x20, false).0;
            entry.contended.fetch_add(1, Relaxed);
            entry.waited(5);
            entry.waited(7);
        }
        let sums = sums(&[&*shards[0], &*shards[1]]);
        assert_eq!(sums.len(), 2);
        let [first, second] = [sums[0], sums[1]];
        assert_eq!((first.kind, first.contended, first.waited_ns, first.longest_ns), (Some(Kind::Semaphore), 2, 24, 7));
        assert_eq!((second.kind, second.acquired, second.address), (Some(Kind::Mutex), 2, Some(0x1000)));
    }

    #[test]
    fn who_initialised_an_object_comes_before_who_used_it_first() {
        let shards = [objects(), objects()];
        acquire(&shards[0], 0x1000, 0x10);
        acquire(&shards[1], 0x1000, 0x20);
        acquire(&shards[1], 0x2000, 0x30);
        shards[1].entry(Key::new(1, Kind::Mutex, 0x3000), 0x40, true);
        acquire(&shards[0], 0x3000, 0x50);
        shards[1].entry(Key::new(1, Kind::Mutex, 0x4000), 0x40, true);
        acquire(&shards[1], 0x4000, 0x60);
        shards[1].entry(Key::new(1, Kind::Mutex, 0x5000), 0x40, true);
        let sums = sums(&[&*shards[0], &*shards[1]]);
        let site = |address: u64| sums.iter().find(|sum| sum.address == Some(address)).unwrap().site.unwrap();
        assert_eq!(site(0x1000), Site { address: 0x10, of_init: false });
        for address in [0x3000, 0x4000] {
            assert_eq!(site(address), Site { address: 0x40, of_init: true });
        }
        // Initialised but never used: not reported.
        assert_eq!(sums.len(), 4);
    }

    #[test]
    fn what_has_no_room_is_counted_by_place_and_nothing_is_lost() {
        let objects = objects();
        let many = 4 * OBJECTS;
        for object in 0..many {
            acquire(&objects, 0x1_0000 + 48 * object, 0x500);
        }
        let sums = sums(&[&*objects]);
        assert_eq!(sums.iter().map(|sum| sum.acquired).sum::<u64>(), many as u64);
        let crowd = sums.iter().find(|sum| sum.address.is_none()).expect("there is no room for so many");
        assert_eq!(crowd.site.map(|site| site.address), Some(0x500));
        assert!(crowd.acquired >= (many - OBJECTS) as u64);
    }

    #[test]
    fn objects_that_are_only_initialised_keep_no_room() {
        let objects = objects();
        for object in 0..4 * OBJECTS {
            objects.entry(Key::new(1, Kind::Mutex, 0x1_0000 + 48 * object), 0x500, true);
        }
        acquire(&objects, 0x900_0000, 0x10);
        assert_eq!(sums(&[&*objects])[0].address, Some(0x900_0000));
    }
}
