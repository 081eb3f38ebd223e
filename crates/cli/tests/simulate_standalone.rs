//! `flashlock simulate` with locks that no program can be run under.

mod common;

use common::simulated::{read, simulate};
use flashlock_report::results::Results;
use flashlock_workloads::catalogue::WORKLOADS;
use predicates::str::contains;

#[test]
fn closure_locks_run_every_workload_that_never_waits_inside() {
    for work in WORKLOADS.iter().filter(|work| !work.traits.waits_inside).map(|work| work.name) {
        let locks = "mcs,cas,flat-combining,flat-combining:wait=spin,cc-synch,cc-synch:wait=spin,\
                     rcl,rcl:wait=spin,rcl:wait=park";
        let small = [work, "--threads", "1,5", "--seeds", "1", "--millis", "0.2", "--locks", locks];
        let results = read(&format!("closures-{work}.json"), &small);
        assert_eq!(results.points.len(), 18);
        for point in &results.points {
            let speed = point.figures.get("ops_per_us").map(|spread| spread.median);
            assert!(speed.is_some_and(|speed| speed > 0.0), "{work}: {point:?}");
        }
    }
}

/// Servers and their figures; locks without servers have none of these.
#[test]
fn servers_have_rates() {
    let options = ["rcl-locks", "--threads", "40", "--seeds", "1", "--millis", "1", "--locks", "mcs,rcl:wait=spin"];
    let of =
        |servers: &str| read(&format!("servers-{servers}.json"), &[&options[..], &["--servers", servers]].concat());
    let (one, two) = (of("1"), of("2"));
    let rate = |results: &Results, lock: &str, name: &str| {
        results.figure("rcl-locks", "40", lock, name).map(|spread| spread.median)
    };
    for name in ["use_rate", "false_serialization"] {
        let (one, two) = (rate(&one, "rcl:wait=spin", name), rate(&two, "rcl:wait=spin", name));
        assert!(one > two && one.is_some_and(|rate| rate <= 1.0), "{name}: {one:?} with one server, {two:?} with two");
    }
    assert_eq!(rate(&one, "mcs", "use_rate"), None);
    assert_eq!(rate(&one, "rcl:wait=spin", "atomics").map(f64::round), Some(0.0));
}

/// What combining is for: the data stay on one node for longer than a fair lock leaves them there.
#[test]
fn combiners_keep_the_data() {
    let options = ["kvmap", "--threads", "18", "--seeds", "1", "--millis", "1", "--locks"];
    let results = read(
        "combining.json",
        &[&options[..], &["mcs:wait=spin,flat-combining:wait=spin,cc-synch:wait=spin"]].concat(),
    );
    let moves = |lock: &str| results.figure("kvmap", "18", lock, "node_moves").expect("a figure").median;
    for lock in ["flat-combining:wait=spin", "cc-synch:wait=spin"] {
        assert!(moves(lock) < moves("mcs:wait=spin") / 4.0, "{lock}: {} and {}", moves(lock), moves("mcs:wait=spin"));
    }
}

#[test]
fn what_cannot_be_simulated_with_standalone_locks() {
    let refused = |args: &[&str], why: &str| {
        simulate(args).assert().code(2).stderr(contains(why));
    };
    refused(&["--locks", "null"], "excludes nobody: --threads 1");
    refused(&["--locks", "mcs", "--servers", "2"], "none of these locks has servers; rcl has");
    let few = ["--machine", "2x18x2", "--locks", "rcl", "--servers", "64", "--threads", "1"];
    assert!(simulate(&few).output().unwrap().status.success(), "72 CPUs");
    let more = [&few[2..], &["--machine", "opteron-6172"]].concat();
    refused(
        &more,
        "each server has a CPU for itself, and opteron-6172 has 48 CPUs: with rcl one must be left for threads",
    );
    refused(
        &["--lines", "2"],
        "--lines: kvmap has no parameter 'lines'; it has: lookups, external; 'lines' is a parameter of rcl-lines, \
         rcl-locks",
    );
    refused(&["rcl-locks", "--delay", "2"], "--delay: rcl-locks has no parameter 'delay'; it has: lines;");
    refused(&["messages", "--locks", "rcl"], "its sections cannot wait for something");
    refused(&["messages", "--locks", "cc-synch"], "its sections cannot wait for something");
    refused(&["--locks", "cc-synch", "--threads", "4", "--trace", "x.json"], "no --trace");
    refused(&["--locks", "cc-synch:bound=1"], "lock cc-synch has no option 'bound'; its options: wait");
    refused(&["--locks", "nothing"], "null cas flat-combining cc-synch rcl (see 'flashlock locks')");
    let alone = read("null.json", &["--threads", "1", "--seeds", "1", "--millis", "0.2", "--locks", "null,mcs"]);
    let speed = |lock: &str| alone.figure("kvmap", "1", lock, "ops_per_us").expect("a figure").median;
    assert!(speed("null") > speed("mcs"), "{} and {}", speed("null"), speed("mcs"));
}
