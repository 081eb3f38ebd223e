//! `flashlock simulate`: the same options give the same bytes, every workload runs under every lock, what is wrong is
//! said.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::scratch;
use common::simulated::{machine, output, read, simulate};
use flashlock_locks::catalogue::{LOCKS, PRINCIPAL};
use flashlock_report::results::Results;
use flashlock_sim::Description;
use flashlock_workloads::catalogue::{self, WORKLOADS};
use predicates::prelude::*;
use predicates::str::{contains, is_empty, starts_with};
use serde_json::Value;

/// Little of everything, on two nodes.
const SMALL: &[&str] = &["--threads", "1,4", "--locks", "mcs,cna", "--seeds", "2", "--millis", "0.1"];

#[test]
fn the_same_options_give_the_same_bytes() {
    let [first, second] = [0, 1].map(|_| output(&[SMALL, &["--explain"]].concat()));
    assert_eq!(first, second);
    let [first, second] = ["once.json", "twice.json"].map(|name| {
        let mut results = read(name, &[SMALL, &["--placements", "2"]].concat());
        results.provenance.date.clear();
        results
    });
    assert_eq!(first, second);
    let other = output(&[SMALL, &["--explain", "--seed", "7"]].concat());
    assert_ne!(other, output(&[SMALL, &["--explain"]].concat()), "seeds matter");
}

#[test]
fn results_have_bands_over_seeds_and_placements() {
    let results = read("bands.json", &[SMALL, &["--placements", "2", "--latencies", "1.25"]].concat());
    assert_eq!((results.baseline(), results.method.rounds), ("mcs", 4));
    let simulated = results.method.simulated.as_ref().unwrap();
    assert_eq!((simulated.seeds, simulated.placements, simulated.latencies), (2, 2, 1.25));
    assert!(results.provenance.machine.to_string().starts_with("simulated: 2 x Xeon"));
    for point in &results.points {
        assert_eq!((point.runs.len(), point.failures.len()), (4, 0), "{point:?}");
        let known: BTreeSet<&str> = results.metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert!(point.runs.iter().flat_map(|run| run.values.keys()).all(|name| known.contains(name.as_str())));
    }
    let spread = results.figure("kvmap", "4", "mcs", "ops_per_us").unwrap();
    assert!(spread.min < spread.max, "seeds differ: {spread:?}");
}

#[test]
fn results_say_how_long_each_run_measures() {
    let results = |threads| read("long.json", &["--threads", threads, "--locks", "tas", "--seeds", "1"]).method;
    for (threads, crowded) in [("1,72", None), ("1,73", Some(0.03))] {
        let method = results(threads);
        let simulated = method.simulated.unwrap();
        assert_eq!((method.seconds, simulated.warm_up), (Some(0.004), 0.001));
        assert_eq!(simulated.crowded_seconds, crowded, "{threads} threads on 72 CPUs");
    }
}

#[test]
fn every_workload_runs_under_every_lock() {
    let is_full = std::env::var_os("FLASHLOCK_FULL").is_some();
    for (turn, work) in WORKLOADS.iter().enumerate() {
        // No pair has code of its own. Each workload takes its turn at other locks.
        let has_its_turn = |lock: usize| is_full || (lock + turn).is_multiple_of(3);
        let chosen = LOCKS.iter().enumerate().filter(|(lock, _)| has_its_turn(*lock));
        let all: Vec<_> = chosen.map(|(_, lock)| lock.name).collect();
        // An operation with a buffer takes some tenths of a millisecond.
        let millis = if work.traits.waits_inside && work.traits.arrays.lines > 0 { "1" } else { "0.2" };
        let work = work.name;
        let small = [work, "--threads", "2,5", "--seeds", "1", "--millis", millis, "--locks", &all.join(",")];
        let results = read(&format!("{work}.json"), &small);
        let (points, locks) = (results.points.len(), results.locks.len());
        assert_eq!((points, locks), (2 * locks, all.len()), "{work}");
        for point in &results.points {
            let speed = point.figures.get("ops_per_us").map(|spread| spread.median);
            assert!(speed.is_some_and(|speed| speed > 0.0), "{work}: {point:?}");
        }
    }
}

