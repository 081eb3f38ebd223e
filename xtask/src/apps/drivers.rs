//! Our own drivers of LevelDB and Kyoto Cabinet, which also make `docs/results/leveldb.md` and `docs/results/kyoto.md`.

use anyhow::Result;

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::Source;
use super::{App, Quick};

pub(crate) const LEVELDB: App = App {
    name: "leveldb",
    packages: &["libleveldb-dev", "g++"],
    quick: Quick::Once,
    sources: &[Source { file: "leveldb.cc", options: &["-lleveldb"] }],
    needs: &[Needs::MutexLock(20_000)],
    run: leveldb,
};

pub(crate) const KYOTO_CABINET: App = App {
    name: "kyoto-cabinet",
    packages: &["libkyotocabinet-dev", "g++"],
    quick: Quick::Once,
    sources: &[Source { file: "kyoto.cc", options: &["-lkyotocabinet"] }],
    needs: &[Needs::MutexLock(20_000), Needs::RwLock(10_000)],
    run: kyoto,
};

/// A database that does not fit into LevelDB's write buffer, so that there are files, blocks and a cache.
const KEYS: &str = "60000";
const SECONDS: &str = "0.7";

fn leveldb(run: &Run) -> Result<()> {
    for (directory, keys, mix) in
        [("full", KEYS, "readrandom"), ("empty", "0", "readrandom"), ("full", KEYS, "readwhilewriting")]
    {
        if !run.directory.join(directory).exists() {
            run.wrapped([
                run.compiled("leveldb"),
                "--db".into(),
                directory.into(),
                "--mix".into(),
                "fill".into(),
                "--keys".into(),
                keys.into(),
            ])?;
        }
        let facts = drive(run, "leveldb", &["--db", directory, "--mix", mix, "--keys", keys])?;
        facts.expect("wrong", 0)?;
        facts.expect("found", if keys == "0" { 0 } else { facts.number("operations")? })?;
        facts.at_least("writes", if mix == "readwhilewriting" { 1 } else { 0 })?;
    }
    Ok(())
}

fn kyoto(run: &Run) -> Result<()> {
    // Few keys, so that records are found, appended to, counted up and removed.
    let facts = drive(run, "kyoto", &["--mix", "wicked", "--keys", "5000"])?;
    facts.expect("inside", facts.number("operations")?)?;
    facts.expect("met", 0)?;
    facts.at_least("records", 100)?;
    facts.expect("visited", facts.number("records")?)?;
    facts.expect("wrong", 0)
}

/// Runs a driver for a short time.
fn drive(run: &Run, program: &str, options: &[&str]) -> Result<Facts> {
    let threads = run.threads.to_string();
    let fixed = ["--threads", &threads, "--seconds", SECONDS];
    let words = options.iter().chain(&fixed).map(|&word| word.into());
    let done = run.wrapped(std::iter::once(run.compiled(program)).chain(words))?;
    let facts = Facts::of(&done, "mix=")?;
    facts.expect("threads", i64::from(run.threads))?;
    facts.at_least("least", 1)?;
    Ok(facts)
}
