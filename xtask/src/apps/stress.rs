//! stress-ng: mutexes and semaphores taken and given back by threads that change their priority, verified by itself.

use anyhow::{Context, Result, bail};

use super::App;
use super::counts::Needs;
use super::run::Run;
use crate::child::Finished;

pub(crate) const STRESS_NG: App = App {
    name: "stress-ng",
    packages: &["stress-ng"],
    quick: true,
    sources: &[],
    needs: &[Needs::MutexLock(10_000), Needs::SemWait(100)],
    run,
};

/// How long it stresses. A number of operations would not do: its semaphore workers do not always see that they have made them.
const SECONDS: &str = "1";

fn run(run: &Run) -> Result<()> {
    let threads = run.threads.to_string();
    let done = run.wrapped([
        "stress-ng",
        "--mutex",
        "2",
        "--mutex-procs",
        &threads,
        "--sem",
        "2",
        "--sem-procs",
        &threads,
        "--timeout",
        SECONDS,
        "--verify",
        "--metrics-brief",
        "--temp-path",
        ".",
    ])?;
    for worker in ["mutex", "sem"] {
        let operations = operations(&done, worker)?;
        if operations < 100 {
            bail!("{worker}: only {operations} operations:\n{}", done.transcript());
        }
    }
    let text = format!("{}{}", done.stdout, done.stderr);
    if text.contains("fail:") || text.contains("error:") || !text.contains("successful run completed") {
        bail!("{}", done.transcript());
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
