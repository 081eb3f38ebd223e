//! A slow model of the same memory, which must agree with it on random traces: the copies, whether an access is a hit,
//! where its line comes from, and when it is done. It uses plain maps and lists, and states each rule a second time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::tests::machine;
use super::*;
use crate::description::Cache;

/// The state of a core's copy: MESI without the I.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Modified,
    Exclusive,
    Shared,
}

/// A cache: sets, which are lists with the most recently used line first.
struct Lists {
    sets: Vec<Vec<(u32, u32)>>,
    ways: usize,
    /// How lines map to sets: a core's cache takes them in turn (false), a node's cache uses Knuth's multiplicative
    /// hash (true).
    spread: bool,
}

impl Lists {
    fn new(cache: Cache, spread: bool) -> Self {
        let lines = cache.kib * 16;
        let sets = lines / cache.ways;
        Self { sets: vec![Vec::new(); sets as usize], ways: cache.ways as usize, spread }
    }

    fn set(&self, line: u32) -> usize {
        let (count, golden) = (self.sets.len(), 2_654_435_769.0 / 2_f64.powi(32));
        if self.spread { ((f64::from(line) * golden).fract() * count as f64) as usize } else { line as usize % count }
    }

    fn has(&self, line: u32) -> bool {
        self.sets[self.set(line)].iter().any(|entry| entry.0 == line)
    }

    /// Puts a line in front. Returns the entry that was evicted.
    fn put(&mut self, line: u32, by: u32) -> Option<(u32, u32)> {
        let number = self.set(line);
        let set = &mut self.sets[number];
        set.retain(|entry| entry.0 != line);
        set.insert(0, (line, by));
        if set.len() > self.ways { set.pop() } else { None }
    }
}

struct Slow {
    machine: Description,
    copies: BTreeMap<(u32, u32), Copy>,
    /// Pairs of a line and a node that has it.
    in_node: BTreeSet<(u32, u32)>,
    homes: BTreeMap<u32, u32>,
    free_at: BTreeMap<u32, Ps>,
    displaced_by_itself: BTreeMap<u32, bool>,
    l1: Vec<Lists>,
    l2: Vec<Lists>,
    llc: Vec<Lists>,
    pages: Vec<Lists>,
    llc_bus: Vec<Ps>,
    dram_bus: Vec<Ps>,
    link: Vec<Ps>,
    traffic: Traffic,
}

/// The origin of the line (`None`: a hit), when the access is done, and how long it waited.
type Answer = (Option<Source>, Ps, Ps);

impl Slow {
    fn new(machine: &Description) -> Self {
        let (cores, nodes) = (machine.cores() as usize, machine.nodes() as usize);
        let caches = |count: usize, cache, spread| (0..count).map(|_| Lists::new(cache, spread)).collect();
        let pages = machine.cache.tlb.entries as usize;
        let (sets, ways) = if pages < 8 { (1, pages) } else { (pages / 8, 8) };
        let known = |_| Lists { sets: vec![Vec::new(); sets], ways, spread: false };
        Self {
            copies: BTreeMap::new(),
            in_node: BTreeSet::new(),
            homes: BTreeMap::new(),
            free_at: BTreeMap::new(),
            displaced_by_itself: BTreeMap::new(),
            l1: caches(cores, machine.cache.l1, false),
            l2: caches(cores, machine.cache.l2, false),
            llc: caches(nodes, machine.cache.llc, true),
            pages: (0..cores).map(known).collect(),
            llc_bus: vec![0; nodes],
            dram_bus: vec![0; nodes],
            link: vec![0; nodes],
            traffic: Traffic::default(),
            machine: machine.clone(),
        }
    }

    fn node(&self, core: u32) -> u32 {
        core / self.machine.topology.cores_per_node
    }

    fn owner(&self, line: u32) -> Option<u32> {
        (0..self.machine.cores()).find(|&core| self.copies.get(&(core, line)).is_some_and(|&copy| copy != Copy::Shared))
    }

    fn nodes_with(&self, line: u32) -> Vec<u32> {
        (0..self.machine.nodes()).filter(|&node| self.in_node.contains(&(line, node))).collect()
    }

