//! `flashlock calibrate`: what it writes can be read, and what it must not overwrite it does not.

mod common;

use std::fs;
use std::process::Command;

use common::{binary, flashlock, scratch};
use flashlock_sim::Description;
use predicates::prelude::*;
use predicates::str::{contains, is_empty, starts_with};
use serde_json::Value;

#[test]
fn this_machine_is_described() {
    let file = scratch("this machine.toml");
    let mut command = flashlock();
    command.args(["calibrate", "--quick", "-o"]).arg(&file);
    command.assert().success().stdout(
        contains("L1 load").and(contains("system call")).and(contains("taken from 2x26x2")).and(contains("patience")),
    );
    let machine = Description::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(machine.name.ends_with("-this-machine"), "{}", machine.name);
    assert!(
        machine.source.contains("Measured by flashlock") && machine.source.contains("bandwidth"),
        "{}",
        machine.source
    );
    // Two pairs of CPUs or fewer have all been measured; of more than two the file says that they are a sample.
    let cores = machine.cores();
    assert!(cores < 4 || machine.source.contains(" pairs"), "{}", machine.source);
    // What another core has for itself is measured where an instruction drops lines, and else said not to be.
    let alone = cfg!(target_arch = "x86_64") && !machine.source.contains("modified line, load");
    assert_eq!(machine.source.contains("unwritten line, load"), !alone, "{}", machine.source);
    // What two CPUs hand to each other is in the file, too, if there were two.
    let two = !machine.source.contains("modified line, load");
    assert_eq!(machine.measured_ns.is_some(), two, "{:?}", machine.measured_ns);
    if let Some(measured) = &machine.measured_ns {
        for list in [&measured.cas, &measured.cas_ping_pong, &measured.store_ping_pong] {
            assert!(!list.is_empty() && list.iter().all(|(_, ns)| *ns > 0.0), "{measured:?}");
        }
    }
    // It is not replaced unasked, and nothing is measured in vain.
    flashlock()
        .args(["calibrate", "-o"])
        .arg(&file)
        .assert()
        .code(1)
        .stdout(is_empty())
        .stderr(contains("exists; use --force"));
    let mut command = flashlock();
    command.args(["calibrate", "--quick", "--force", "-o"]).arg(&file).assert().success();
    assert!(Description::parse(&fs::read_to_string(&file).unwrap()).is_ok());
}

#[test]
fn programs_read_what_was_measured() {
    let file = scratch("json.toml");
    for more in [&[][..], &["-o", file.to_str().unwrap()]] {
        let output = flashlock().args(["calibrate", "--quick", "--json"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&result["schema"], &result["version"]), (&"flashlock.calibration".into(), &1.into()));
        assert!(
            result["machine"]["cpus"].as_u64().unwrap() > 0
                && result["date"].is_string()
                && result["command"].is_array()
        );
        assert_eq!((&result["quick"], &result["taken_from"]), (&true.into(), &"2x26x2".into()));
        let figures = result["figures"].as_array().unwrap();
        let load = figures.iter().find(|figure| figure["what"] == "L1 load").unwrap();
        assert!(load["value"].as_f64().unwrap() > 0.0 && load["unit"] == "ns" && load["how"].is_string(), "{load}");
        assert!(load.get("raised_to").is_some_and(Value::is_null), "{load}");
        assert!(result["not_measured"].as_array().unwrap().iter().any(|what| what == "power"), "{result}");
        let text = result["description"].as_str().unwrap();
        let machine = Description::parse(text).unwrap();
        assert!(result["remarks"].as_array().unwrap().iter().all(|remark| {
            let flat = machine.source.split_whitespace().collect::<Vec<_>>().join(" ");
            flat.contains(remark.as_str().unwrap())
        }));
        assert!(more.is_empty() || fs::read_to_string(&file).unwrap() == text);
    }
}

#[test]
fn one_cpu_is_enough() {
    // The first CPU that this process may use, and no other.
    let line = format!(
        "exec taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[,-].*//') '{}' calibrate --quick",
        binary().display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let (text, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{told}");
    let machine = Description::parse(&text).unwrap();
    assert_eq!((machine.name.as_str(), machine.measured_ns.as_ref()), ("here", None));
    assert!(machine.source.contains("modified line, load") && told.contains("context switch"), "{told}\n{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_at_once() {
    for file in ["/proc/nowhere/here.toml", "/"] {
        let mut command = flashlock();
        let refused = command.args(["calibrate", "--force", "-o", file]).assert().code(1).stdout(is_empty());
        refused.stderr(starts_with(format!("flashlock: cannot write '{file}': ")));
    }
    flashlock().args(["calibrate", "--force"]).assert().code(2).stderr(contains("--output"));
}

#[test]
fn help_teaches() {
    flashlock().args(["calibrate", "--help"]).assert().success().stdout(contains("Examples:"));
}

/// In its own words, for programs, and for users of the doctor.
#[test]
fn what_the_default_lock_decides_by_is_shown() {
    let shown = flashlock().args(["calibrate", "--evidence"]).env("COLUMNS", "140").assert().success();
    let parts = ["pause", "line transfer", "wake-up", "patience", "bound", "µs"];
    for part in parts {
        shown.get_output().stdout.windows(part.len()).position(|bytes| bytes == part.as_bytes()).expect(part);
    }
    let output = flashlock().args(["calibrate", "--evidence", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["schema"], &found["version"]), (&"flashlock.evidence".into(), &1.into()));
    for cost in found["costs"].as_array().unwrap() {
        assert!(cost["value"].is_null() || cost["value"].as_f64() > Some(0.0), "{cost}");
        assert!(cost["reckoned"].as_f64() >= Some(1.0) && cost["decides"].is_string(), "{cost}");
    }
    let patience = &found["budgets"].as_array().unwrap()[1];
    assert_eq!(
        (&patience["what"], &patience["unit"], &patience["follows"]),
        (&"patience".into(), &"µs".into(), &true.into())
    );
    let doctor = flashlock().args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let section = report["sections"].as_array().unwrap().last().unwrap();
    assert_eq!(section["title"], "Costs by which the default lock decides");
    assert_eq!(section["findings"].as_array().map(Vec::len), Some(5));
    flashlock().args(["calibrate", "--evidence", "--quick"]).assert().code(2);
}

/// From when on a server pays: a table that the runtime reads, and the same for programs. "Never" is an answer.
#[test]
fn from_when_on_a_server_pays_is_measured() {
    let shown = flashlock().args(["calibrate", "--delegation", "--quick"]).assert().success();
    let table = "[adaptive]\ngo = ";
    shown
        .stdout(contains(table).and(contains("request-ns = ")))
        .stderr(contains("share").and(contains(": mcs")).and(contains("ahead of MCS")));
    let output = flashlock().args(["calibrate", "--delegation", "--quick", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["schema"], &found["version"]), (&"flashlock.delegation".into(), &1.into()));
    let go = &found["thresholds"]["go"];
    assert!(go == "never" || go.as_f64().is_some_and(|go| (0.0..=1.0).contains(&go)), "{go}");
    for row in found["rows"].as_array().unwrap() {
        let number = |name: &str| row[name].as_f64().unwrap();
        assert!(number("ordinary") > 0.0 && number("mcs") > 0.0 && number("served") > 0.0, "{row}");
        assert!((0.0..=1.0).contains(&number("share")) && (0.0..=1.0).contains(&number("heat")), "{row}");
    }
    flashlock().args(["calibrate", "--delegation", "--evidence"]).assert().code(2);
}