/// ShflLocks, slides 79 and 80: a thread that only reads is in no other thread's way, least of all where each NUMA node
/// counts its own readers.
#[test]
fn readers_of_several_nodes() {
    let options = ["readdir", "--machine", "8x24", "--threads", "96", "--seeds", "1", "--millis", "2"];
    let results = read("readers.json", &options);
    assert_eq!(results.locks, ["futex-rw", "cst-rw", "shfl-rw"]);
    let speed = |lock: &str| results.figure("readdir", "96", lock, "ops_per_us").expect("a figure").median;
    assert!(speed("cst-rw") > 2.0 * speed("shfl-rw"), "{} and {}", speed("cst-rw"), speed("shfl-rw"));
    assert!(speed("shfl-rw") > 2.0 * speed("futex-rw"), "{} and {}", speed("shfl-rw"), speed("futex-rw"));
}

/// A reader in the middle of a write, or two writers at once, would be noticed.
#[test]
fn writers_exclude_readers() {
    let options = ["readdir", "--lookups", "70", "--threads", "7", "--seeds", "3", "--millis", "1", "--locks"];
    let results = read(
        "writers.json",
        &[&options[..], &["futex-rw,cst-rw,cst-rw:wait=spin,shfl-rw,shfl-rw:wait=park,mcs"]].concat(),
    );
    assert_eq!(results.points.len(), 6);
    for point in &results.points {
        assert!(point.runs.iter().all(|run| run.values["ops_per_us"] > 0.0) && point.failures.is_empty(), "{point:?}");
    }
    let refused = simulate(&["kvmap", "--locks", "shfl-rw"]).assert().code(2);
    refused.stderr(contains("a readers-writer lock, which only readdir has readers for"));
}

/// The principal locks as they are by default, divided by what papers compare with.
#[test]
fn without_a_list_the_principal_locks_run() {
    let results = read("principal.json", &["kvmap", "--threads", "2", "--seeds", "1", "--millis", "0.2"]);
    assert_eq!((results.locks.len(), results.baseline()), (PRINCIPAL.len() + 1, "mcs:wait=spin"));
}

/// Malthusian Locks, section 6.7: producers come twice for each message under a fair lock, and once under one that
/// restricts concurrency.
#[test]
fn fewer_acquisitions_for_each_message() {
    let options = ["messages", "--machine", "sparc-t5", "--threads", "16", "--seeds", "3", "--millis", "12"];
    let results = read("messages.json", &[&options[..], &["--locks", "mcs:wait=spin,mcscr:wait=spin"]].concat());
    let each = |lock: &str| results.figure("messages", "16", lock, "acquisitions").expect("a figure").median;
    let (fair, restricted) = (each("mcs:wait=spin"), each("mcscr:wait=spin"));
    assert!((2.9..3.1).contains(&fair) && (1.9..2.2).contains(&restricted), "{fair} and {restricted}");
}

#[test]
fn a_picture_says_that_it_is_simulated() {
    let file = scratch("picture.svg");
    output(&[SMALL, &["--plot", file.to_str().unwrap()]].concat());
    let svg = fs::read_to_string(&file).unwrap();
    for part in ["<svg", "SIMULATED, not measured · kvmap on 2x18x2 · ", "2 seeds × 1 placement", "<title>"] {
        assert!(svg.contains(part), "no '{part}' in {svg}");
    }
    assert!(!svg.contains("random order"));
}