    /// Whether other cores of the node have a copy.
    fn others_in(&self, node: u32, core: u32, line: u32) -> bool {
        let mut cores = (0..self.machine.cores()).filter(|&other| other != core && self.node(other) == node);
        cores.any(|other| self.copies.contains_key(&(other, line)))
    }

    fn access(&mut self, issued: Ps, core: u32, line: u32, access: Access) -> Answer {
        let copy = self.copies.get(&(core, line)).copied();
        let reads = access == Access::Load;
        if copy.is_some_and(|copy| reads || copy != Copy::Shared) {
            if !reads {
                self.copies.insert((core, line), Copy::Modified);
            }
            return (None, issued + self.hit(core, line, access), 0);
        }
        let me = self.node(core);
        let travel = self.travel(core, line, access);
        let home = *self.homes.entry(line).or_insert(me);
        let arrival = issued + travel;
        self.traffic.upgrades += u64::from(copy.is_some());
        let (latency, from) = self.latency(core, line, access);
        let carried = self.carry(arrival, me, from, home);
        let begin = carried.max(self.free_at.get(&line).copied().unwrap_or(0));
        let rmw = if access == Access::Rmw { ps(self.machine.latency_ns.rmw) } else { 0 };
        let end = begin + latency.saturating_sub(travel) + rmw;
        let occupied = if access == Access::Load && self.owner(line).is_none() {
            begin + ps(self.machine.bandwidth.line_ns)
        } else {
            end
        };
        self.free_at.insert(line, occupied);
        let walk = self.walk(core, line);
        self.bring(core, line, access);
        let source = match from {
            None => Source::Memory,
            Some(node) if node == me => Source::Local,
            Some(_) => Source::Remote,
        };
        (Some(source), end + walk, begin - arrival)
    }

    fn hit(&mut self, core: u32, line: u32, access: Access) -> Ps {
        self.traffic.hits += 1;
        let near =
            if self.l1[core as usize].has(line) { self.machine.latency_ns.l1 } else { self.machine.latency_ns.l2 };
        if !self.l1[core as usize].has(line) && self.l2[core as usize].has(line) {
            self.l2[core as usize].put(line, 0);
        }
        self.l1[core as usize].put(line, 0);
        let time = match access {
            Access::Load => near,
            Access::Store => self.machine.latency_ns.store,
            Access::Rmw => near + self.machine.latency_ns.rmw,
        };
        ps(time) + self.walk(core, line)
    }

    fn walk(&mut self, core: u32, line: u32) -> Ps {
        let tlb = self.machine.cache.tlb;
        let page = line / (tlb.page_kib * 16);
        let known = self.pages[core as usize].has(page);
        self.pages[core as usize].put(page, 0);
        self.traffic.walks += u64::from(!known);
        if known { 0 } else { ps(tlb.walk_ns) }
    }

    fn travel(&self, core: u32, line: u32, access: Access) -> Ps {
        let (me, nodes) = (self.node(core), self.nodes_with(line));
        let stays = match self.owner(line) {
            Some(owner) => self.node(owner) == me,
            None if access == Access::Load => nodes.contains(&me),
            None => nodes.iter().all(|&node| node == me),
        };
        let to = if stays { me } else { self.homes.get(&line).copied().unwrap_or(me) };
        ps(self.machine.latency_ns.llc[self.machine.distance(me, to) as usize]) / 2
    }

    fn latency(&mut self, core: u32, line: u32, access: Access) -> (Ps, Option<u32>) {
        let (machine, me, nodes) = (self.machine.clone(), self.node(core), self.nodes_with(line));
        let costs = &machine.latency_ns;
        let far = |node| machine.distance(me, node) as usize;
        if let Some(owner) = self.owner(line) {
            let faster = access == Access::Load && self.copies[&(owner, line)] == Copy::Exclusive;
            let list = if faster { &costs.clean } else { &costs.transfer };
            return (ps(list[far(self.node(owner))]), Some(self.node(owner)));
        }
        let has_copy = self.copies.contains_key(&(core, line));
        let Some(&nearest) = nodes.iter().min_by_key(|&&node| far(node)) else {
            match self.displaced_by_itself.remove(&line) {
                Some(true) => self.traffic.displaced_by_itself += 1,
                Some(false) => self.traffic.displaced_by_others += 1,
                None => {}
            }
            return (ps(costs.dram[far(self.homes[&line])]), None);
        };
        let (fetch, source) = if has_copy { (0, me) } else { (ps(costs.llc[far(nearest)]), nearest) };
        if access == Access::Load {
            return (fetch, Some(source));
        }
        let notified = nodes.iter().copied().filter(|&node| node != me || self.others_in(me, core, line));
        let farthest = notified.map(far).max().unwrap_or(0);
        let source = nodes.into_iter().find(|&node| farthest > 0 && far(node) == farthest).unwrap_or(source);
        (fetch.max(ps(costs.upgrade[farthest])), Some(source))
    }

