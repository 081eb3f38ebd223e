//! Tests of coherence against sequences that were computed by hand: each row of the module page's table, caches, queues
//! and buses.
//!
//! The machine has four nodes of two cores. Nodes 0 and 1 form one package, nodes 2 and 3 another, so distances are 0,
//! 1 and 2. A request travels for half of `llc` and is then served. Alone, it takes as long as the table says. Behind
//! another request, it begins when that is done, less the time that it has already travelled.

use super::*;
use crate::description::Cache;

/// Round numbers, each of which occurs once. Buses carry everything at once, and caches hold all lines that are
/// touched.
pub(super) fn machine() -> Description {
    let mut machine = Description::find("2x18x2").unwrap();
    let shape = &mut machine.topology;
    (shape.packages, shape.nodes_per_package, shape.cores_per_node, shape.threads_per_core) = (2, 2, 2, 1);
    let latency = &mut machine.latency_ns;
    (latency.l1, latency.l2, latency.rmw, latency.store) = (1.0, 3.0, 7.0, 0.5);
    latency.llc = vec![20.0, 40.0, 80.0];
    latency.transfer = vec![50.0, 90.0, 150.0];
    latency.clean = vec![34.0, 70.0, 110.0];
    latency.upgrade = vec![24.0, 60.0, 120.0];
    latency.dram = vec![100.0, 130.0, 200.0];
    let band = &mut machine.bandwidth;
    (band.llc_gbs, band.dram_gbs, band.link_gbs, band.line_ns) = (1e9, 1e9, 1e9, 4.0);
    machine.cache.tlb.walk_ns = 0.0;
    machine.cache.llc = Cache { kib: 1024, ways: 16 };
    machine
}

/// The outcome of an access: its kind, and how many ps after its issue it was done.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    Hit(Ps),
    From(Source, Ps),
}
use Access::{Load, Rmw, Store};
use Done::{From, Hit};
use Source::{Local, Memory as Dram, Remote};

struct Bench {
    memory: Memory,
    shape: Shape,
    now: Ps,
}

impl Bench {
    fn new(machine: &Description) -> Self {
        let shape = Shape::new(machine);
        let mut memory = Memory::new(machine, &shape);
        memory.extend(1 << 12);
        Self { memory, shape, now: 0 }
    }

    /// An access long after all others.
    fn access(&mut self, core: u32, line: u32, access: Access) -> Done {
        self.now += 1_000_000;
        self.access_at(self.now, core, line, access)
    }

    fn access_at(&mut self, issued: Ps, core: u32, line: u32, access: Access) -> Done {
        if let Some(cost) = self.memory.hit(core, line, access) {
            return Hit(cost);
        }
        let arrival = issued + self.memory.travel(&self.shape, core, line, access);
        let served = self.memory.serve(&self.shape, arrival, core, line, access);
        From(served.source, served.done - issued)
    }

    /// A line that these cores have loaded, one after the other.
    fn shared_by(machine: &Description, cores: &[u32]) -> Self {
        let mut bench = Self::new(machine);
        cores.iter().for_each(|&core| _ = bench.access(core, 0, Load));
        bench
    }

    /// A line that this core owns.
    fn owned_by(machine: &Description, core: u32) -> Self {
        let mut bench = Self::new(machine);
        bench.access(core, 0, Store);
        bench
    }

    fn copies(&self, line: u32) -> Vec<u32> {
        (0..self.shape.cores).filter(|&core| self.memory.lines.has_copy(line, core)).collect()
    }
}

fn own() -> Bench {
    Bench::owned_by(&machine(), 0)
}

fn shared(cores: &[u32]) -> Bench {
    Bench::shared_by(&machine(), cores)
}

// ---------------------------------------------------------------------------------------------- owned by another core

