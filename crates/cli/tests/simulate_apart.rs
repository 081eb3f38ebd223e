//! `flashlock simulate` with locks that no program can be run under.

mod common;

use common::simulated::{read, simulate};
use predicates::str::contains;

#[test]
fn closure_locks_run_every_workload_that_never_waits_inside() {
    for work in ["kvmap", "randarray", "locktorture", "lockstat", "open1", "lock2", "leveldb-readrandom", "one-in-six"]
    {
        let locks = "mcs,flat-combining,flat-combining:wait=spin,cc-synch,cc-synch:wait=spin";
        let small = [work, "--threads", "1,5", "--seeds", "1", "--millis", "0.2", "--locks", locks];
        let results = read(&format!("closures-{work}.json"), &small);
        assert_eq!(results.points.len(), 10);
        for point in &results.points {
            let speed = point.figures.get("ops_per_us").map(|spread| spread.median);
            assert!(speed.is_some_and(|speed| speed > 0.0), "{work}: {point:?}");
        }
    }
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
fn what_cannot_be_simulated_with_locks_apart() {
    let refused = |args: &[&str], why: &str| {
        simulate(args).assert().code(2).stderr(contains(why));
    };
    refused(&["--locks", "null"], "excludes nobody: --threads 1");
    refused(&["--locks", "rcl"], "it needs a server, and there are no simulated servers");
    refused(&["messages", "--locks", "cc-synch"], "its sections cannot wait for something");
    refused(&["--locks", "cc-synch", "--threads", "4", "--trace", "x.json"], "no --trace");
    refused(&["--locks", "cc-synch:bound=1"], "lock cc-synch takes no option 'bound'; it takes: wait");
    refused(&["--locks", "nothing"], "null flat-combining cc-synch rcl (flashlock locks describes them)");
    let alone = read("null.json", &["--threads", "1", "--seeds", "1", "--millis", "0.2", "--locks", "null,mcs"]);
    let speed = |lock: &str| alone.figure("kvmap", "1", lock, "ops_per_us").expect("a figure").median;
    assert!(speed("null") > speed("mcs"), "{} and {}", speed("null"), speed("mcs"));
}
