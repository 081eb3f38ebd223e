//! Servers and their clients, both under the lock; each is driven by a Python script of `tests/apps`, which says what
//! it prints.

use std::ffi::OsString;

use anyhow::Result;

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::script;
use super::{App, Quick};

pub(crate) const MARIADB: App = App {
    name: "mariadb",
    packages: &["mariadb-server-core", "mariadb-client-core", "sysbench", "python3"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::MutexLock(20_000), Needs::CondWait(50), Needs::RwLock(300)],
    run: mariadb,
};

/// Its server is processes without threads: it has no mutexes, but semaphores in shared memory.
pub(crate) const POSTGRESQL: App = App {
    name: "postgresql",
    packages: &["postgresql", "postgresql-contrib", "python3"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::SharedSemWait(10)],
    run: postgresql,
};

pub(crate) const NGINX: App = App {
    name: "nginx",
    packages: &["nginx-light", "python3"],
    quick: Quick::Never,
    sources: &[],
    needs: &[Needs::MutexLock(5000), Needs::CondWait(500)],
    run: nginx,
};

/// Events of each of sysbench's scripts.
const EVENTS: i64 = 400;
const TRANSACTIONS: i64 = 1600;
const REQUESTS: i64 = 3200;

/// Runs a script with the number of threads and so much to do; the facts of its line.
fn drive(run: &Run, name: &str, amount: i64, start: &str) -> Result<Facts> {
    let fixed = ["/usr/bin/python3".into(), script(name), ".".into(), run.threads.to_string().into()];
    let words = fixed.into_iter().chain([OsString::from(amount.to_string())]).chain(run.words().iter().cloned());
    Facts::of(&run.plain(words)?, start)
}

fn mariadb(run: &Run) -> Result<()> {
    let facts = drive(run, "mariadb.py", EVENTS, "part=mariadb")?;
    facts.expect("oltp", EVENTS)?;
    facts.expect("rows", 1000 * facts.number("tables")?)?;
    facts.expect("transfers", EVENTS)?;
    facts.expect("movements", EVENTS)?;
    facts.expect("balance", 20_000)?;
    facts.expect("bad_tables", 0)?;
    facts.expect("exit", 0)
}

fn postgresql(run: &Run) -> Result<()> {
    let facts = drive(run, "postgres.py", TRANSACTIONS, "part=postgres")?;
    let made = TRANSACTIONS / i64::from(run.threads) * i64::from(run.threads);
    facts.expect("transactions", made)?;
    facts.expect("rows", made)?;
    for sum in ["accounts", "tellers", "branches"] {
        facts.expect(sum, facts.number("history")?)?;
    }
    facts.expect("exit", 0)
}

fn nginx(run: &Run) -> Result<()> {
    let facts = drive(run, "nginx.py", REQUESTS, "part=nginx")?;
    facts.expect("requests", REQUESTS)?;
    facts.expect("wrong", 0)?;
    facts.expect("logged", REQUESTS)?;
    facts.expect("logged_bytes", facts.number("bytes")?)?;
    facts.expect("alerts", 0)?;
    facts.expect("exit", 0)
}