#[test]
fn what_another_core_has_for_itself_is_transferred_from_there() {
    // Within the node, to the next one, to the other package: `transfer`.
    assert_eq!(own().access(1, 0, Load), From(Local, 50_000));
    assert_eq!(own().access(2, 0, Load), From(Remote, 90_000));
    assert_eq!(own().access(4, 0, Load), From(Remote, 150_000));
    assert_eq!(own().access(1, 0, Store), From(Local, 50_000));
    assert_eq!(own().access(7, 0, Store), From(Remote, 150_000));
    // A read-modify-write takes 7 ns more.
    assert_eq!(own().access(1, 0, Rmw), From(Local, 57_000));
    assert_eq!(own().access(4, 0, Rmw), From(Remote, 157_000));
}

#[test]
fn what_its_owner_has_not_changed_is_read_faster() {
    // Core 0 owns it, because no other core has read it: `clean`.
    assert_eq!(shared(&[0]).access(1, 0, Load), From(Local, 34_000));
    assert_eq!(shared(&[0]).access(2, 0, Load), From(Remote, 70_000));
    assert_eq!(shared(&[0]).access(4, 0, Load), From(Remote, 110_000));
    assert_eq!(shared(&[0]).access(4, 0, Store), From(Remote, 150_000), "not for who writes: `transfer`");
    // The same after the owner has written to it, which no other core notices.
    let mut bench = shared(&[0]);
    assert_eq!(bench.access(0, 0, Store), Hit(500));
    assert_eq!(bench.access(4, 0, Load), From(Remote, 150_000));
    // A new owner has changed nothing: core 0's copy went back to its node's cache, and comes from there.
    let mut bench = small(LARGE, true);
    bench.access(0, 0, Store);
    (1..17).for_each(|line| _ = bench.access(0, line, Load));
    assert_eq!(bench.access(1, 0, Load), From(Local, 20_000));
    assert_eq!(bench.access(0, 0, Load), From(Local, 34_000));
}

#[test]
fn after_a_read_both_share_after_a_write_one_has_it() {
    let mut bench = own();
    bench.access(4, 0, Load);
    assert_eq!((bench.copies(0), bench.memory.lines[0].owner()), (vec![0, 4], None));
    assert_eq!(bench.access(0, 0, Load), Hit(1_000));
    bench.access(4, 0, Store);
    assert_eq!((bench.copies(0), bench.memory.lines[0].owner()), (vec![4], Some(4)));
    assert_eq!(bench.access(0, 0, Load), From(Remote, 150_000), "it was invalidated");
}

// ------------------------------------------------------------------------------------------------- last-level caches

#[test]
fn what_a_last_level_cache_has_is_read_from_the_nearest_one() {
    // Cores 0 and 2 share it: nodes 0 and 1 have a copy.
    assert_eq!(shared(&[0, 2]).access(1, 0, Load), From(Local, 20_000));
    assert_eq!(shared(&[0, 2]).access(4, 0, Load), From(Remote, 80_000));
    // Nodes 0 and 2 have a copy: node 1 takes it from node 0, and node 3 from node 2, both at distance 1.
    assert_eq!(shared(&[0, 4]).access(2, 0, Load), From(Remote, 40_000));
    assert_eq!(shared(&[0, 4]).access(6, 0, Load), From(Remote, 40_000));
}

#[test]
fn an_upgrade_takes_as_long_as_to_the_farthest_copy() {
    // A core with a copy needs no data: `upgrade`, and 7 ns more for a read-modify-write.
    assert_eq!(shared(&[0, 1]).access(0, 0, Store), From(Local, 24_000));
    assert_eq!(shared(&[0, 2]).access(0, 0, Store), From(Remote, 60_000));
    assert_eq!(shared(&[0, 2, 4]).access(0, 0, Store), From(Remote, 120_000));
    assert_eq!(shared(&[0, 4]).access(4, 0, Rmw), From(Remote, 127_000));
    // A core without a copy fetches meanwhile: 20 from its own node is less than the 24 to invalidate both others.
    assert_eq!(shared(&[2, 3]).access(2, 0, Rmw), From(Local, 31_000));
    assert_eq!(shared(&[0, 1]).access(2, 0, Store), From(Remote, 60_000), "40 for the data, 60 to tell both");
    // The core in the other node is invalidated, though there is a copy nearby.
    assert_eq!(shared(&[0, 4]).access(1, 0, Store), From(Remote, 120_000));
}

