//! Which programs are compared by `flashlock compare`, and how they are called.

use std::ffi::OsString;

use anyhow::Result;

use super::programs::{Study, Subject, script};
use crate::apps::{self, Stage};

/// Their names.
pub(crate) const NAMES: [&str; 3] = ["programs", "leveldb", "kyoto"];

/// The study of that name, its programs and databases made on the stage.
pub(crate) fn prepare(name: &str, stage: &Stage, seconds: f64) -> Result<Study> {
    match name {
        "leveldb" => leveldb(stage, seconds),
        "kyoto" => kyoto(stage, seconds),
        _ => programs(stage, seconds),
    }
}

fn programs(stage: &Stage, seconds: f64) -> Result<Study> {
    let needed = ["kccachetest", "rocksdb", "memcached", "mariadb", "leveldb", "sqlite", "python", "perl"];
    apps::make_ready(&needed, stage)?;
    let subject = |title, name, before: &[OsString], after: &[OsString], metric| -> Result<Subject> {
        let words = [&["sh".into(), script(name)?], before, &["{threads}".into()], after].concat();
        Ok(Subject { title, command: words, metric })
    };
    let source = |name| [apps::script(name)];
    let seconds: [OsString; 1] = [seconds.to_string().into()];
    let leveldb = |title, keys: &str| -> Result<Subject> {
        let database = stage.path(format!("database-{keys}"));
        let before = [stage.path("leveldb").into(), database.into(), "readrandom".into(), keys.into()];
        subject(title, "leveldb.sh", &before, &seconds, Some(OPERATIONS))
    };
    let reads = ["reads_per_second", "Reads per second", "reads per second: ([0-9]+)"];
    let operations = ["operations_per_second", "Operations per second", "operations per second: ([0-9]+)"];
    let rounds = ["rounds", "Rounds", "rounds=([0-9]+)"];
    let events = ["events_per_second", "Events per second", "oltp_per_second=([0-9.]+)"];
    Ok(Study {
        name: "programs",
        title: "Programs under several locks",
        about:
            "Programs that lock pthread mutexes, with 2, 8, 32 threads, as tests/apps/compare runs them, compared by \
                `flashlock compare`."
                .to_owned(),
        threads: "2,8,32",
        seconds: None,
        subjects: vec![
            subject("Kyoto Cabinet, kccachetest wicked", "kccachetest.sh", &[], &[], None)?,
            subject("RocksDB, db_bench readwhilewriting", "rocksdb.sh", &[], &[], Some(reads))?,
            leveldb("LevelDB, readrandom, empty", "0")?,
            leveldb("LevelDB, readrandom, 1,000,000 keys", "1000000")?,
            subject("memcached under memcaslap", "memcached.sh", &[], &[], Some(operations))?,
            subject("MariaDB under sysbench oltp_read_write", "mariadb.sh", &source("mariadb.py"), &[], Some(events))?,
            subject(
                "SQLite, one connection shared",
                "sqlite.sh",
                &[stage.path("sqlite").into()],
                &seconds,
                Some(rounds),
            )?,
            subject("Python, queues and pools", "python.sh", &source("queues.py"), &[], None)?,
            subject("Perl, shared variables", "perl.sh", &source("shared.pl"), &[], None)?,
        ],
    })
}

/// What the drivers print. (The regular expression stands for a number behind `=`.)
const OPERATIONS: [&str; 3] = ["operations_per_second", "Operations per second", "operations_per_second=([0-9]+)"];
/// As the papers: from one thread to far more than this machine has CPUs.
const THREADS: &str = "1,2,4,8,16,32";

fn leveldb(stage: &Stage, seconds: f64) -> Result<Study> {
    apps::make_ready(&["leveldb"], stage)?;
    let driver = stage.path("leveldb");
    let subject = |title, mix: &str, keys: &str| -> Result<Subject> {
        let database = stage.path(format!("database-{keys}"));
        let fixed = ["sh".into(), script("leveldb.sh")?, driver.clone().into(), database.into()];
        let words = [mix, keys, "{threads}", &seconds.to_string()].map(Into::into);
        Ok(Subject { title, command: fixed.into_iter().chain(words).collect(), metric: Some(OPERATIONS) })
    };
    Ok(Study {
        name: "leveldb",
        title: "LevelDB under several locks",
        about:
            "Threads that read random keys of a LevelDB of 1,000,000 keys, of an empty one, and of one that another \
                thread writes to: the experiments of CNA (EuroSys'19, section 7.1.2) and of Malthusian locks \
                (EuroSys'17, section 6.5), by tests/apps/leveldb.cc."
                .to_owned(),
        threads: THREADS,
        seconds: Some(seconds),
        subjects: vec![
            subject("readrandom, 1,000,000 keys", "readrandom", "1000000")?,
            subject("readrandom, empty database", "readrandom", "0")?,
            subject("readwhilewriting, 1,000,000 keys", "readwhilewriting", "1000000")?,
        ],
    })
}

fn kyoto(stage: &Stage, seconds: f64) -> Result<Study> {
    apps::make_ready(&["kyoto-cabinet"], stage)?;
    let seconds_text = seconds.to_string();
    let words = ["--mix", "wicked", "--keys", "10000000", "--threads", "{threads}", "--seconds", &seconds_text];
    let command = std::iter::once(stage.path("kyoto").into()).chain(words.map(Into::into)).collect();
    Ok(Study {
        name: "kyoto",
        title: "Kyoto Cabinet behind one mutex, under several locks",
        about: "Random operations on an in-memory database of Kyoto Cabinet, with keys from a range of 10,000,000 and \
                behind one mutex: the `wicked` test of kccachetest, as CNA (EuroSys'19, section 7.1.3) and Malthusian \
                locks (EuroSys'17, section 6.6) changed it, by tests/apps/kyoto.cc."
            .to_owned(),
        threads: THREADS,
        seconds: Some(seconds),
        subjects: vec![Subject { title: "wicked, 10,000,000 keys", command, metric: Some(OPERATIONS) }],
    })
}
