//! Buses, costs, translations, and what is counted.

use crate::tags::{Divisor, Tags};
use crate::{Ps, ps};

/// Something that carries one line at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bus {
    pub(super) free_at: Ps,
    pub(super) per_line: Ps,
}

impl Bus {
    pub(super) fn new(gbs: f64) -> Self {
        Self { free_at: 0, per_line: ps(64.0 / gbs) }
    }

    /// When a line that wants to be carried at `now` begins to.
    pub(super) fn carry(&mut self, now: Ps) -> Ps {
        let start = now.max(self.free_at);
        self.free_at = start + self.per_line;
        start
    }
}

/// What was carried, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accesses that the core's own caches served.
    pub hits: u64,
    /// Lines from the same node.
    pub local: u64,
    /// Lines from other nodes.
    pub remote: u64,
    /// Lines from memory: misses of the last-level cache.
    pub memory: u64,
    /// Of these, lines that had gone for one that the same core brought in as had brought them in: a core, whichever
    /// thread ran on it.
    pub displaced_by_itself: u64,
    /// Lines that had gone for one that another core brought in.
    pub displaced_by_others: u64,
    /// Of all of these, accesses of a core that had a copy, and only took those of others away.
    pub upgrades: u64,
    /// Translations that were not known.
    pub walks: u64,
    /// Read-modify-writes, hits among them.
    pub atomics: u64,
}

impl Traffic {
    /// What came after that.
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

/// What accesses cost.
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

/// What cores know of address translation.
pub(super) struct Tlb {
    pub(super) tags: Tags,
    /// By core, the page that it needed last.
    pub(super) latest: Vec<u32>,
    pub(super) lines_per_page: Divisor,
}