#[test]
fn a_shared_copy_is_no_hit_for_a_write() {
    let mut bench = shared(&[0, 1]);
    assert_eq!(bench.access(1, 0, Load), Hit(1_000));
    assert_eq!(bench.access(1, 0, Store), From(Local, 24_000));
    assert_eq!(bench.access(1, 0, Store), Hit(500), "its own now");
    assert_eq!(bench.copies(0), [1]);
}

// ------------------------------------------------------------------------------------------------------------ memory

#[test]
fn a_line_is_at_home_where_it_was_first_touched() {
    for (first, kind) in [(0, Load), (0, Store), (5, Load)] {
        let mut bench = Bench::new(&machine());
        assert_eq!(bench.access(first, 0, kind), From(Dram, 100_000), "from the memory of the node that touches it");
        assert_eq!(bench.memory.lines[0].home(), Some(first / 2));
    }
    let mut bench = Bench::new(&machine());
    assert_eq!(bench.access(3, 0, Rmw), From(Dram, 107_000));
}

#[test]
fn what_nobody_has_any_more_comes_from_its_home() {
    // One set of 16: line 16 displaces line 0.
    let mut machine = machine();
    machine.cache.llc = Cache { kib: 1, ways: 16 };
    let again = |core, access| {
        let mut bench = Bench::owned_by(&machine, 0);
        (1..=16).for_each(|line| _ = bench.access(0, line, Load));
        bench.access(core, 0, access)
    };
    assert_eq!(again(1, Load), From(Dram, 100_000));
    assert_eq!(again(3, Load), From(Dram, 130_000));
    assert_eq!(again(4, Store), From(Dram, 200_000));
    assert_eq!(again(4, Rmw), From(Dram, 207_000));
}

#[test]
fn who_reads_alone_may_write_at_once() {
    let mut bench = Bench::new(&machine());
    bench.access(0, 0, Load);
    assert_eq!(bench.memory.lines[0].owner(), Some(0));
    assert_eq!(bench.access(0, 0, Store), Hit(500), "and nobody is told");
    assert_eq!(bench.access(0, 0, Rmw), Hit(8_000), "7, and 1 for the data");
    assert_eq!(bench.memory.traffic, Traffic { hits: 2, memory: 1, walks: 1, ..Traffic::default() });
}

// ------------------------------------------------------------------------------------------------------------ caches

/// First level: 16 sets of one way. Second: one set of 16 lines. Last: `llc`.
fn small(llc: Cache, inclusive: bool) -> Bench {
    let mut machine = machine();
    machine.cache.l1 = Cache { kib: 1, ways: 1 };
    machine.cache.l2 = Cache { kib: 1, ways: 16 };
    (machine.cache.llc, machine.cache.inclusive) = (llc, inclusive);
    Bench::new(&machine)
}

const LARGE: Cache = Cache { kib: 64, ways: 16 };
const SMALL: Cache = Cache { kib: 1, ways: 16 };

#[test]
fn what_the_first_level_displaces_is_in_the_second() {
    let mut bench = small(LARGE, true);
    bench.access(0, 0, Load);
    bench.access(0, 16, Load);
    assert_eq!(bench.access(0, 0, Load), Hit(3_000), "line 16 had its place");
    assert_eq!(bench.access(0, 0, Load), Hit(1_000));
    assert_eq!(bench.access(0, 16, Rmw), Hit(10_000), "7, and 3 for the data");
}

#[test]
fn what_the_second_level_displaces_is_in_the_last() {
    let mut bench = small(LARGE, true);
    (0..17).for_each(|line| _ = bench.access(0, line, Store));
    assert_eq!((bench.copies(0), bench.memory.lines[0].owner()), (vec![], None));
    assert_eq!(bench.access(0, 0, Load), From(Local, 20_000));
    assert_eq!(bench.memory.lines[0].owner(), Some(0), "nobody else has it");
    assert_eq!(bench.access(4, 1, Load), From(Remote, 80_000), "line 1 had to go for line 0");
}