/// Five of ten threads, or one more, circulate; the others are passive for longer than the run takes.
#[test]
fn a_timeline_shows_those_who_wait_for_ever() {
    let file = scratch("aside.json");
    let run = ["one-in-six", "--machine", "sparc-t5", "--locks", "mcscr:wait=spin", "--threads", "10", "--seeds", "1"];
    output(&[&run[..], &["--millis", "1", "--trace", file.to_str().unwrap()]].concat());
    let timeline: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let of = |name: &str| -> BTreeSet<u64> {
        let events = timeline["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == name);
        events.map(|event| event["tid"].as_u64().unwrap()).collect()
    };
    assert_eq!(of("thread_name").len(), 10);
    assert!(!(&of("wait, not over") - &of("section")).is_empty(), "somebody never had it");
}

#[test]
fn a_timeline_shows_several_nodes() {
    for (work, locks) in [("kvmap", 1), ("open1", 2)] {
        let file = scratch("timeline.json");
        let one = ["--threads", "4", "--locks", "mcs", "--seeds", "2", "--millis", "0.1"];
        output(&[&[work], &one[..], &["--trace", file.to_str().unwrap()]].concat());
        let timeline: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let events = timeline["traceEvents"].as_array().unwrap();
        let of_kind = |kind: &str| events.iter().filter(|event| event["cat"] == kind).collect::<Vec<&Value>>();
        let sections = of_kind("section");
        // Four threads do nothing but want the map's lock: nearly all wait, and are handed it. A flow has two ends.
        let (waits, ends) = (of_kind("wait").len(), of_kind("hand-off").len());
        assert!(work != "kvmap" || waits * 4 > sections.len() * 3 && ends * 2 > sections.len() * 3, "{waits} {ends}");
        let of = |field: fn(&Value) -> &Value| -> BTreeSet<u64> {
            sections.iter().map(|section| field(section).as_u64().unwrap()).collect()
        };
        assert_eq!((of(|it| &it["pid"]).len(), of(|it| &it["tid"]).len()), (2, 4), "nodes and threads of {work}");
        assert_eq!(of(|it| &it["args"]["lock"]).len(), locks, "{work}");
        // Sections of one lock follow one another.
        for lock in of(|it| &it["args"]["lock"]) {
            let ns = |value: &Value| (value.as_f64().unwrap() * 1e3).round() as u64;
            let own = sections.iter().filter(|it| it["args"]["lock"] == lock);
            let times: Vec<_> = own.map(|it| (ns(&it["ts"]), ns(&it["ts"]) + ns(&it["dur"]))).collect();
            assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{work}: {times:?}");
        }
    }
}

/// A machine of two hardware threads, as a file.
fn tiny(name: &str) -> String {
    let tiny = scratch(name);
    let text =
        output(&["--machine", "sparc-t5", "--show-machine"]).replace("cores_per_node = 16", "cores_per_node = 1");
    fs::write(&tiny, text.replace("threads_per_core = 8", "threads_per_core = 2")).unwrap();
    tiny.to_str().unwrap().to_owned()
}

#[test]
fn runs_in_which_threads_take_turns_are_longer() {
    let tiny = tiny("crowd.toml");
    let crowd = ["--machine", &tiny, "--locks", "mcs", "--seeds", "1"];
    let told = |more: &[&str]| output(&[&crowd, more].concat()).replace('\n', " ");
    let (usual, longer) = (told(&["--threads", "2"]), told(&["--threads", "2,5"]));
    assert!(usual.contains("Each run: 4 ms") && !usual.contains("more than"), "{usual}");
    assert!(longer.contains("Each run: 4 ms") && longer.contains("With more than 2 threads 100 ms"), "{longer}");
    let short = told(&["--threads", "5", "--millis", "1"]);
    assert!(short.contains("With more than 2 threads that is short") && short.contains("--millis 100"), "{short}");
}

#[test]
fn nodes_are_filled_one_after_the_other() {
    let run = |more: &[&str]| {
        read("packed.json", &[&["--threads", "4", "--locks", "mcs", "--seeds", "1", "--millis", "0.2"], more].concat())
    };
    let moves = |results: &Results| results.figure("kvmap", "4", "mcs", "node_moves").unwrap().median;
    assert!(moves(&run(&[])) > 0.2, "two on each of two nodes");
    let packed = run(&["--place", "packed"]);
    assert_eq!(moves(&packed), 0.0, "four threads have room on one node");
    assert!(packed.about.contains("one NUMA node's cores after the other"), "{}", packed.about);
}

#[test]
fn time_is_explained() {
    let text = output(&[SMALL, &["--explain"]].concat());
    for part in ["1 thread: where the time", "4 threads: where the time", "compute", "queueing", "together"] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
    assert!(!output(SMALL).contains("where the time"));
}

#[test]
fn tables_fit_the_screen() {
    let args = ["--threads", "1,2,3,4,5,6,7,8,9", "--seeds", "1", "--millis", "0.05", "--explain"];
    for columns in [60, 80, 120] {
        let output = simulate(&args).env("COLUMNS", columns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        // Nothing is broken within a word.
        for word in ["threads", "system", "runnable", "mcscr"] {
            assert!(text.lines().any(|line| line.trim_start().starts_with(word)), "no '{word}' in\n{text}");
        }
    }
    for list in ["--list", "--list-machines"] {
        let list = simulate(&[list]).env("COLUMNS", "60").output().unwrap();
        assert!(String::from_utf8(list.stdout).unwrap().lines().all(|line| line.chars().count() <= 60));
    }
}

#[test]
fn machines_are_listed_shown_and_read_from_files() {
    let list = output(&["--list-machines", "--color=never"]);
    let rows: Vec<Value> = serde_json::from_str(&output(&["--list-machines", "--json"])).unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, Description::names().collect::<Vec<_>>());
    let of_four = rows.iter().find(|row| row["name"] == "4x18x2").unwrap();
    assert_eq!(
        ["packages", "numa_nodes", "cores", "cpus"].map(|field| of_four[field].as_u64().unwrap()),
        [4, 4, 72, 144]
    );
    for name in Description::names() {
        assert!(list.contains(name), "{name}");
        let shown = output(&["--machine", name, "--show-machine"]);
        assert_eq!(Description::parse(&shown), Description::find(name));
    }
    let file = scratch("shown.toml");
    fs::write(&file, output(&["--show-machine"])).unwrap();
    let own = output(&[SMALL, &["--machine", file.to_str().unwrap()]].concat());
    assert_eq!(own, output(SMALL));
    let slower = output(&["--show-machine", "--latencies", "2"]);
    let twice = Description::find("2x18x2").unwrap().with_latencies(2.0);
    assert_eq!(Description::parse(&slower), Ok(twice));
}

#[test]
fn workloads_are_listed() {
    let list = output(&["--list", "--color=never"]);
    let rows: Vec<Value> = serde_json::from_str(&output(&["--list", "--json"])).unwrap();
    assert_eq!(rows.len(), WORKLOADS.len());
    for (row, work) in rows.iter().zip(WORKLOADS) {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(work.name)), "{}", work.name);
        assert_eq!((row["name"].as_str(), row["millis"].as_f64()), (Some(work.name), Some(work.millis)));
        let parameters = row["parameters"].as_array().unwrap();
        assert_eq!(parameters.len(), work.parameters.len(), "{row}");
        for (found, parameter) in parameters.iter().zip(work.parameters) {
            assert_eq!(found["default"].as_u64(), Some(u64::from(parameter.default)), "{found}");
            assert!(list.contains(&format!("--{} {}", parameter.name, parameter.default)), "{list}");
        }
    }
    let unknown = simulate(&["no-such-workload"]).assert().code(2).stdout(is_empty());
    let names: Vec<_> = WORKLOADS.iter().map(|work| work.name).collect();
    let said = contains(format!("[possible values: {}]", names.join(", "))).and(contains("similar value").not());
    unknown.stderr(said);
}

