//! The machines that are shipped, and what is said of files that are wrong.

use super::*;

fn shipped(name: &str) -> Description {
    Description::find(name).unwrap_or_else(|error| panic!("{error}"))
}

fn all() -> impl Iterator<Item = Description> {
    Description::names().map(shipped)
}

#[test]
fn every_shipped_machine_is_read_and_written_again() {
    for machine in all() {
        let again = Description::parse(&machine.text()).unwrap_or_else(|error| panic!("{}: {error}", machine.name));
        assert_eq!(again, machine);
        assert_eq!(Description::shipped(&machine.name).map(Description::parse), Some(Ok(machine)));
    }
}

#[test]
fn every_shipped_machine_says_what_it_is_and_where_its_numbers_come_from() {
    for machine in all() {
        assert!(!machine.title.contains('\n') && machine.title.len() > 20, "{}", machine.name);
        assert!(machine.source.len() > 100, "{}: sources are named at length", machine.name);
    }
}

#[test]
fn shapes_are_what_the_names_say() {
    // Nodes, cores, hardware threads.
    let shapes = [
        ("2x18x2", (2, 36, 72)),
        ("4x18x2", (4, 72, 144)),
        ("8x24", (8, 192, 192)),
        ("opteron-6172", (8, 48, 48)),
        ("sparc-t5", (1, 16, 128)),
        ("2x26x2", (2, 52, 104)),
        ("2x128x2", (32, 256, 512)),
    ];
    assert_eq!(shapes.len(), Description::names().count(), "a machine without a shape here");
    for (name, shape) in shapes {
        let machine = shipped(name);
        assert_eq!((machine.nodes(), machine.cores(), machine.cpus()), shape, "{name}");
    }
}

/// The farthest distance there is.
fn farthest(machine: &Description) -> usize {
    let nodes = 0..machine.nodes();
    nodes.clone().flat_map(|a| nodes.clone().map(move |b| (a, b))).map(|(a, b)| machine.distance(a, b)).max().unwrap()
        as usize
}

#[test]
fn distances_are_the_same_both_ways_and_skip_none() {
    for machine in all() {
        let nodes = machine.nodes();
        let mut seen = vec![false; farthest(&machine) + 1];
        for (a, b) in (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))) {
            assert_eq!(machine.distance(a, b), machine.distance(b, a), "{}: {a} and {b}", machine.name);
            seen[machine.distance(a, b) as usize] = true;
        }
        assert!(seen.iter().all(|seen| *seen), "{}: {seen:?}", machine.name);
        assert_eq!(machine.latency_ns.llc.len(), seen.len(), "{}: a number that is never used", machine.name);
    }
}

#[test]
fn each_socket_of_eight_has_three_neighbours() {
    let machine = shipped("8x24");
    for a in 0..8 {
        assert_eq!((0..8).filter(|&b| machine.distance(a, b) == 1).count(), 3, "socket {a}");
    }
}

#[test]
fn farther_is_not_faster() {
    for machine in all() {
        let (name, latency) = (&machine.name, &machine.latency_ns);
        for list in [&latency.llc, &latency.transfer, &latency.clean, &latency.upgrade, &latency.dram] {
            assert!(list.is_sorted(), "{name}: {list:?}");
        }
        assert!(latency.store <= latency.l1 && latency.l1 < latency.l2 && latency.l2 < latency.llc[0], "{name}");
        for distance in 0..=farthest(&machine) {
            let [llc, transfer, clean, dram] =
                [&latency.llc, &latency.transfer, &latency.clean, &latency.dram].map(|list| list[distance]);
            assert!(clean >= llc && transfer >= clean && dram >= llc, "{name}, distance {distance}");
        }
    }
}

#[test]
fn caches_grow_and_lists_rise() {
    for machine in all() {
        let (name, cache) = (&machine.name, &machine.cache);
        assert!(cache.l1.kib < cache.l2.kib && cache.l2.kib < cache.llc.kib, "{name}");
        let idle: Vec<f64> = machine.scheduler.idle_us.iter().map(|(_, us)| *us).collect();
        assert!(idle.is_sorted(), "{name}: who slept longer does not wake up sooner");
        let turbo: Vec<f64> = machine.clock.turbo.iter().map(|(_, ghz)| -ghz).collect();
        assert!(turbo.is_sorted(), "{name}: more active cores do not run faster");
    }
}

#[test]
fn all_latencies_can_be_scaled_at_once() {
    let (machine, twice) = (shipped("2x18x2"), shipped("2x18x2").with_latencies(2.0));
    for (once, scaled) in [
        (machine.latency_ns.llc, twice.latency_ns.llc),
        (machine.latency_ns.transfer, twice.latency_ns.transfer),
        (machine.latency_ns.clean, twice.latency_ns.clean),
        (machine.latency_ns.upgrade, twice.latency_ns.upgrade),
        (machine.latency_ns.dram, twice.latency_ns.dram),
    ] {
        assert_eq!(once.iter().map(|ns| ns * 2.0).collect::<Vec<_>>(), scaled);
    }
    assert_eq!(machine.latency_ns.l1, twice.latency_ns.l1);
}

