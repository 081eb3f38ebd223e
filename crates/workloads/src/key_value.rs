//! # A key-value map behind one lock
//!
//! Threads look up and change keys of one map under one mutex. It is the default workload for mutexes.
//!
//! **Source.** CNA (EuroSys 2019), section 7.1.1, figures 6 to 10: an AVL tree under a single lock. Clients look up,
//! insert and remove random keys, and may work outside the lock between two operations. The figures' setting is
//! [`Mix::PAPER`]: 1,024 keys, about half of them present, 80 % lookups, and equally many inserts and removes.
//! **Departure.** The holder also counts operations, to check that the lock excludes. This count is not reported to a
//! simulated backend, because the paper's map has no such counter. Only the nodes and the line that holds the tree's
//! root are reported.
//!
//! ## Invariants
//! 1. Only the lock's holder touches `state`; any thread may do so when the clients have finished (`&mut self`).

use core::cell::UnsafeCell;

use crate::Workload;
use crate::avl::Avl;
use crate::backend::{Backend, Here, Lines, OwnLine};
use crate::catalogue::Runner;
use crate::lock::{LOST, Lock};
use crate::random::XorShift;

/// The mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Keys are below this; at most 1,000,000.
    pub keys: u32,
    /// Lookups per 100 operations. Half of the others are inserts, half are removes.
    pub lookups: u32,
    /// Work between two operations, outside the lock: about so many ns.
    pub external: u32,
}

impl Mix {
    /// The paper's mix, without external work.
    pub const PAPER: Self = Self { keys: 1024, lookups: 80, external: 0 };
}

/// The workload of the catalogue.
pub(crate) fn start<R: Runner>(mut runner: R) -> R::Outcome {
    let (seed, values) = (runner.setup().seed, &runner.setup().values);
    let mix = Mix { lookups: values.get("lookups"), external: values.get("external"), ..Mix::PAPER };
    let map = KeyValue::<_, R::Backend>::new(runner.lock("the lock"), mix, seed);
    runner.run(map)
}

/// The map with its lock.
pub struct KeyValue<L: Lock, G: Backend = Here> {
    lock: OwnLine<L>,
    mix: Mix,
    state: OwnLine<UnsafeCell<State<G>>>,
}

// SAFETY: invariant 1, which the lock promises.
unsafe impl<L: Lock, G: Backend> Sync for KeyValue<L, G> {}

struct State<G: Backend> {
    map: Avl<G::Shadow>,
    /// Stands for the line of this structure: the root, the free list, the number of keys.
    line: G::Shadow,
    /// How many keys the map must have now. The lock's holder counts; only the lock protects it.
    expected: u32,
    operations: u64,
    wrong: u64,
}

/// The state of one thread. Not shared.
pub struct Client {
    random: XorShift,
}

impl<L: Lock, G: Backend> KeyValue<L, G> {
    /// About half of the keys are present; the seed decides which.
    pub fn new(lock: L, mix: Mix, seed: u64) -> Self {
        let mut map = Avl::with_capacity(mix.keys);
        let mut random = XorShift::new(seed, u32::MAX);
        for key in 0..mix.keys {
            if random.below(2) == 0 {
                map.insert(key, value_of(key));
            }
        }
        let (expected, map) = (map.len(), map.shadowed(G::shadow(mix.keys)));
        let state = State { map, line: G::shadow(1), expected, operations: 0, wrong: 0 };
        Self { lock: OwnLine(lock), mix, state: OwnLine(UnsafeCell::new(state)) }
    }

    /// The number of keys that are present.
    pub fn keys(&mut self) -> u32 {
        self.state.0.get_mut().map.len()
    }
}

impl<L: Lock, G: Backend> KeyValue<L, G> {
    /// The section under the lock.
    #[inline]
    fn perform(&self, key: u32, choice: u32) {
        // SAFETY: invariant 1, since only `section` calls this; the reference ends here.
        let state = unsafe { &mut *self.state.0.get() };
        state.perform(key, choice, self.mix.lookups * 2);
    }
}

impl<L: Lock, G: Backend> Workload for KeyValue<L, G> {
    type Client = Client;

    fn client(&self, seed: u64, number: u32) -> Client {
        Client { random: XorShift::new(seed, number) }
    }

    /// One operation: drawn at random, performed under the lock, and followed by the external work.
    #[inline]
    fn operate(&self, client: &mut Client) {
        let key = client.random.below(self.mix.keys);
        let choice = client.random.below(200);
        G::worked(2 * XorShift::DRAW_NS);
        self.lock.0.section(|| self.perform(key, choice));
        G::work(&mut client.random, self.mix.external);
    }

    /// Checks that every operation was counted, that no wrong value was seen, that the tree is sound, and that its size
    /// matches the inserts and removes.
    fn check(&mut self, operations: u64) -> Result<(), &'static str> {
        let state = self.state.0.get_mut();
        match () {
            () if state.operations != operations => Err(LOST),
            () if state.wrong > 0 => Err("a key had another key's value"),
            () if !state.map.is_sound() => Err("the tree is in disorder: two threads were inside at once"),
            () if state.map.len() != state.expected => Err("keys were lost: two threads were inside at once"),
            () => Ok(()),
        }
    }
}

impl<G: Backend> State<G> {
    /// `choice` is below 200; it means a lookup if it is below `lookups`.
    fn perform(&mut self, key: u32, choice: u32, lookups: u32) {
        self.line.read(0);
        if choice < lookups {
            if self.map.get(key).is_some_and(|value| value != value_of(key)) {
                self.wrong += 1;
            }
        } else {
            let before = self.map.len();
            if choice.is_multiple_of(2) {
                self.expected += u32::from(self.map.insert(key, value_of(key)));
            } else {
                self.expected -= u32::from(self.map.remove(key));
            }
            if self.map.len() != before {
                self.line.write(0);
            }
        }
        self.operations += 1;
    }
}

/// The only value that a key ever has, so that a mixed-up node is noticed.
fn value_of(key: u32) -> u64 {
    !u64::from(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NoLock;

    fn run(mix: Mix, seed: u64, operations: u64) -> KeyValue<NoLock> {
        let shared = KeyValue::new(NoLock, mix, seed);
        let mut client = shared.client(seed, 0);
        (0..operations).for_each(|_| shared.operate(&mut client));
        shared
    }

    #[test]
    fn half_of_the_keys_are_present_before_and_after() {
        for operations in [0, 100_000] {
            let mut shared = run(Mix::PAPER, 7, operations);
            assert_eq!(shared.check(operations), Ok(()));
            assert!((430..600).contains(&shared.keys()), "{}", shared.keys());
        }
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let keys = |seed| {
            let mut shared = run(Mix { external: 3, ..Mix::PAPER }, seed, 5000);
            let map = &shared.state.0.get_mut().map;
            (0..1024).map(|key| map.get(key).is_some()).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }

    #[test]
    fn the_mix_is_what_was_asked_for() {
        let mut lookups_only = run(Mix { lookups: 100, ..Mix::PAPER }, 3, 0);
        let before = lookups_only.keys();
        let mut client = lookups_only.client(3, 0);
        (0..10_000).for_each(|_| lookups_only.operate(&mut client));
        assert_eq!((lookups_only.check(10_000), lookups_only.keys()), (Ok(()), before));
    }

    #[test]
    fn what_went_wrong_is_said() {
        let mut lost = run(Mix::PAPER, 1, 10);
        assert!(lost.check(11).unwrap_err().contains("operations were lost"));
        lost.state.0.get_mut().expected += 1;
        assert!(lost.check(10).unwrap_err().contains("keys were lost"));
    }
}