    fn carry(&mut self, now: Ps, me: u32, from: Option<u32>, home: u32) -> Ps {
        fn carry(bus: &mut Ps, now: Ps, gbs: f64) -> Ps {
            let begin = now.max(*bus);
            *bus = begin + ps(64.0 / gbs);
            begin
        }
        let (band, other) = (self.machine.bandwidth.clone(), from.unwrap_or(home));
        let mut begins = vec![carry(&mut self.llc_bus[me as usize], now, band.llc_gbs)];
        if from.is_none() {
            begins.push(carry(&mut self.dram_bus[home as usize], now, band.dram_gbs));
        }
        if other != me {
            begins.push(carry(&mut self.link[me as usize], now, band.link_gbs));
            begins.push(carry(&mut self.link[other as usize], now, band.link_gbs));
        }
        match from {
            None => self.traffic.memory += 1,
            Some(node) if node == me => self.traffic.local += 1,
            Some(_) => self.traffic.remote += 1,
        }
        begins.into_iter().max().expect("the first")
    }

    /// The core's caches and its node's get the line; other cores lose their copies, or share the line.
    fn bring(&mut self, core: u32, line: u32, access: Access) {
        let me = self.node(core);
        if access == Access::Load {
            let elsewhere = self.nodes_with(line).iter().any(|&node| node != me);
            let alone = !elsewhere && !self.copies.keys().any(|key| key.1 == line);
            self.copies.iter_mut().filter(|(key, _)| key.1 == line).for_each(|(_, copy)| *copy = Copy::Shared);
            self.copies.insert((core, line), if alone { Copy::Exclusive } else { Copy::Shared });
        } else {
            self.copies.retain(|key, _| key.1 != line);
            self.in_node.retain(|key| key.0 != line);
            self.copies.insert((core, line), Copy::Modified);
        }
        self.in_node.insert((line, me));
        self.put_into_node(core, line);
        self.l1[core as usize].put(line, 0);
        if let Some((gone, _)) = self.l2[core as usize].put(line, 0) {
            let had = self.copies.remove(&(core, gone)).is_some();
            if had && !self.machine.cache.inclusive {
                self.put_into_node(core, gone);
            }
        }
    }

    fn put_into_node(&mut self, core: u32, line: u32) {
        let me = self.node(core);
        let Some((gone, by)) = self.llc[me as usize].put(line, core) else { return };
        let kept = self.others_in(me, u32::MAX, gone) && !self.machine.cache.inclusive;
        if kept || !self.in_node.remove(&(gone, me)) {
            return;
        }
        self.displaced_by_itself.insert(gone, by == core);
        let (cores, node) = (self.machine.topology.cores_per_node, me);
        self.copies.retain(|key, _| key.1 != gone || key.0 / cores != node);
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    later: Ps,
    core: u32,
    line: u32,
    access: Access,
}

const LINES: u32 = 100;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Some lines are hot. Time passes slowly enough for queues to form, and sometimes not at all.
    let line = prop_oneof![4 => 0..4_u32, 3 => 0..40_u32, 3 => 0..LINES];
    let access = prop_oneof![3 => Just(Access::Load), 1 => Just(Access::Store), 1 => Just(Access::Rmw)];
    let step = (0..60_000_u64, 0..8_u32, line, access);
    prop::collection::vec(step.prop_map(|(later, core, line, access)| Step { later, core, line, access }), 1..300)
}