#[test]
fn an_unknown_machine_is_told_from_an_unreadable_file() {
    let unknown = Description::find("no-such-machine").unwrap_err();
    assert!(
        unknown.contains("no machine and no file 'no-such-machine'") && unknown.contains("2x18x2 4x18x2"),
        "{unknown}"
    );
    let unreadable = Description::find("/").unwrap_err();
    assert!(unreadable.starts_with("cannot read '/'"), "{unreadable}");
}

/// What is said of a machine's text after one replacement.
fn complaint(name: &str, from: &str, to: &str) -> String {
    let text = Description::shipped(name).unwrap();
    assert!(text.contains(from), "{name} has no '{from}'");
    Description::parse(&text.replacen(from, to, 1)).expect_err(to)
}

#[test]
fn wrong_text_is_shown_where_it_is() {
    for (from, to, says) in [
        ("ghz = 2.3", "gigahertz = 2.3", "unknown field `gigahertz`"),
        ("title = ", "[title", "TOML parse error at line 2"),
        ("packages = 2\n", "", "missing field `packages`"),
        ("packages = 2", "packages = -2", "invalid value: integer `-2`"),
        ("packages = 2", "packages = \"two\"", "invalid type: string \"two\""),
        ("[power]", "[powers]", "unknown field `powers`"),
        ("llc = [21.0, 86.0]", "llc = 21.0", "invalid type: floating point `21.0`, expected a sequence"),
    ] {
        let error = complaint("2x18x2", from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let size = "topology: 1 to 1024 hardware threads";
    for (name, from, to, says) in [
        ("2x18x2", "packages = 2", "packages = 0", size),
        ("2x18x2", "threads_per_core = 2", "threads_per_core = 0", size),
        ("2x18x2", "packages = 2", "packages = 33", size),
        ("2x18x2", "packages = 2", "packages = 4000000000", size),
        ("8x24", "[0, 1, 2, 2, 1, 2, 2, 1],", "", "topology.distances: 8 rows of 8 numbers are needed"),
        ("8x24", "[0, 1, 2, 2, 1, 2, 2, 1]", "[0, 1]", "topology.distances: 8 rows of 8 numbers are needed"),
        ("8x24", "[0, 1,", "[1, 1,", "topology.distances: from node 0 to node 0 it must be 0"),
        ("8x24", "[0, 1,", "[0, 0,", "topology.distances: from node 0 to node 1 it must be 0"),
        ("8x24", "[0, 1,", "[0, 3,", "latency_ns.llc: 4 numbers are needed"),
        (
            "2x18x2",
            "packages = 2\nnodes_per_package = 1",
            "packages = 2\nnodes_per_package = 2",
            "latency_ns.llc: 3 numbers",
        ),
    ] {
        let error = complaint(name, from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
}

/// A table of measurements before the next one.
fn measured(ping_pong: &str) -> String {
    format!("[measured_ns]\ncas = [[0, 60.0]]\ncas_ping_pong = {ping_pong}\nstore_ping_pong = []\n\n[power]")
}

/// The same, with what siblings measured.
fn with_siblings(load: &str) -> String {
    let siblings = format!(
        "[measured_ns.siblings]\nload = {load}\ncas = 9.0\ncas_ping_pong = 20.0\nstore_ping_pong = 15.0\n\n[power]"
    );
    measured("[]").replace("[power]", &siblings)
}

#[test]
fn what_was_measured_besides_is_kept_and_changes_nothing() {
    let text = Description::shipped("2x18x2").unwrap();
    let more = text.replace("[power]", &measured("[[0, 50.0], [1, 180.0]]"));
    let machine = Description::parse(&more).unwrap();
    assert_eq!(machine.measured_ns.as_ref().unwrap().cas_ping_pong, [(0, 50.0), (1, 180.0)]);
    assert_eq!(Description::parse(&machine.text()).unwrap(), machine);
    assert_eq!(Description { measured_ns: None, ..machine }, shipped("2x18x2"));
    let machine = Description::parse(&text.replace("[power]", &with_siblings("2.0"))).unwrap();
    assert_eq!(machine.measured_ns.as_ref().unwrap().siblings.as_ref().unwrap().load, 2.0);
    assert_eq!(Description::parse(&machine.text()).unwrap(), machine);
}

#[test]
fn wrong_numbers_are_refused() {
    for (from, to, says) in [
        ("llc = [21.0, 86.0]", "llc = [21.0]", "latency_ns.llc: 2 numbers are needed, one for each distance"),
        ("transfer = [53.0, 113.0]", "transfer = []", "latency_ns.transfer: 2 numbers are needed"),
        ("upgrade = [33.0, 79.0]", "upgrade = [21.0]", "latency_ns.upgrade: 2 numbers are needed"),
        ("dram = [96.0, 146.0]", "dram = [96.0]", "latency_ns.dram: 2 numbers are needed"),
        ("dram = [96.0, 146.0]", "dram = [96.0, 1e7]", "latency_ns.dram: times are from 0"),
        ("dram = [96.0, 146.0]", "dram = [96.0, 80.0]", "latency_ns.dram: what is farther away"),
        ("l1 = 1.6", "l1 = 0.0", "of a poll (pause) and of a hit (l1) are more than 0"),
        ("pause = 4.0", "pause = 0.0", "of a poll (pause) and of a hit (l1) are more than 0"),
        ("l1 = { kib = 32, ways = 8 }", "l1 = { kib = 0, ways = 8 }", "cache.l1: 0 KiB do not make sets"),
        (
            "l2 = { kib = 256, ways = 8 }",
            "l2 = { kib = 256, ways = 0 }",
            "cache.l2: 256 KiB do not make sets of 0 lines",
        ),
        (
            "llc = { kib = 46080, ways = 20 }",
            "llc = { kib = 46080, ways = 7 }",
            "cache.llc: 46080 KiB do not make sets of 7",
        ),
        ("entries = 1024", "entries = 0", "cache.tlb: 1 to 65,536 pages"),
        ("entries = 1024", "entries = 4294967295", "cache.tlb: 1 to 65,536 pages"),
        ("page_kib = 4", "page_kib = 1", "cache.tlb: 1 to 65,536 pages of 4 to 4,194,304 KiB"),
        ("page_kib = 4", "page_kib = 268435456", "cache.tlb: 1 to 65,536 pages of 4 to 4,194,304 KiB"),
        ("l1 = { kib = 32, ways = 8 }", "l1 = { kib = 1048576, ways = 8 }", "cache: all caches of all cores and nodes"),
        ("busy_w = 3.0", "busy_w = -3.0", "power: from 0 to 1,000,000"),
        ("name = \"2x18x2\"", "name = \"\"", "name: it must not be empty"),
        ("[[0.0, 1.0], [50.0, 3.0]", "[[nan, 1.0], [50.0, 3.0]", "idle_us in rising order"),
        ("[power]", "[hypervisor]\nrun_ms = 1e-10\naway_ms = 0.0\n\n[power]", "hypervisor: run_ms is 0.001 or more"),
        ("ghz = 2.3", "ghz = 0.0", "clock: GHz from 0.001"),
        ("ghz = 2.3", "ghz = 2.3\nturbo = [[18, 2.8], [2, 3.6]]", "turbo in rising order of cores"),
        ("smt_share = 0.62", "smt_share = 0.4", "smt_share 0.5 to 1"),
        ("poll_share = 0.1", "poll_share = 1.5", "poll_share 0 to 1"),
        ("link_gbs = 30.0", "link_gbs = 0.0", "bandwidth: all of it is 0.001 GB/s or more"),
        ("store_buffer = 42", "store_buffer = 0", "bandwidth: all of it is 0.001 GB/s or more"),
        ("slice_us = 3000.0", "slice_us = 0.5", "scheduler: slices of 1 us and more"),
        ("wake_us = 1.0", "wake_us = -1.0", "scheduler: "),
        ("[[0.0, 1.0], [50.0, 3.0]", "[[50.0, 1.0], [0.0, 3.0]", "idle_us in rising order"),
        ("[power]", "[umwait]\nwake_ns = -1.0\nmax_us = 1.0\nwait_w = 1.0\n\n[power]", "umwait: wake_ns from 0"),
        ("[power]", "[umwait]\nwake_ns = 1.0\nmax_us = 0.0\nwait_w = 1.0\n\n[power]", "umwait: wake_ns from 0"),
        ("[power]", "[hypervisor]\nrun_ms = 0.0\naway_ms = 1.0\n\n[power]", "hypervisor: run_ms is 0.001 or more"),
        ("[power]", &measured("[[1, 180.0], [0, 50.0]]"), "measured_ns.cas_ping_pong: distances in rising order"),
        ("[power]", &measured("[[0, 50.0], [2, 180.0]]"), "measured_ns.cas_ping_pong: distances in rising order"),
        ("[power]", &measured("[[0, -1.0]]"), "measured_ns.cas_ping_pong: distances in rising order"),
        ("[power]", &measured("[0.0]"), "invalid type: floating point"),
        ("[power]", &with_siblings("-1.0"), "measured_ns.siblings: each from 0"),
        ("[power]", &with_siblings("inf"), "measured_ns.siblings: each from 0"),
    ] {
        let error = complaint("2x18x2", from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
}
