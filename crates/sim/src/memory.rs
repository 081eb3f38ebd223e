//! # Cache coherence
//!
//! It tracks which core has which line, and what an access costs for that reason. It holds no data: a word's value is
//! in the program's own memory, and changes when the access is served.
//!
//! **Model.** Each core has a private cache (two levels, shared by its hardware threads). Each node has a last-level
//! cache and memory. A line is in one of the states of MESI. The state is kept in one place: the exclusive owner, if
//! there is one; the cores with a copy; the last-level caches with a copy. An access that the core's copy allows is a
//! *hit*. All other accesses go to the line's *server*. Each line has one, which serves accesses one by one in order of
//! arrival (stores: in order of issue, see [`access`](crate::access)). An exclusive copy travels for as long as a
//! transfer takes, and no other access is served meanwhile. Copies of a shared line are given out as fast as its home
//! can.
//!
//! | the line is … | read | write, read-modify-write |
//! |---|---|---|
//! | modified in another core | `transfer` from there; then both share it | `transfer`; then ours |
//! | exclusive in another core, not modified | `clean`; then both share it | `transfer`; then ours |
//! | in our last-level cache | near `llc` | `upgrade` of the farthest other copy, and `llc` if we have none |
//! | in another last-level cache | far `llc` | the same |
//! | nowhere | `dram` of its home | `dram` of its home |
//!
//! A line that is read while no other cache has it becomes exclusive at once. A line's home is the node that touched it
//! first.
//!
//! ## Invariants
//! 1. If a line has an owner, no other core has a copy.
//! 2. If a core has a copy, the last-level cache of its node has one too, if caches are inclusive. Otherwise that cache
//!    may drop the line while a core of the node has it.
//! 3. A line's server never becomes free earlier than it was due before.

mod lines;
mod parts;
mod sets;

pub use parts::Traffic;

use crate::description::{Cache, Description, TLB_WAYS};
use crate::shape::Shape;
use crate::tags::{Divisor, Tags, Victim};
use crate::{Ps, ps};
use lines::{Line, Lines, Lost};
use parts::{Bus, Costs, Tlb};

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    /// A read-modify-write.
    Rmw,
}

impl Access {
    fn writes(self) -> bool {
        self != Self::Load
    }
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the same node: its last-level cache or one of its cores.
    Local,
    /// From another node.
    Remote,
    /// From memory.
    Memory,
}

/// The outcome of an access that was not a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// When the access is done.
    pub(crate) done: Ps,
    /// How long it waited for other accesses.
    pub(crate) queued: Ps,
    pub(crate) source: Source,
}

/// The memory of a machine, with all its caches.
pub(crate) struct Memory {
    costs: Costs,
    lines: Lines,
    l1: Tags,
    l2: Tags,
    llc: Tags,
    tlb: Tlb,
    llc_bus: Vec<Bus>,
    dram_bus: Vec<Bus>,
    link: Vec<Bus>,
    inclusive: bool,
    pub(crate) traffic: Traffic,
}

impl Memory {
    /// The size of the record of a touched line, in bytes.
    pub(crate) const LINE_BYTES: u64 = size_of::<Line>() as u64;

    pub(crate) fn new(machine: &Description, shape: &Shape) -> Self {
        let latency = &machine.latency_ns;
        let list = |ns: &[f64]| ns.iter().map(|&ns| ps(ns)).collect();
        let own = |cache: Cache| Tags::of_cores(shape.cores, cache.kib * 16, cache.ways);
        let llc = machine.cache.llc;
        let nodes = 0..shape.nodes;
        let tlb = machine.cache.tlb;
        Self {
            costs: Costs {
                l1: ps(latency.l1),
                l2: ps(latency.l2),
                rmw: ps(latency.rmw),
                store: ps(latency.store),
                line: ps(machine.bandwidth.line_ns),
                walk: ps(tlb.walk_ns),
                llc: list(&latency.llc),
                transfer: list(&latency.transfer),
                clean: list(&latency.clean),
                upgrade: list(&latency.upgrade),
                dram: list(&latency.dram),
            },
            lines: Lines::default(),
            l1: own(machine.cache.l1),
            l2: own(machine.cache.l2),
            llc: Tags::shared(shape.nodes, llc.kib * 16, llc.ways),
            tlb: Tlb {
                tags: Tags::of_cores(shape.cores, tlb.entries, TLB_WAYS),
                latest: vec![u32::MAX; shape.cores as usize],
                lines_per_page: Divisor::new(tlb.page_kib * 16),
            },
            llc_bus: nodes.clone().map(|_| Bus::new(machine.bandwidth.llc_gbs)).collect(),
            dram_bus: nodes.clone().map(|_| Bus::new(machine.bandwidth.dram_gbs)).collect(),
            link: nodes.map(|_| Bus::new(machine.bandwidth.link_gbs)).collect(),
            inclusive: machine.cache.inclusive,
            traffic: Traffic::default(),
        }
    }

