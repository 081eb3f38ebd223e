//! Kyoto Cabinet's own test of its cache hash database: reader-writer locks and one mutex for each slot.

use anyhow::{Result, bail};

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};
use crate::child::Finished;

pub(crate) const KCCACHETEST: App = App {
    name: "kccachetest",
    packages: &["kyotocabinet-utils"],
    quick: Quick::Always,
    sources: &[],
    needs: &[Needs::MutexLock(10_000), Needs::RwLock(10_000)],
    run,
};

/// Operations of all threads together. In `order` each thread also walks over all others' records.
const ORDER: u32 = 40_000;
const QUEUE: u32 = 150_000;
const WICKED: u32 = 200_000;

fn run(run: &Run) -> Result<()> {
    let threads = run.threads;
    let each = ORDER / threads;
    let order = kccachetest(run, &["order", "-etc", "-tran"], each)?;
    expect_count(&order, "setting records:", each * threads)?;
    expect_count(&order, "getting records:", each * threads)?;
    expect_count(&order, "removing records:", 0)?;
    let queue = kccachetest(run, &["queue"], QUEUE / threads)?;
    expect_count(&queue, "<Queue Test>", 0)?;
    // Random operations, each checked by the program; how many records are left is chance.
    kccachetest(run, &["wicked", "-it", "2"], WICKED / threads)?;
    Ok(())
}

/// Runs one of its tests; it says `ok` at the end.
fn kccachetest(run: &Run, test: &[&str], operations: u32) -> Result<Finished> {
    let mut command = vec!["kccachetest".to_owned(), test[0].to_owned(), "-th".to_owned(), run.threads.to_string()];
    command.extend(test[1..].iter().map(|word| (*word).to_owned()));
    command.push(operations.to_string());
    let done = run.wrapped(command)?;
    if done.stdout.trim_end().lines().last() != Some("ok") {
        bail!("it does not say `ok`:\n{}", done.transcript());
    }
    Ok(done)
}

/// The first `count: N` after a line.
fn expect_count(done: &Finished, after: &str, wanted: u32) -> Result<()> {
    let mut lines = done.stdout.lines().skip_while(|line| *line != after);
    let count = lines.find_map(|line| line.strip_prefix("count: ")?.split_whitespace().next()?.parse::<u32>().ok());
    if count != Some(wanted) {
        bail!("count after `{after}`: {count:?}, not {wanted}\n{}", done.transcript());
    }
    Ok(())
}
