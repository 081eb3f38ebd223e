//! stress-ng: mutexes and semaphores taken and given back by threads that change their priority, verified by itself.

use anyhow::{Context, Result, bail};

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};
use crate::child::Finished;
use crate::system;

pub(crate) const STRESS_NG: App = App {
    name: "stress-ng",
    packages: &["stress-ng"],
    quick: Quick::Once,
    sources: &[],
    needs: &[Needs::MutexLock(300), Needs::SemWait(100)],
    run,
};

/// How long it stresses. A number of operations would not do: its semaphore workers do not always see that they have
/// made them.
const SECONDS: &str = "1";

/// Takes the right to real-time priorities from root. The threads of `mutex` give themselves such priorities where they
/// may, and then no other thread runs, not even the one that is to start them.
const ORDINARY: [&str; 3] = ["setpriv", "--bounding-set=-sys_nice", "--"];

fn run(run: &Run) -> Result<()> {
    ["mutex", "sem"].into_iter().try_for_each(|worker| stress(run, worker))
}

fn stress(run: &Run, worker: &str) -> Result<()> {
    let prefix = if system::is_root() { ORDINARY.as_slice() } else { &[] };
    let (workers, threads) = (format!("--{worker}"), format!("--{worker}-procs"));
    let command = ["stress-ng", &workers, "2", &threads, &run.threads.to_string(), "--timeout", SECONDS];
    let options = ["--verify", "--metrics-brief", "--temp-path", "."];
    let done = run.wrapped(prefix.iter().copied().chain(command).chain(options))?;
    let text = format!("{}{}", done.stdout, done.stderr);
    if text.contains("fail:") || text.contains("error:") || !text.contains("successful run completed") {
        bail!("{}", done.transcript());
    }
    if operations(&done, worker)? < 10 {
        bail!("it did hardly anything:\n{}", done.transcript());
    }
    Ok(())
}

/// How many operations a kind of worker has made: the number after its name.
fn operations(done: &Finished, worker: &str) -> Result<u64> {
    let lines = done.stdout.lines().chain(done.stderr.lines()).filter(|line| line.contains("metrc:"));
    let mut counts = lines.filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != worker);
        words.nth(1)?.parse().ok()
    });
    counts.next().with_context(|| format!("no operations of {worker}:\n{}", done.transcript()))
}
