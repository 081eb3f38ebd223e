//! Tests of the shipped machines, and of the messages about wrong files.

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

/// The largest distance of the machine.
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

/// The message about a machine's text after one replacement.
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
    let size = "1 to 1024 hardware threads on up to 256 cores and 32 nodes";
    for (name, from, to, says) in [
        ("2x18x2", "packages = 2", "packages = 0", "line 15: topology.packages = 0: 1 or more"),
        ("2x18x2", "threads_per_core = 2", "threads_per_core = 0", "topology.threads_per_core = 0: 1 or more"),
        ("2x18x2", "packages = 2", "packages = 33", "topology = [33, 1, 18, 2]: packages, nodes of each"),
        ("2x18x2", "packages = 2", "packages = 4000000000", size),
        ("8x24", "[0, 1, 2, 2, 1, 2, 2, 1],", "", ": 8 rows of 8 numbers are needed"),
        ("8x24", "[0, 1, 2, 2, 1, 2, 2, 1]", "[0, 1]", ": 8 rows of 8 numbers are needed"),
        ("8x24", "[0, 1,", "[1, 1,", ": from node 0 to node 0 it must be 0"),
        ("8x24", "[0, 1,", "[0, 0,", ": from node 0 to node 1 it must be 0"),
        ("8x24", "[0, 1,", "[0, 3,", ": 4 numbers are needed"),
        (
            "2x18x2",
            "packages = 2\nnodes_per_package = 1",
            "packages = 2\nnodes_per_package = 2",
            "latency_ns.llc = [21.0, 86.0]: 3 numbers",
        ),
    ] {
        let error = complaint(name, from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
}

/// A table of measurements, and the header of the next table.
fn measured(ping_pong: &str) -> String {
    format!("[measured_ns]\ncas = [[0, 60.0]]\ncas_ping_pong = {ping_pong}\nstore_ping_pong = []\n\n[power]")
}

/// The same with measurements of siblings.
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
    let wait = |text: &str| format!("[umwait]\n{text}\n\n[power]");
    for (from, to, says) in [
        ("llc = [21.0, 86.0]", "llc = [21.0]", "latency_ns.llc = [21.0]: 2 numbers are needed, one for each distance"),
        ("transfer = [53.0, 113.0]", "transfer = []", "latency_ns.transfer = []: 2 numbers are needed"),
        ("upgrade = [33.0, 79.0]", "upgrade = [21.0]", "latency_ns.upgrade = [21.0]: 2 numbers are needed"),
        ("dram = [96.0, 146.0]", "dram = [96.0]", "latency_ns.dram = [96.0]: 2 numbers are needed"),
        ("dram = [96.0, 146.0]", "dram = [96.0, 1e7]", "latency_ns.dram = [96.0, 10000000.0]: times are from 0"),
        ("dram = [96.0, 146.0]", "dram = [96.0, 80.0]", "latency_ns.dram = [96.0, 80.0]: what is farther away"),
        ("l1 = 1.6", "l1 = 0.0", "latency_ns.l1 = 0.0: a hit takes more than 0 ns"),
        (
            "l1 = 1.6",
            "l1 = 5.0",
            "latency_ns.l2 = 4.8: a hit in the second level takes no less than one in the first (5.0 ns)",
        ),
        ("rmw = 7.0", "rmw = -7.0", "latency_ns.rmw = -7.0: times are from 0 to 1,000,000 ns"),
        ("overlap = 4.0", "overlap = 0.5", "latency_ns.overlap = 0.5: 1 (one load at a time) to 64"),
        ("pause = 4.0", "pause = 0.0", "latency_ns.pause = 0.0: a poll takes more than 0 ns"),
        ("l1 = { kib = 32, ways = 8 }", "l1 = { kib = 0, ways = 8 }", "cache.l1 = { kib = 0, ways = 8 }: 0 KiB"),
        (
            "l2 = { kib = 256, ways = 8 }",
            "l2 = { kib = 256, ways = 0 }",
            "cache.l2 = { kib = 256, ways = 0 }: 256 KiB (up to 1,048,576) do not make sets of 0 lines",
        ),
        (
            "l2 = { kib = 256, ways = 8 }",
            "l2 = { kib = 16, ways = 8 }",
            "cache.l2.kib = 16: KiB: the second level includes",
        ),
        ("llc = { kib = 46080, ways = 20 }", "llc = { kib = 46080, ways = 7 }", "do not make sets of 7 lines"),
        ("entries = 1024", "entries = 0", "cache.tlb.entries = 0: 1 to 65,536 pages"),
        ("entries = 1024", "entries = 4294967295", "cache.tlb.entries = 4294967295: 1 to 65,536 pages"),
        ("entries = 1024", "entries = 15", "cache.tlb.entries = 15: sets of 8 pages, or one smaller one"),
        ("page_kib = 4", "page_kib = 1", "cache.tlb.page_kib = 1: pages of 4 to 4,194,304 KiB"),
        ("page_kib = 4", "page_kib = 268435456", "cache.tlb.page_kib = 268435456: pages of 4 to"),
        ("l1 = { kib = 32, ways = 8 }", "l1 = { kib = 1048576, ways = 8 }", "KiB of all caches of all cores and nodes"),
        ("busy_w = 3.0", "busy_w = -3.0", "power.busy_w = -3.0: from 0 to 1,000,000 W"),
        ("name = \"2x18x2\"", "name = \"\"", "name = \"\": it must not be empty"),
        ("name = \"2x18x2\"", "name = \"two words\"", "name = \"two words\": it must be one word"),
        ("name = \"2x18x2\"", "name = \"a\\nc\"", "name = \"a\\nc\": it must be one word"),
        (
            "threads_per_core = 2",
            "threads_per_core = 2\ndistances = [[0, 4294967295], [1, 0]]",
            "topology.distances = [[0, 4294967295], [1, 0]]: 2 at most, for so many nodes",
        ),
        ("[[0.0, 1.0], [50.0, 3.0]", "[[nan, 1.0], [50.0, 3.0]", "scheduler.idle_us = [[NaN, 1.0], [50.0, 3.0], "),
        ("[power]", "[hypervisor]\nrun_ms = 1e-10\naway_ms = 0.0\n\n[power]", "hypervisor.run_ms = 1e-10: 0.001 to"),
        ("ghz = 2.3", "ghz = -2", "clock.ghz = -2.0: GHz from 0.001"),
        (
            "ghz = 2.3",
            "ghz = 2.3\nturbo = [[18, 2.8], [2, 3.6]]",
            "clock.turbo = [[18, 2.8], [2, 3.6]]: in rising order",
        ),
        ("ghz = 2.3", "ghz = 2.3\nturbo = [[18, 0]]", "clock.turbo = [[18, 0.0]]: GHz from 0.001"),
        ("pipelines = 1.0", "pipelines = 0.5", "clock.pipelines = 0.5: 1 or more"),
        ("smt_share = 0.62", "smt_share = 0.4", "clock.smt_share = 0.4: a share from 0.5 to 1"),
        ("poll_share = 0.1", "poll_share = 1.5", "clock.poll_share = 1.5: a share from 0 to 1"),
        ("link_gbs = 30.0", "link_gbs = 0.0", "bandwidth.link_gbs = 0.0: 0.001 to 1,000,000,000 GB/s"),
        ("store_buffer = 42", "store_buffer = 0", "bandwidth.store_buffer = 0: 1 or more stores"),
        ("slice_us = 3000.0", "slice_us = 0.5", "scheduler.slice_us = 0.5: slices are from 1 to 1,000,000,000 us"),
        ("slice_us = 3000.0", "slice_us = 1.1e9", "scheduler.slice_us = 1100000000.0: slices are from 1 to"),
        ("slice_us = 3000.0", "slice_us = 1e14", "scheduler.slice_us = 100000000000000.0: slices are from 1 to"),
        ("slice_us = 3000.0", "slice_us = inf", "scheduler.slice_us = inf: slices are from 1 to"),
        ("wake_us = 1.0", "wake_us = -1.0", "scheduler.wake_us = -1.0: times are from 0 to 1,000,000 us"),
        ("[[0.0, 1.0], [50.0, 3.0]", "[[50.0, 1.0], [0.0, 3.0]", "in rising order"),
        ("[[0.0, 1.0], [50.0, 3.0]", "[[0.0, -1.0], [50.0, 3.0]", "scheduler.idle_us = [[0.0, -1.0], [50.0, 3.0], "),
        ("[power]", &wait("wake_ns = -1.0\nmax_us = 1.0\nwait_w = 1.0"), "umwait.wake_ns = -1.0: times are from 0"),
        ("[power]", &wait("wake_ns = 1.0\nmax_us = 0.0\nwait_w = 1.0"), "umwait.max_us = 0.0: more than 0"),
        ("[power]", &wait("wake_ns = 1.0\nmax_us = 1.0\nwait_w = nan"), "umwait.wait_w = NaN: from 0 to 1,000 W"),
        ("[power]", "[hypervisor]\nrun_ms = 1.0\naway_ms = -1.0\n\n[power]", "hypervisor.away_ms = -1.0: 0 to"),
        (
            "[power]",
            &measured("[[1, 180.0], [0, 50.0]]"),
            "cas_ping_pong = [[1, 180.0], [0, 50.0]]: distances in rising order",
        ),
        ("[power]", &measured("[[0, 50.0], [2, 180.0]]"), "distances in rising order, below 2"),
        ("[power]", &measured("[[0, -1.0]]"), "measured_ns.cas_ping_pong = [[0, -1.0]]: times are from 0"),
        ("[power]", &measured("[0.0]"), "measured_ns.cas_ping_pong: invalid type: floating point"),
        ("[power]", &with_siblings("-1.0"), "measured_ns.siblings.load = -1.0: times are from 0"),
        ("[power]", &with_siblings("inf"), "measured_ns.siblings.load = inf: times are from 0"),
    ] {
        let error = complaint("2x18x2", from, to);
        assert!(error.contains(says), "{to}: {error}");
        let (line, field) = placed("2x18x2", from, to, &error);
        let key = field.split('.').nth(1).unwrap_or(&field);
        assert!(
            line.starts_with(key) || line == format!("[{key}]") || field.starts_with("measured_ns.siblings"),
            "{line}: {error}"
        );
    }
}