#[test]
fn the_map_is_what_its_options_say() {
    let results = read("mix.json", &[SMALL, &["--lookups", "0", "--external", "500"]].concat());
    assert!(results.about.contains("0% lookups, 500 ns of work outside"), "{}", results.about);
    let plain = read("plain.json", SMALL);
    let speed = |results: &Results| results.figure("kvmap", "1", "mcs", "ops_per_us").unwrap().median;
    assert!(speed(&results) < 0.8 * speed(&plain), "updates and work outside take their time");
    let args = ["lock2", "--threads", "1", "--lookups", "50"];
    simulate(&args).assert().code(2).stdout(is_empty()).stderr(
        "flashlock: --lookups: lock2 has no parameter 'lookups'; it has no parameters; 'lookups' is a parameter \
                 of kvmap, readdir\n",
    );
}

#[test]
fn machines_that_are_none() {
    let unknown = simulate(&["--machine", "no-such-machine"]).assert().code(2).stdout(is_empty());
    unknown.stderr(starts_with(
        "flashlock: --machine: there is no machine and no file 'no-such-machine'; known machines are: 2x18x2",
    ));
    simulate(&["--machine", "2x18x"]).assert().code(2).stdout(is_empty()).stderr(
        "flashlock: --machine: there is no machine and no file '2x18x'; did you mean '2x18x2'? (see 'flashlock \
         simulate --list-machines')\n",
    );
    let cases = [
        ("syntax.toml", "[topology]", "[topology", "line"),
        ("field.toml", "packages = 2", "package = 2", "unknown field `package`"),
        ("missing.toml", "packages = 2\n", "", "missing field `packages`"),
        ("none.toml", "packages = 2", "packages = 0", "topology.packages = 0: 1 or more"),
        ("short.toml", "llc = [21.0, 86.0]", "llc = [21.0]", "latency_ns.llc = [21.0]: 2 numbers are needed"),
        ("negative.toml", "ghz = 2.3", "ghz = -2", "line 21: clock.ghz = -2.0: GHz from 0.001 to 1,000,000,000"),
    ];
    for (name, from, to, complaint) in cases {
        let refused = simulate(&["--machine", &machine(name, from, to)]).assert().code(2).stdout(is_empty());
        refused.stderr(contains(name).and(contains(complaint)).and(contains("flashlock simulate --show-machine")));
    }
    let file = scratch("binary.toml");
    fs::write(&file, b"\xff\xfe\x00").unwrap();
    simulate(&["--machine", file.to_str().unwrap()]).assert().code(2).stderr(contains("cannot read"));
    let directory = simulate(&["--machine", "/"]).assert().code(2);
    directory.stderr("flashlock: --machine: cannot read '/': Is a directory\n");
}

