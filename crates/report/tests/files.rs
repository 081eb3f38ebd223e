//! Result files: what is written can be read, and errors are reported.

use std::fs;
use std::path::PathBuf;

use flashlock_native::settings::Choice;
use flashlock_native::stats::Block;
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::results::{self, Better, Failed, Group, Method, Metric, Noise, Point, Results, Run};
use flashlock_report::run_stats::{Lock, Object, Outcome, Place, Resources, RunStats, SCHEMA, VERSION};

fn sample() -> RunStats {
    let provenance = Provenance::now(SCHEMA, VERSION, vec!["x".into()], Machine::here(Some([2, 18, 2])));
    let outcome = Outcome::Signalled { signal: 9, name: "SIGKILL".into() };
    let totals = Block::create().unwrap().1.totals();
    let object = Object { kind: Some("mutex".into()), place: Some(Place::default()), ..Object::default() };
    RunStats::new(provenance, Lock::from(&Choice::DEFAULT), outcome, Resources::default(), &totals, vec![object; 300])
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_is_written_is_read() {
    let stats = sample();
    assert_eq!(RunStats::read(&file("good.json", &stats.json())).unwrap(), stats);
}

/// // Files that lack fields of newer versions.
#[test]
fn older_files_are_read() {
    let mut old: serde_json::Value = serde_json::from_str(&sample().json()).unwrap();
    let fields = old.as_object_mut().unwrap();
    assert_eq!(fields["objects"].as_array().map(Vec::len), Some(200));
    fields.remove("objects");
    fields.remove("waits_of");
    fields["lock"].as_object_mut().unwrap().retain(|name, _| name != "why" && name != "rw");
    fields["derived"].as_object_mut().unwrap().retain(|name, _| name != "waiting_threads" && name != "rw_contention");
    assert!(RunStats::read(&file("old.json", &old.to_string())).unwrap().objects.is_empty());
}

#[test]
fn unknown_fields_are_ignored() {
    let text = sample().json().replacen('{', "{ \"from_the_future\": 1,", 1);
    assert!(RunStats::read(&file("more.json", &text)).is_ok());
}

#[test]
fn errors_name_the_file_and_what_is_wrong_with_it() {
    let good = sample().json();
    let cases = [
        ("empty.json", String::new(), "not a result file"),
        ("other.json", good.replace(SCHEMA, "flashlock.other"), "is a 'flashlock.other' file"),
        ("newer.json", good.replace("\"version\": 1", "\"version\": 2"), "use a newer flashlock"),
        ("broken.json", good.replace("\"processes\": 0", "\"processes\": \"many\""), "does not follow"),
    ];
    for (name, text, expected) in cases {
        let error = RunStats::read(&file(name, &text)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
    let error = RunStats::read(&PathBuf::from("/no/such/file.json")).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file.json: No such file"), "{error}");
}

/// Two rounds of two locks, one of which failed once.
fn results() -> Results {
    let point = |lock: &str, speeds: &[f64]| Point {
        group: "G".into(),
        cell: "8".into(),
        lock: lock.into(),
        runs: (0..)
            .zip(speeds)
            .map(|(round, speed)| Run { round, values: [("speed".into(), *speed)].into() })
            .collect(),
        ..Point::default()
    };
    let failed = Failed { round: 2, how: "exit status 1".into(), output: "two\n\"lines\"".into(), ..Failed::default() };
    let mut results = Results {
        provenance: Provenance::now(results::SCHEMA, results::VERSION, vec!["x".into()], Machine::here(None)),
        name: "n".into(),
        metrics: vec![Metric { name: "speed".into(), title: "Speed, m/s".into(), better: Better::More }],
        groups: vec![Group {
            title: "G".into(),
            axis: "threads".into(),
            cells: vec!["8".into()],
            merit: "speed".into(),
        }],
        locks: vec!["glibc".into(), "mcs".into()],
        method: Method { rounds: 3, ..Method::default() },
        noise: Noise::of(&[100.0, 0.1 + 0.2, 102.0]),
        points: vec![
            point("glibc", &[0.1, 1e-7, 3.0]),
            Point { failures: vec![failed], ..point("mcs", &[0.3, 2.5e-7]) },
        ],
        ..Results::default()
    };
    results.derive();
    results.judge();
    results
}

#[test]
fn results_are_read_as_they_were_written() {
    let written = results();
    let text = written.json().unwrap();
    assert_eq!(Results::read(&file("results.json", &text)).unwrap(), written);
    // One line for each point.
    assert_eq!(text.lines().filter(|line| line.contains("\"runs\"")).count(), 2, "{text}");
    let mut unjudged: serde_json::Value = serde_json::from_str(&text).unwrap();
    unjudged.as_object_mut().unwrap().remove("verdicts");
    assert!(Results::read(&file("unjudged.json", &unjudged.to_string())).unwrap().verdicts.is_empty());
    let empty = Results { points: Vec::new(), ..written };
    assert_eq!(Results::read(&file("empty-results.json", &empty.json().unwrap())).unwrap(), empty);
}

#[test]
fn results_that_contradict_themselves_are_refused() {
    let good = results().json().unwrap();
    for (name, from, to, expected) in [
        ("group", "{\"group\":\"G\"", "{\"group\":\"H\"", "points[0].group is 'H', which 'groups' does not list"),
        ("cell", "\"cell\":\"8\"", "\"cell\":\"9\"", "points[0].cell is '9'"),
        ("lock", "\"lock\":\"mcs\",\"fig", "\"lock\":\"tas\",\"fig", "points[1].lock is 'tas'"),
        ("merit", "\"merit\": \"speed\"", "\"merit\": \"grace\"", "group 'G' compares 'grace'"),
        ("verdict", "\"lock\": \"mcs\"", "\"lock\": \"tas\"", "standings[].lock is 'tas'"),
        ("negative", "\"speed\":1e-7", "\"speed\":-1e-7", "points[0].runs has -0.0000001 for 'speed'"),
        ("order", "\"min\":1e-7", "\"min\":9.0", "points[0].figures has 9,"),
        ("p", "\"rounds\":2,\"p\":", "\"rounds\":2,\"p\":7", "points[1].ratio.p is 7"),
        ("low", "\"ratio\":{\"mean\":", "\"ratio\":{\"mean\":-", "points[1].ratio.mean is -"),
        ("twice", "\"lock\":\"mcs\",\"fig", "\"lock\":\"glibc\",\"fig", "points[1] is a second one of lock 'glibc'"),
        ("round", "\"round\":2", "\"round\":3", "points[0] has round 3, but method has 3 rounds"),
        ("again", "\"round\":1", "\"round\":0", "points[0] has round 0 twice"),
        ("name", "\"name\": \"n\"", "\"name\": \"../n\"", "name is '../n'"),
        ("figure", "\"speed\":1e-7", "\"haste\":1e-7", "points[0].figures or runs is 'haste'"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{name}: `{from}` is not in\n{good}");
        let error = Results::read(&file(&format!("bad-{name}.json"), &bad)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_follows_from_the_runs() {
    let results = results();
    let ratio = results.point("G", "8", "mcs").unwrap().ratio.unwrap();
    assert!((ratio.mean - 7.5_f64.sqrt()).abs() < 1e-12 && ratio.rounds == 2, "{ratio:?}");
    assert_eq!(results.failures("G", "mcs"), (1, 3));
    assert!(results.verdicts["G"].standing("mcs").unwrap().failed);
    assert_eq!(results.point("G", "8", "glibc").unwrap().ratio, None);
    let csv = results.csv();
    assert!(csv.starts_with("group,threads,lock,round,speed,failure\nG,8,glibc,0,0.1,\n"), "{csv}");
    assert!(csv.ends_with("G,8,mcs,2,,exit status 1\n"), "{csv}");
}

#[test]
fn the_results_of_this_repository_can_be_read() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    // `fidelity.json` compares with papers instead of comparing locks: `cargo xtask fidelity --quick` reads it.
    // `regret.json` holds figures derived from several thousand runs, without the runs.
    let files = files.filter(|file| !file.ends_with("fidelity.json") && !file.ends_with("regret.json"));
    let files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "json")).collect();
    assert!(!files.is_empty());
    for file in files {
        Results::read(&file).unwrap_or_else(|error| panic!("{error}"));
    }
}
