//! Berkeley DB: several processes on one environment, with process-shared mutexes and condition variables in mapped
//! files.

use anyhow::Result;

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::Source;
use super::{App, Quick};

pub(crate) const BERKELEY_DB: App = App {
    name: "berkeley-db",
    packages: &["libdb-dev"],
    quick: Quick::Always,
    sources: &[Source { file: "bdb.c", options: &["-ldb"] }],
    needs: &[Needs::SharedMutexLock(10_000), Needs::SharedCondWait(20), Needs::SharedRwLock(1000)],
    run,
};

const SECONDS: &str = "1.5";

fn run(run: &Run) -> Result<()> {
    let done = run.wrapped([run.compiled("bdb"), ".".into(), run.threads.to_string().into(), SECONDS.into()])?;
    let facts = Facts::of(&done, "processes=")?;
    facts.at_least("processes", 2)?;
    facts.expect("threads", i64::from(run.threads))?;
    facts.at_least("rounds", i64::from(run.threads))?;
    facts.expect("rows", facts.number("rounds")?)?;
    facts.expect("sum", facts.number("expected_sum")?)?;
    facts.expect("accounts", 16)?;
    facts.expect("balance", 1000 * facts.number("accounts")?)
}