#[test]
fn wrong_usage() {
    simulate(&["--locks", "nothing"]).assert().code(2).stderr(contains("unknown lock 'nothing'; known locks: tas"));
    for nameless in ["", "mcs,,cna", "mcs,", ",mcs", ":wait=spin", " "] {
        let refused = simulate(&["--locks", nameless, "--threads", "2"]).assert().code(2).stdout(is_empty());
        refused.stderr(contains("names no lock").and(contains("known locks: tas")));
    }
    let one_run = simulate(&["--trace", "x.json"]).assert().code(2).stdout(is_empty());
    one_run.stderr(contains("--trace shows one run: name one lock and one number of threads"));
    let nothing = simulate(&["--plot", "x.svg", "--threads", "4", "--locks", "mcs"]).assert().code(2);
    nothing.stderr(contains("--plot compares: name several"));
    // What is allowed is said of negative numbers, too, and not how to pass them as something else.
    for (option, value, allowed) in [
        ("--millis", "-1", "from 0.01 to 1000000"),
        ("--external", "-5", "must be 0 to 1000000, not -5"),
        ("--latencies", "-0.5", "from 0.01 to 100"),
        ("--lookups", "-1", "must be 0 to 100, not -1"),
        ("--threads", "-2", "must be 1 to 4096, not -2"),
        ("--seeds", "-1", "must be 1 to 1000, not -1"),
        ("--placements", "-1", "must be 1 to 1000, not -1"),
        ("--seed", "-1", "from 0 to 18446744073709551615"),
    ] {
        let refused = simulate(&[option, value]).assert().code(2).stdout(is_empty());
        refused.stderr(contains(format!("'{value}' for '{option}")).and(contains(allowed)).and(contains("tip:").not()));
    }
    for file in ["x.png", "x", "-", ".svg", ""] {
        let refused = simulate(&["--plot", file, "--threads", "1,2", "--locks", "mcs", "--millis", "0.05"]).assert();
        refused.code(2).stdout(is_empty()).stderr(contains("name a file that ends in .svg"));
        assert!(file.is_empty() || !Path::new(file).exists(), "{file}");
    }
    for args in [
        &["no-such-workload"][..],
        &["--threads", "0"],
        &["--threads", "4097"],
        &["--threads", "many"],
        &["--seeds", "0"],
        &["--placements", "0"],
        &["--millis", "0"],
        &["--latencies", "-1"],
        &["--lookups", "101"],
        &["--list-machines", "--plot", "x.svg"],
        &["--list-machines", "--machine", "8x24"],
        &["--list", "--list-machines"],
        &["--list", "--lookups", "5"],
        &["--list", "kvmap"],
        &["--show-machine", "--explain"],
        &["--show-machine", "--threads", "2"],
        &["--threads", "2", "--locks", "mcs", "--trace", "my.toml"],
    ] {
        simulate(args).assert().code(2).stdout(is_empty()).stderr(starts_with("flashlock: "));
    }
}