    /// Adds `lines` lines. Returns the number of the first.
    pub(crate) fn extend(&mut self, lines: u32) -> u32 {
        self.lines.extend(lines)
    }

    /// Whether the core has a copy.
    pub(crate) fn has_copy(&self, core: u32, line: u32) -> bool {
        self.lines.has_copy(line, core)
    }

    /// A hint that the core will soon access the line.
    #[inline]
    pub(crate) fn expect(&self, shape: &Shape, core: u32, line: u32) {
        self.lines.expect(line);
        self.l1.expect(core, line);
        self.l2.expect(core, line);
        self.llc.expect(shape.node(core), line);
    }

    /// A hint that the core has asked for the line, and will soon drop others for it.
    #[inline]
    pub(crate) fn expect_victims(&self, shape: &Shape, core: u32, line: u32) {
        let victims = [self.llc.next_victim(shape.node(core), line), self.l2.next_victim(core, line)];
        victims.into_iter().flatten().for_each(|victim| self.lines.expect(victim));
    }

    /// The cost of the access if it is a hit, which then takes place.
    #[inline]
    pub(crate) fn hit(&mut self, core: u32, line: u32, access: Access) -> Option<Ps> {
        if access.writes() {
            if !self.lines[line].is_owned_by(core) {
                return None;
            }
            self.lines[line].soil();
        } else if !self.lines.has_copy(line, core) {
            return None;
        }
        self.traffic.hits += 1;
        let near = if self.l1.keep(core, line) {
            self.costs.l1
        } else {
            self.l2.touch(core, line);
            self.costs.l2
        };
        let walk = self.translate(core, line);
        Some(
            walk + match access {
                Access::Load => near,
                Access::Store => self.costs.store,
                Access::Rmw => self.costs.rmw + near,
            },
        )
    }

    /// The cost of translating the address.
    #[inline]
    fn translate(&mut self, core: u32, line: u32) -> Ps {
        let tlb = &mut self.tlb;
        let page = tlb.lines_per_page.quotient(line);
        if std::mem::replace(&mut tlb.latest[core as usize], page) == page || tlb.tags.keep(core, page) {
            return 0;
        }
        self.traffic.walks += 1;
        self.costs.walk
    }

    /// How long a request that is not a hit travels to where it is served.
    #[inline]
    pub(crate) fn travel(&self, shape: &Shape, core: u32, line: u32, access: Access) -> Ps {
        self.way(shape, core, &self.lines[line], access)
    }

    /// The same for a line with this record.
    #[inline]
    fn way(&self, shape: &Shape, core: u32, state: &Line, access: Access) -> Ps {
        let node = shape.node(core);
        let ours = 1 << node;
        let here = match state.owner() {
            Some(owner) => shape.node(owner) == node,
            None if access.writes() => state.llc & !ours == 0,
            None => state.llc & ours != 0,
        };
        let place = state.home().filter(|_| !here).unwrap_or(node);
        self.costs.llc[shape.distance(node, place)] / 2
    }

    /// An access that is not a hit arrives where it is served, after its travel.
    pub(crate) fn serve(&mut self, shape: &Shape, now: Ps, core: u32, line: u32, access: Access) -> Served {
        let (mut state, node) = (self.lines[line], shape.node(core));
        let travelled = self.way(shape, core, &state, access);
        state.settle_at(node);
        self.traffic.upgrades += u64::from(self.lines.has_copy(line, core));
        let (latency, from) = self.supply(shape, core, line, &mut state, access);
        let source = match from {
            None => Source::Memory,
            Some(other) if other == node => Source::Local,
            Some(_) => Source::Remote,
        };
        let carried = self.carry(shape, now, node, &state, from);
        let start = carried.max(state.free_at);
        let done = start + latency.saturating_sub(travelled);
        // An exclusive copy occupies the server until it has arrived; a shared one can be given out again at once.
        let moves = access.writes() || state.owner().is_some();
        let done = if access == Access::Rmw { done + self.costs.rmw } else { done };
        state.free_at = if moves { done } else { start + self.costs.line };
        let walk = self.translate(core, line);
        self.settle(shape, core, line, state, access);
        Served { done: done + walk, queued: start - now, source }
    }

    /// The line serves no other access before `until`, because a served store is still in its core's store buffer.
    pub(crate) fn hold(&mut self, line: u32, until: Ps) {
        let free_at = &mut self.lines[line].free_at;
        *free_at = until.max(*free_at);
    }

