//! RocksDB's benchmark, whose phases say how many keys they found, and its tool, which counts the keys afterwards.

use anyhow::{Result, bail};

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};
use crate::child::Finished;

pub(crate) const DB_BENCH: App = App {
    name: "rocksdb",
    packages: &["rocksdb-tools"],
    quick: Quick::Always,
    sources: &[],
    needs: &[Needs::MutexLock(50_000), Needs::CondWait(10)],
    run,
};

/// Keys in the database.
const KEYS: u32 = 20_000;
/// Operations of all threads together, in each phase.
const OPERATIONS: u32 = 40_000;

fn run(run: &Run) -> Result<()> {
    let filled = db_bench(run, "filluniquerandom", &[])?;
    expect(&filled, "filluniquerandom", &format!(" {KEYS} operations"))?;
    let each = OPERATIONS / run.threads;
    let share = [format!("--reads={each}"), format!("--writes={each}"), "--use_existing_db=1".to_owned()];
    let used = db_bench(run, "overwrite,readwhilewriting,readrandom,verifychecksum", &share)?;
    for phase in ["readwhilewriting", "readrandom"] {
        // One thread's share is all that this line tells.
        expect(&used, phase, &format!("({each} of {each} found)"))?;
    }
    expect(&used, "overwrite", &format!(" {} operations", each * run.threads))?;
    expect(&used, "verifychecksum", " operations")?;
    count_keys(run)?;
    // Writes several keys in one batch and compares them in one snapshot.
    let verified = db_bench(run, "randomwithverify", &[share.as_slice(), &["--numdistinct=500".to_owned()]].concat())?;
    expect(&verified, "randomwithverify", &format!("total:{each} "))?;
    for word in ["inconsistent", "error"] {
        if verified.stdout.contains(word) || verified.stderr.contains(word) {
            bail!("`{word}` in its output:\n{}", verified.transcript());
        }
    }
    Ok(())
}

fn db_bench(run: &Run, phases: &str, options: &[String]) -> Result<Finished> {
    let mut command = vec!["db_bench".to_owned(), format!("--benchmarks={phases}"), "--db=db".to_owned()];
    command.push(format!("--threads={}", run.threads));
    command.push(format!("--num={KEYS}"));
    // Small buffers make it flush and compact while the threads work.
    let fixed = ["--write_buffer_size=1048576", "--compression_type=none", "--seed=42", "--stats_interval=1000000"];
    command.extend(fixed.map(str::to_owned));
    command.extend_from_slice(options);
    run.wrapped(command)
}

/// The line of a phase must contain this.
fn expect(done: &Finished, phase: &str, wanted: &str) -> Result<()> {
    let line =
        done.stdout.lines().find(|line| line.split_whitespace().next() == Some(phase) && line.contains(" ops/sec"));
    if !line.is_some_and(|line| line.contains(wanted)) {
        bail!("{phase}: `{wanted}` is not in {line:?}\n{}", done.transcript());
    }
    Ok(())
}

/// Every key is there once.
fn count_keys(run: &Run) -> Result<()> {
    let done = run.plain(["ldb", "--db=db", "dump", "--count_only"])?;
    if !done.stdout.lines().any(|line| line == format!("Keys in range: {KEYS}")) {
        bail!("not {KEYS} keys:\n{}", done.transcript());
    }
    let done = run.plain(["ldb", "--db=db", "checkconsistency"])?;
    if done.stdout.trim_end() != "OK" {
        bail!("not consistent:\n{}", done.transcript());
    }
    Ok(())
}
