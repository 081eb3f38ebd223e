//! Buses, costs, address translation, and counts.

use crate::tags::{Divisor, Tags};
use crate::{Ps, ps};

/// A bus, which carries one line at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bus {
    pub(super) free_at: Ps,
    pub(super) per_line: Ps,
}

impl Bus {
    pub(super) fn new(gbs: f64) -> Self {
        Self { free_at: 0, per_line: ps(64.0 / gbs) }
    }

    /// When the bus starts to carry a line that arrives at `now`.
    pub(super) fn carry(&mut self, now: Ps) -> Ps {
        let start = now.max(self.free_at);
        self.free_at = start + self.per_line;
        start
    }
}

/// Counts of accesses and carried lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accesses that the core's own caches served.
    pub hits: u64,
    /// Lines from the same node.
    pub local: u64,
    /// Lines from other nodes.
    pub remote: u64,
    /// Lines from memory: misses in the last-level cache.
    pub memory: u64,
    /// Of these, lines that had been displaced by a line of the core that had brought them in. It counts cores, not
    /// threads.
    pub displaced_by_itself: u64,
    /// Of these, lines that had been displaced by a line of another core.
    pub displaced_by_others: u64,
    /// Of all of these, accesses of a core that had a copy and only invalidated the copies of others.
    pub upgrades: u64,
    /// Address translations that were not in the TLB.
    pub walks: u64,
    /// Read-modify-writes, including hits.
    pub atomics: u64,
}

impl Traffic {
    /// The difference from an earlier count.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            hits: self.hits - before.hits,
            local: self.local - before.local,
            remote: self.remote - before.remote,
            memory: self.memory - before.memory,
            displaced_by_itself: self.displaced_by_itself - before.displaced_by_itself,
            displaced_by_others: self.displaced_by_others - before.displaced_by_others,
            upgrades: self.upgrades - before.upgrades,
            walks: self.walks - before.walks,
            atomics: self.atomics - before.atomics,
        }
    }
}

/// The costs of accesses.
pub(super) struct Costs {
    pub(super) l1: Ps,
    pub(super) l2: Ps,
    pub(super) rmw: Ps,
    pub(super) store: Ps,
    pub(super) line: Ps,
    pub(super) walk: Ps,
    pub(super) llc: Vec<Ps>,
    pub(super) transfer: Vec<Ps>,
    pub(super) clean: Vec<Ps>,
    pub(super) upgrade: Vec<Ps>,
    pub(super) dram: Vec<Ps>,
}

/// The TLBs of all cores.
pub(super) struct Tlb {
    pub(super) tags: Tags,
    /// By core: the page of its latest access.
    pub(super) latest: Vec<u32>,
    pub(super) lines_per_page: Divisor,
}