    /// How long the line takes to reach the core, and from which node it comes; `None`: from memory.
    #[inline]
    fn supply(&mut self, shape: &Shape, core: u32, line: u32, state: &mut Line, access: Access) -> (Ps, Option<u32>) {
        let (node, costs) = (shape.node(core), &self.costs);
        if let Some(owner) = state.owner() {
            let other = shape.node(owner);
            let list = if state.is_dirty() || access.writes() { &costs.transfer } else { &costs.clean };
            return (list[shape.distance(node, other)], Some(other));
        }
        let nearest = nodes_in(state.llc).min_by_key(|&other| shape.distance(node, other));
        let (fetch, from) = match nearest {
            _ if self.lines.has_copy(line, core) => (0, Some(node)),
            Some(other) => (costs.llc[shape.distance(node, other)], Some(other)),
            None => {
                match state.lost() {
                    Lost::No => {}
                    Lost::ToItself => self.traffic.displaced_by_itself += 1,
                    Lost::ToAnother => self.traffic.displaced_by_others += 1,
                }
                state.lose(Lost::No);
                let home = state.home().expect("it has just been touched");
                return (self.costs.dram[shape.distance(node, home)], None);
            }
        };
        if !access.writes() {
            return (fetch, from);
        }
        let mut others = self.lines.copies(line);
        others.remove(core);
        let farthest = nodes_in(state.llc)
            .filter(|&other| other != node || others.intersects(shape.cores_of(other)))
            .map(|other| shape.distance(node, other))
            .max()
            .unwrap_or(0);
        let from = if farthest > 0 {
            nodes_in(state.llc).find(|&other| shape.distance(node, other) == farthest)
        } else {
            from
        };
        (fetch.max(costs.upgrade[farthest]), from)
    }

    /// When the buses between the two nodes have carried the line that arrives at `now`.
    #[inline]
    fn carry(&mut self, shape: &Shape, now: Ps, node: u32, state: &Line, from: Option<u32>) -> Ps {
        let home = state.home().expect("who asks for it is in a node");
        let traffic = &mut self.traffic;
        let other = from.unwrap_or(home);
        let mut ready = self.llc_bus[node as usize].carry(now);
        if from.is_none() {
            traffic.memory += 1;
            ready = ready.max(self.dram_bus[home as usize].carry(now));
        } else if other == node {
            traffic.local += 1;
        } else {
            traffic.remote += 1;
        }
        if shape.distance(node, other) > 0 {
            ready = ready.max(self.link[node as usize].carry(now)).max(self.link[other as usize].carry(now));
        }
        ready
    }

    /// Updates the line, whose record is `state`, and the caches after the access.
    #[inline]
    fn settle(&mut self, shape: &Shape, core: u32, line: u32, mut state: Line, access: Access) {
        let node = shape.node(core);
        let known = &mut self.lines[line];
        if access.writes() {
            *known = state;
            self.lines.give_to(line, core);
            let state = &mut self.lines[line];
            state.own(true);
            state.llc = 1 << node;
        } else {
            let alone = !state.has_copies() && state.llc & !(1 << node) == 0;
            state.disown();
            state.llc |= 1 << node;
            if alone {
                state.begin_at(core);
            }
            *known = state;
            if !alone {
                self.lines.add_copy(line, core);
            }
        }
        self.put_into_llc(shape, node, core, line);
        self.l1.keep(core, line);
        let Some(victim) = self.l2.insert(core, line, 0) else { return };
        // If the core has no copy, the line was invalidated before.
        let had = self.lines.remove_copy(victim.line, core);
        if had && !self.inclusive {
            // The last level may have dropped the line while the core kept it.
            self.put_into_llc(shape, node, core, victim.line);
        }
    }

    #[inline]
    fn put_into_llc(&mut self, shape: &Shape, node: u32, core: u32, line: u32) {
        if let Some(victim) = self.llc.insert(node, line, core) {
            self.drop_from_llc(shape, node, core, victim);
        }
    }

    /// A last-level cache has evicted the line `victim`.
    fn drop_from_llc(&mut self, shape: &Shape, node: u32, core: u32, victim: Victim) {
        if self.lines[victim.line].llc & 1 << node == 0 {
            return; // Invalidated before.
        }
        let cores = shape.cores_of(node);
        if !self.inclusive && self.lines.has_copy_in(victim.line, cores) {
            return; // The cores keep it.
        }
        let state = &mut self.lines[victim.line];
        state.llc &= !(1 << node);
        state.lose(if victim.by == core { Lost::ToItself } else { Lost::ToAnother });
        self.lines.remove_copies(victim.line, cores);
    }
}

fn nodes_in(set: u32) -> impl Iterator<Item = u32> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let node = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (node < 32).then_some(node)
    })
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