#[test]
fn an_inclusive_last_level_takes_its_lines_from_the_cores() {
    let mut bench = small(SMALL, true);
    (0..16).for_each(|line| _ = bench.access(0, line, Store));
    bench.access(1, 16, Load);
    assert_eq!(bench.copies(0), [], "core 1 displaced it in the node's cache");
    assert_eq!(bench.access(0, 0, Load), From(Dram, 100_000));
    // A copy in another node stays.
    let mut bench = small(SMALL, true);
    bench.access(0, 0, Load);
    bench.access(2, 0, Load);
    (1..17).for_each(|line| _ = bench.access(1, line, Load));
    assert_eq!(bench.copies(0), [2]);
    assert_eq!(bench.access(0, 0, Load), From(Remote, 40_000));
}

#[test]
fn cores_keep_what_another_last_level_displaces() {
    let mut bench = small(SMALL, false);
    bench.access(0, 0, Store);
    (1..17).for_each(|line| _ = bench.access(1, line, Load));
    assert_eq!(bench.copies(0), [0]);
    assert_eq!(bench.access(0, 0, Store), Hit(500));
}

#[test]
fn what_all_cores_drop_goes_back_to_a_last_level_that_had_displaced_it() {
    let mut bench = small(SMALL, false);
    bench.access(0, 0, Store);
    (1..17).for_each(|line| _ = bench.access(1, line, Load));
    (20..36).for_each(|line| _ = bench.access(0, line, Load));
    assert_eq!(bench.copies(0), [], "core 0 has 16 others");
    assert_eq!(bench.access(1, 0, Load), From(Local, 20_000));
    // The line takes part in the replacement there: 16 others that no core keeps displace it.
    (40..56).for_each(|line| _ = bench.access(1, line, Load));
    (60..76).for_each(|line| _ = bench.access(1, line, Load));
    assert_eq!(bench.access(1, 0, Load), From(Dram, 100_000));
}

#[test]
fn who_displaced_a_line_is_counted_when_it_is_missed() {
    let counts = |bench: &Bench| (bench.memory.traffic.displaced_by_itself, bench.memory.traffic.displaced_by_others);
    let mut bench = small(SMALL, true);
    (0..17).for_each(|line| _ = bench.access(0, line, Load));
    assert_eq!(counts(&bench), (0, 0));
    assert_eq!(bench.access(0, 0, Load), From(Dram, 100_000));
    assert_eq!(counts(&bench), (1, 0), "core 0 had displaced what it had brought in: line 0; line 1 now");
    bench.access(1, 17, Load);
    assert_eq!(counts(&bench), (1, 0), "never seen before");
    bench.access(0, 2, Load);
    assert_eq!(counts(&bench), (1, 1), "line 2 had to go for core 1's");
}

// -------------------------------------------------------------------------------------------------- queues and buses

#[test]
fn an_exclusive_copy_travels_to_one_after_the_other() {
    let mut bench = own();
    // Core 1's request travels for 10, then takes 40 more. Core 2's is issued at the same time and has to go to node 0:
    // it travels for 20, waits for core 1, and then takes the remaining 70 of its 90: 50 + 70.
    assert_eq!(bench.access_at(5_000_000, 1, 0, Store), From(Local, 50_000));
    assert_eq!(bench.access_at(5_000_000, 2, 0, Store), From(Remote, 120_000));
    // Core 4's travels to the line's home, at distance 2, for 40. It waits until 120, and takes 150 - 40 from core
    // 2.
    assert_eq!(bench.access_at(5_000_000, 4, 0, Rmw), From(Remote, 120_000 + 110_000 + 7_000));
    assert_eq!(bench.memory.lines[0].free_at, 5_237_000);
}

#[test]
fn how_long_it_waited_is_said() {
    let mut bench = own();
    let served = bench.memory.serve(&bench.shape, 5_010_000, 1, 0, Store);
    assert_eq!(served, Served { done: 5_050_000, queued: 0, source: Local });
    let served = bench.memory.serve(&bench.shape, 5_030_000, 2, 0, Load);
    assert_eq!(served, Served { done: 5_050_000 + 70_000, queued: 20_000, source: Remote });
}

