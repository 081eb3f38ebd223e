//! Which programs are compared by `flashlock compare`, and how they are called.

use anyhow::Result;

use super::programs::{Study, Subject, require_packages, script};
use crate::apps::{self, Stage};

/// Their names.
pub(crate) const NAMES: [&str; 3] = ["choosing", "leveldb", "kyoto"];

/// How to get what they need.
const SETUP: &str = "cargo xtask setup --apps=quick";

/// The study of that name, its programs and databases made on the stage.
pub(crate) fn prepare(name: &str, stage: &Stage, seconds: f64) -> Result<Study> {
    match name {
        "leveldb" => leveldb(stage, seconds),
        "kyoto" => kyoto(stage, seconds),
        _ => choosing(),
    }
}

fn choosing() -> Result<Study> {
    require_packages(&["kyotocabinet-utils", "rocksdb-tools", "memcached", "libmemcached-tools"], SETUP)?;
    let subject = |title, name, metric| -> Result<Subject> {
        Ok(Subject { title, command: vec!["sh".into(), script(name)?, "{threads}".into()], metric })
    };
    let reads = ["reads_per_second", "Reads per second", "reads per second: ([0-9]+)"];
    let operations = ["operations_per_second", "Operations per second", "operations per second: ([0-9]+)"];
    Ok(Study {
        name: "choosing",
        title: "Three programs under several locks",
        about: "Three programs that lock pthread mutexes, with 2, 8, 32 threads, as tests/apps/compare runs them, compared by \
                `flashlock compare`."
            .to_owned(),
        threads: "2,8,32",
        seconds: None,
        subjects: vec![
            subject("Kyoto Cabinet, kccachetest wicked", "kccachetest.sh", None)?,
            subject("RocksDB, db_bench readwhilewriting", "rocksdb.sh", Some(reads))?,
            subject("memcached under memcaslap", "memcached.sh", Some(operations))?,
        ],
    })
}

/// What the drivers print. (The regular expression stands for a number behind `=`.)
const OPERATIONS: [&str; 3] = ["operations_per_second", "Operations per second", "operations_per_second=([0-9]+)"];
/// As the papers: from one thread to far more than this machine has CPUs.
const THREADS: &str = "1,2,4,8,16,32";

fn leveldb(stage: &Stage, seconds: f64) -> Result<Study> {
    require_packages(apps::LEVELDB_PACKAGES, SETUP)?;
    stage.compile(&apps::LEVELDB_SOURCE)?;
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
        about: "Threads that read random keys of a LevelDB of 1,000,000 keys, of an empty one, and of one that another thread writes \
                to: the experiments of CNA (EuroSys'19, section 7.1.2) and of Malthusian locks (EuroSys'17, section 6.5), by tests/apps/leveldb.cc."
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
    require_packages(apps::KYOTO_PACKAGES, SETUP)?;
    stage.compile(&apps::KYOTO_SOURCE)?;
    let seconds_text = seconds.to_string();
    let words = ["--mix", "wicked", "--keys", "10000000", "--threads", "{threads}", "--seconds", &seconds_text];
    let command = std::iter::once(stage.path("kyoto").into()).chain(words.map(Into::into)).collect();
    Ok(Study {
        name: "kyoto",
        title: "Kyoto Cabinet behind one mutex, under several locks",
        about: "Random operations on an in-memory database of Kyoto Cabinet, with keys from a range of 10,000,000 and behind one mutex: the \
                `wicked` test of kccachetest, as CNA (EuroSys'19, section 7.1.3) and Malthusian locks (EuroSys'17, section 6.6) changed it, by \
                tests/apps/kyoto.cc."
            .to_owned(),
        threads: THREADS,
        seconds: Some(seconds),
        subjects: vec![Subject { title: "wicked, 10,000,000 keys", command, metric: Some(OPERATIONS) }],
    })
}