/// Cores' caches of 16 and 32 lines. Nodes' caches of 48 lines if inclusive, else 16, in `sets` sets. Three pages; slow
/// buses.
fn tight(inclusive: bool, sets: u32) -> Description {
    let mut machine = machine();
    machine.cache.l1 = Cache { kib: 1, ways: 2 };
    machine.cache.l2 = Cache { kib: 2, ways: 4 };
    machine.cache.llc = if inclusive { Cache { kib: 3, ways: 48 / sets } } else { Cache { kib: 1, ways: 16 / sets } };
    machine.cache.inclusive = inclusive;
    let tlb = &mut machine.cache.tlb;
    (tlb.entries, tlb.page_kib, tlb.walk_ns) = (3, 1, 15.0);
    let band = &mut machine.bandwidth;
    (band.llc_gbs, band.dram_gbs, band.link_gbs) = (8.0, 3.0, 5.0);
    machine
}

/// Both models agree on the trace, and the invariants of the module page hold.
fn agree(machine: &Description, steps: &[Step]) -> Result<(), TestCaseError> {
    let shape = Shape::new(machine);
    let (mut fast, mut slow) = (Memory::new(machine, &shape), Slow::new(machine));
    fast.extend(LINES);
    let (mut now, mut free_at) = (0, vec![0; LINES as usize]);
    for (number, &Step { later, core, line, access }) in steps.iter().enumerate() {
        now += later;
        let answer = match fast.hit(core, line, access) {
            Some(cost) => (None, now + cost, 0),
            None => {
                let arrival = now + fast.travel(&shape, core, line, access);
                let served = fast.serve(&shape, arrival, core, line, access);
                (Some(served.source), served.done, served.queued)
            }
        };
        prop_assert_eq!(answer, slow.access(now, core, line, access), "{:?} of line {} by core {}", access, line, core);
        let free = fast.lines[line].free_at;
        prop_assert!(free >= std::mem::replace(&mut free_at[line as usize], free), "invariant 3");
        same_line(&fast, &slow, line)?;
        if number % 16 == 15 || number + 1 == steps.len() {
            (0..LINES).try_for_each(|line| same_line(&fast, &slow, line))?;
        }
    }
    prop_assert_eq!(fast.traffic, slow.traffic);
    Ok(())
}

fn same_line(fast: &Memory, slow: &Slow, line: u32) -> Result<(), TestCaseError> {
    let state = &fast.lines[line];
    let cores = 0..slow.machine.cores();
    let with: Vec<u32> = cores.clone().filter(|&core| fast.lines.has_copy(line, core)).collect();
    let copies: Vec<u32> = cores.filter(|&core| slow.copies.contains_key(&(core, line))).collect();
    prop_assert_eq!(&with, &copies, "who has line {}", line);
    prop_assert_eq!(state.owner(), slow.owner(line), "who owns line {}", line);
    prop_assert_eq!(nodes_in(state.llc).collect::<Vec<_>>(), slow.nodes_with(line), "which nodes have line {}", line);
    prop_assert_eq!(state.free_at, slow.free_at.get(&line).copied().unwrap_or(0));
    if let Some(owner) = state.owner() {
        prop_assert_eq!(&with, &[owner], "invariant 1");
    }
    for &core in &with {
        prop_assert!(state.llc >> slow.node(core) & 1 != 0, "invariant 2");
    }
    // If a node has a copy, so has its cache, or a core for which the cache has dropped the line.
    for node in nodes_in(state.llc) {
        let kept = !slow.machine.cache.inclusive && slow.others_in(node, u32::MAX, line);
        prop_assert!(kept || slow.llc[node as usize].has(line), "line {line} is nowhere in node {node}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn they_agree_where_everything_fits(steps in steps()) {
        agree(&machine(), &steps)?;
    }

    #[test]
    fn they_agree_on_small_inclusive_caches(steps in steps(), sets in prop::sample::select(&[1, 4, 8][..])) {
        agree(&tight(true, sets), &steps)?;
    }

    #[test]
    fn they_agree_on_small_caches_that_cores_keep_lines_from(
        steps in steps(),
        sets in prop::sample::select(&[1, 4, 8][..]),
    ) {
        agree(&tight(false, sets), &steps)?;
    }
}
