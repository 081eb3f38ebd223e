//! SQLite in serialized mode: threads that share one connection, whose recursive mutex is taken in every call.

use anyhow::{Result, bail};

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::Source;
use super::{App, Quick};

pub(crate) const SQLITE: App = App {
    name: "sqlite",
    packages: &["libsqlite3-dev"],
    quick: Quick::Always,
    sources: &[Source { file: "sqlite.c", options: &["-lsqlite3"] }],
    needs: &[Needs::MutexLock(20_000)],
    run,
};

const SECONDS: &str = "1.5";

fn run(run: &Run) -> Result<()> {
    let done = run.wrapped([run.compiled("sqlite"), ".".into(), run.threads.to_string().into(), SECONDS.into()])?;
    let facts = Facts::of(&done, "threads=")?;
    facts.expect("threads", i64::from(run.threads))?;
    facts.at_least("rounds", i64::from(run.threads))?;
    facts.expect("rows", facts.number("rounds")?)?;
    facts.expect("sum", facts.number("expected_sum")?)?;
    facts.expect("balance", 1000 * facts.number("accounts")?)?;
    facts.expect("wrong_reads", 0)?;
    if facts.text("integrity") != Some("ok") {
        bail!("the integrity check fails:\n{}", done.transcript());
    }
    Ok(())
}