#[test]
fn copies_of_a_shared_line_are_given_out_as_fast_as_its_home_can() {
    let mut bench = shared(&[0, 1, 2]);
    // Both requests travel to the line's home for 40. Core 4's keeps it busy for 4; its data comes from node 0 or 1.
    assert_eq!(bench.access_at(5_000_000, 4, 0, Load), From(Remote, 80_000));
    // Core 6's begins at 44. Node 2 already counts as a copy: 40, all of which the request has travelled.
    assert_eq!(bench.access_at(5_000_000, 6, 0, Load), From(Remote, 44_000));
    assert_eq!(bench.memory.lines[0].free_at, 5_048_000);
}

#[test]
fn a_line_that_is_held_is_served_later() {
    let mut bench = own();
    bench.memory.hold(0, 5_200_000);
    bench.memory.hold(0, 5_100_000);
    assert_eq!(bench.access_at(5_000_000, 1, 0, Load), From(Local, 200_000 + 40_000));
}

#[test]
fn buses_carry_one_line_at_a_time() {
    let with = |change: fn(&mut Description)| {
        let mut machine = machine();
        change(&mut machine);
        let mut bench = Bench::new(&machine);
        (0..4).for_each(|line| _ = bench.access(0, line, Store));
        bench
    };
    // 64 bytes at 1 GB/s take 64 ns. The lines differ and are requested at the same time.
    let mut bench = with(|machine| machine.bandwidth.llc_gbs = 1.0);
    assert_eq!(bench.access_at(9_000_000, 1, 0, Load), From(Local, 50_000));
    assert_eq!(bench.access_at(9_000_000, 1, 1, Load), From(Local, 50_000 + 64_000));
    assert_eq!(bench.access_at(9_000_000, 2, 2, Load), From(Remote, 90_000), "another node's cache");
    let mut bench = with(|machine| machine.bandwidth.link_gbs = 1.0);
    assert_eq!(bench.access_at(9_000_000, 2, 0, Load), From(Remote, 90_000));
    assert_eq!(bench.access_at(9_000_000, 2, 1, Load), From(Remote, 90_000 + 64_000));
    // Core 4's travels for 40 instead of 20, and waits for what left node 0 before: it starts at 20 + 64 + 64.
    assert_eq!(bench.access_at(9_000_000, 4, 2, Load), From(Remote, 148_000 + 110_000));
    assert_eq!(bench.access_at(9_000_000, 1, 3, Load), From(Local, 50_000), "within a node");
    let mut bench = with(|machine| machine.bandwidth.dram_gbs = 1.0);
    assert_eq!(bench.access_at(9_000_000, 0, 64, Load), From(Dram, 100_000));
    assert_eq!(bench.access_at(9_000_000, 1, 65, Load), From(Dram, 100_000 + 64_000));
    assert_eq!(bench.access_at(9_000_000, 2, 66, Load), From(Dram, 100_000), "another node's memory");
}

// ------------------------------------------------------------------------------------------------------ translations

#[test]
fn a_page_that_is_not_known_is_looked_up() {
    let mut machine = machine();
    (machine.cache.tlb.entries, machine.cache.tlb.page_kib, machine.cache.tlb.walk_ns) = (2, 4, 15.0);
    let mut bench = Bench::new(&machine);
    assert_eq!(bench.access(0, 0, Load), From(Dram, 115_000));
    assert_eq!(bench.access(0, 63, Load), From(Dram, 100_000), "64 lines are a page");
    assert_eq!(bench.access(0, 64, Store), From(Dram, 115_000));
    assert_eq!(bench.access(0, 0, Load), Hit(1_000), "two pages are known");
    bench.access(0, 128, Load);
    assert_eq!(bench.access(0, 64, Store), Hit(15_500), "the page that was used least recently is not");
    assert_eq!(bench.access(1, 64, Load), From(Local, 65_000), "each core knows pages of its own");
    assert_eq!(bench.memory.traffic.walks, 5);
}
