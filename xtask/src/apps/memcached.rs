//! memcached with clients that know what each answer must be, and with memcaslap; both under the lock.

use std::ffi::OsString;

use anyhow::Result;

use super::counts::Needs;
use super::run::{Facts, Run};
use super::stage::script;
use super::{App, Quick};

pub(crate) const MEMCACHED: App = App {
    name: "memcached",
    packages: &["memcached", "libmemcached-tools", "python3"],
    quick: Quick::Always,
    sources: &[],
    needs: &[Needs::MutexLock(20_000)],
    run,
};

/// What each client does at least, however late it is: as in the script.
const BATCH: i64 = 64;
const SECONDS: &str = "1";
const OPERATIONS: &str = "30000";

fn run(run: &Run) -> Result<()> {
    let mut command: Vec<OsString> = vec!["/usr/bin/python3".into(), script("memcache.py")];
    command.extend([".".into(), run.threads.to_string().into(), SECONDS.into(), OPERATIONS.into()]);
    command.extend(run.words().iter().cloned());
    let done = run.plain(command)?;

    let clients = Facts::of(&done, "part=clients")?;
    let increments = clients.number("increments")?;
    clients.expect("threads", i64::from(run.threads))?;
    clients.at_least("increments", BATCH * i64::from(run.threads))?;
    clients.expect("distinct", increments)?;
    clients.expect("counters", increments)?;
    clients.expect("server_incr", increments)?;
    clients.expect("wrong", 0)?;
    clients.expect("server_set", clients.number("client_set")?)?;

    let memcaslap = Facts::of(&done, "part=memcaslap")?;
    memcaslap.expect("exit", 0)?;
    memcaslap.at_least("gets", 10_000)?;
    memcaslap.at_least("sets", 5_000)?;
    memcaslap.expect("server_gets", memcaslap.number("gets")?)?;
    memcaslap.expect("server_sets", memcaslap.number("sets")?)?;
    for failure in ["get_misses", "verify_misses", "verify_failed"] {
        memcaslap.expect(failure, 0)?;
    }
    Facts::of(&done, "part=server")?.expect("exit", 0)
}