/// The line that an error names, and the field.
fn placed(name: &str, from: &str, to: &str, error: &str) -> (String, String) {
    let text = Description::shipped(name).unwrap().replacen(from, to, 1);
    let (number, rest) = error.strip_prefix("line ").and_then(|rest| rest.split_once(": ")).expect(error);
    let line = text.lines().nth(number.parse::<usize>().unwrap() - 1).expect(error);
    (line.to_owned(), rest.split([' ', ':']).next().unwrap().to_owned())
}

#[test]
fn what_is_missing_or_unknown_is_named_with_its_table_and_line() {
    for (from, to, line, says) in [
        ("packages = 2\n", "", "[topology]", ": topology: missing field `packages`"),
        ("ways = 20", "rays = 20", "llc = { kib = 46080, rays = 20 }", ": cache.llc: unknown field `rays`"),
        ("ghz = 2.3", "gigahertz = 2.3", "gigahertz = 2.3", ": clock: unknown field `gigahertz`"),
        (
            "packages = 2",
            "packages = \"two\"",
            "packages = \"two\"",
            ": topology.packages: invalid type: string \"two\"",
        ),
        ("[power]", "[powers]", "[powers]", ": unknown field `powers`"),
        (
            "[[0.0, 1.0], [50.0, 3.0]",
            "[[0.0, 1.0], [50.0, 3.0, 7.0]",
            "idle_us = [[0.0, 1.0], [50.0, 3.0, 7.0], [500.0, 15.0]]",
            ": scheduler.idle_us: a list of lists has two numbers in each",
        ),
        (
            "ghz = 2.3",
            "ghz = 2.3\nturbo = [[2, 3.6, 9.0]]",
            "turbo = [[2, 3.6, 9.0]]",
            ": clock.turbo: a list of lists has two numbers in each",
        ),
    ] {
        let error = complaint("2x18x2", from, to);
        assert!(error.contains(says), "{to}: {error}");
        assert_eq!(placed("2x18x2", from, to, &error).0, line, "{error}");
    }
    // A missing top-level field has no line.
    assert_eq!(complaint("2x18x2", "title = \"", "# \""), "missing field `title`");
}
