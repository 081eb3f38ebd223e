//! `flashlock compare` without a program: the key-value map under our locks, those of others and closure locks.

mod common;

use common::comparison::{LOCKS, compare, read};
use common::scratch;
use flashlock_report::results::{Results, VERSION};
use predicates::prelude::*;
use predicates::str::{contains, is_empty};

/// A map that takes no time.
const BRIEF: [&str; 8] = ["--locks", "shfl", "--threads", "1,2", "--runs", "1", "--external", "0"];

#[test]
fn the_map_is_compared_without_a_program() {
    let picture = scratch("map.svg");
    let plot = ["--plot", picture.to_str().unwrap()];
    let rivals = ["std", "parking_lot-0.13"];
    let args = ["--locks", LOCKS, "--rivals", &rivals.join(","), "--threads", "1,4", "--runs", "2"];
    let (code, results) = read("map.json", &[&args[..], &plot].concat());
    assert_eq!((code, results.provenance.version), (0, VERSION));
    assert_eq!(results.metrics[0].name, "ops_per_us");
    let panels: Vec<&str> = results.groups.iter().map(|group| group.title.as_str()).collect();
    assert_eq!(panels, ["No work outside the lock", "2 µs of work outside the lock"]);
    assert_eq!((results.locks.len(), results.rivals.as_slice()), (5, &rivals.map(str::to_owned)[..]));
    assert_eq!(results.points.len(), 2 * 2 * 5);
    for point in &results.points {
        assert!(point.runs.len() == 2 && point.figures["ops_per_us"].min > 0.0, "{point:?}");
        assert!((0.5..=1.0).contains(&point.figures["fairness"].min), "{point:?}");
        assert!(point.figures.contains_key("voluntary_switches"));
    }
    let svg = std::fs::read_to_string(&picture).unwrap();
    for part in ["<svg", "Operations per µs", "No work outside the lock", "2 µs of work outside", "parking_lot-0.13"]
    {
        assert!(svg.contains(part), "no '{part}' in {svg}");
    }
    let text = compare(&[&BRIEF[..6], &plot, &["--rivals", "std", "--external", "250"]].concat());
    let told = { text }.assert().success();
    told.stdout(contains("Key-value map").and(contains("fairness")).and(contains("synthetic benchmark")));
}

#[test]
fn a_picture_is_drawn_only_where_one_is_asked_for() {
    let directory = scratch("pictures");
    std::fs::create_dir_all(&directory).unwrap();
    let mut command = compare(&BRIEF);
    command.args(["--rivals", "none"]).current_dir(&directory).assert().success();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "something was left behind");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Locks that run closures, under which no program can be put, run the map natively, and exclude.
#[test]
fn closure_locks_are_compared_on_the_map() {
    const ALL: [&str; 5] = ["rcl", "flat-combining", "cc-synch", "rcl-ordinary", "rcl-adaptive"];
    let (status, results) =
        read("closures", &[&BRIEF[..], &["--rivals", "none", "--closures", &ALL.join(",")]].concat());
    assert_eq!(status, 0);
    assert_eq!(results.rivals, ALL);
    for lock in ALL {
        let mut points = results.points.iter().filter(|point| point.lock == lock);
        assert!(points.all(|point| point.failures.is_empty() && point.runs.len() == 1), "{lock}");
    }
    let wrong = compare(&["--closures", "rcll"]).assert().code(2).stdout(is_empty());
    wrong.stderr(contains("--closures 'rcll': did you mean 'rcl'?"));
    compare(&["--closures", "rcl", "--", "true"]).assert().code(2);
}

#[test]
fn rivals_that_cannot_be_had_are_left_out_with_a_line() {
    let mut without = compare(&BRIEF);
    let told = without.env("CXX", "/no/such/compiler").assert().success().get_output().stderr.clone();
    let told = String::from_utf8(told).unwrap();
    let line = "flashlock: left out: tbb::mutex, absl::Mutex, nsync (to include them: \
                apt-get install g++ libtbb-dev libabsl-dev libnsync-dev)\n";
    assert!(told.contains(line), "{told}");
    let mut named = compare(&[&BRIEF[..], &["--rivals", "nsync"]].concat());
    named.env("CXX", "/no/such/compiler").assert().code(1).stderr(contains("--rivals: left out: nsync"));
}

#[test]
fn rivals_in_cpp_are_compared_where_they_are_installed() {
    let directory = scratch("rivals-tmp");
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["tbb", "absl", "nsync"] {
        let mut command = compare(&[&BRIEF[..], &["--json", "--rivals", name]].concat());
        let output = command.env("TMPDIR", &directory).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(1) && complaint.contains("apt-get install") {
            continue;
        }
        let file = scratch("rival.json");
        std::fs::write(&file, &output.stdout).unwrap();
        let results = Results::read(&file).unwrap_or_else(|error| panic!("{error}\n{complaint}"));
        let runs: usize = results.points.iter().filter(|point| point.lock == name).map(|point| point.runs.len()).sum();
        assert_eq!((output.status.code(), runs), (Some(0), 2), "{complaint}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "something was left behind");
}

#[test]
fn tables_fit_the_screen() {
    for columns in [80, 120] {
        let locks = ["--locks", LOCKS, "--rivals", "std,parking_lot-0.13"];
        let brief = ["--runs", "1", "--threads", "1,2", "--external", "0", "--plot"];
        let mut command = compare(&[&locks[..], &brief].concat());
        command.arg(scratch("screen.svg")).env("COLUMNS", columns.to_string());
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let wide = text.lines().find(|line| line.chars().count() > columns && !line.contains(".svg"));
        assert_eq!(wide, None, "{text}");
    }
}