/// One thread would take messages, and none would put them in.
#[test]
fn messages_begin_with_two_threads() {
    let usual = ["messages", "--machine", &tiny("two.toml"), "--locks", "mcs", "--seeds", "1", "--millis", "0.5"];
    let cells: Vec<_> = read("few.json", &usual).points.into_iter().map(|point| point.cell).collect();
    assert_eq!(cells, ["2", "3"]);
    let one = simulate(&["messages", "--threads", "4,1"]).assert().code(2).stdout(is_empty());
    let help = output(&["--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("three consumers (with fewer than six threads, half of them)"), "{help}");
    one.stderr(contains("--threads: with 1 thread messages waits for ever").and(contains("2 at least")));
}

/// The instruction with which waiters rest is the machine's, not that of the computer that simulates.
#[test]
fn waiters_rest_where_the_machine_can() {
    let args = ["lock2", "--locks", "mcs:wait=spin,mcs:wait=umwait", "--threads", "4", "--seeds", "1", "--millis", "1"];
    let refused = simulate(&args).assert().code(2).stdout(is_empty());
    refused.stderr(contains("--locks 'mcs:wait=umwait': machine 2x18x2 has no umwait"));
    let file = machine("rests.toml", "[power]", "[umwait]\nwake_ns = 250.0\nmax_us = 40.0\nwait_w = 0.5\n\n[power]");
    let results = read("rests.json", &[&args[..], &["--machine", &file]].concat());
    let watts = |lock: &str| results.figure("lock2", "4", lock, "watts").expect("a figure").median;
    assert!(watts("mcs:wait=umwait") < 0.9 * watts("mcs:wait=spin"), "{results:?}");
}

#[test]
fn help_teaches() {
    let help = output(&["--help"]);
    let names = WORKLOADS.iter().map(|work| work.name);
    for part in names.chain(["Examples:", "docs/fidelity.md", "Exit status"]) {
        assert!(help.contains(part), "no '{part}' in {help}");
    }
    for (name, _) in catalogue::parameters() {
        assert!(help.contains(&format!("--{name} <")), "no option for '{name}' in {help}");
    }
}

#[test]
fn the_machine_in_the_documentation_can_be_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulate.md");
    let page = fs::read_to_string(page).unwrap();
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(Description::parse(text).map(|machine| machine.cpus()), Ok(72));
    for (field, _) in text.lines().filter_map(|line| line.split_once(" = ")) {
        assert!(page.matches(&format!("`{field}`")).count() > 0, "nothing is said of {field}");
    }
}
