//! Result files: what is written can be read, and what is wrong with one is said.

use std::fs;
use std::path::PathBuf;

use flashlock_native::settings::Choice;
use flashlock_native::stats::Block;
use flashlock_report::machine::Machine;
use flashlock_report::provenance::Provenance;
use flashlock_report::run_stats::{Outcome, Resources, RunStats, SCHEMA, VERSION};

fn sample() -> RunStats {
    let provenance = Provenance::now(SCHEMA, VERSION, vec!["x".into()], Machine::here(Some([2, 18, 2])));
    let outcome = Outcome::Signalled { signal: 9, name: "SIGKILL".into() };
    RunStats::new(provenance, &Choice::DEFAULT, outcome, Resources::default(), &Block::create().unwrap().1.totals())
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
