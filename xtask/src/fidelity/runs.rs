//! Running the points, two at a time, and keeping what was run: an interrupted task goes on where it was.
//!
//! A run is kept under the simulator's own bytes and its command line in `target/fidelity`: a changed simulator runs
//! anew.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flashlock_report::results::Results;
use indicatif::{ProgressBar, ProgressStyle};

use super::point::{Arguments, Point};
use crate::child::Program;
use crate::workspace;

/// The simulator itself uses all CPUs; a second one keeps them busy while the longest run of the first goes on alone.
const AT_ONCE: usize = 2;
/// The longest points take a minute or two on a quiet machine.
const LIMIT: Duration = Duration::from_secs(1800);

/// What was simulated, by command line.
pub(super) struct Runs(BTreeMap<Arguments, Results>);

impl Runs {
    /// Runs what these points need and has not been run yet.
    pub(super) fn make(points: &[Point], fresh: bool) -> Result<Self> {
        let simulator = workspace::command()?;
        let kept = workspace::path("target/fidelity").join(hash_of(&fs::read(&simulator)?));
        if fresh && kept.exists() {
            fs::remove_dir_all(&kept).with_context(|| format!("cannot empty {}", workspace::shown(&kept)))?;
        }
        fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", workspace::shown(&kept)))?;
        let mut commands: Vec<Arguments> = points.iter().flat_map(Point::commands).collect();
        commands.sort();
        commands.dedup();
        let (done, missing) = commands.into_iter().partition::<Vec<_>, _>(|command| file_of(&kept, command).exists());
        let bar = progress(done.len(), missing.len())?;
        run_all(&simulator, &kept, &missing, &bar)?;
        bar.finish_and_clear();
        let read = |command: Arguments| Ok((command.clone(), Results::read(&file_of(&kept, &command))?));
        Ok(Self(done.into_iter().chain(missing).map(read).collect::<Result<_>>()?))
    }

    /// A metric of a point: by latency, by round.
    pub(super) fn values(&self, point: &Point, metric: &str) -> Result<Vec<Vec<f64>>, String> {
        point.commands().iter().map(|command| self.of(command, metric)).collect()
    }

    fn of(&self, command: &Arguments, metric: &str) -> Result<Vec<f64>, String> {
        let results = self.0.get(command).ok_or_else(|| format!("was not run: {}", command.join(" ")))?;
        let point = results.points.first().ok_or("the simulator ran nothing")?;
        if let Some(failed) = point.failures.first() {
            return Err(failed.how.lines().next().unwrap_or_default().to_owned());
        }
        let value = |values: &BTreeMap<String, f64>| values.get(metric).copied();
        point.runs.iter().map(|run| value(&run.values).ok_or_else(|| format!("a run has no {metric}"))).collect()
    }
}

fn hash_of(what: &(impl Hash + ?Sized)) -> String {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn file_of(kept: &Path, command: &Arguments) -> PathBuf {
    kept.join(format!("{}.json", hash_of(command)))
}

fn progress(done: usize, missing: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("fidelity {bar:40} {pos}/{len} simulations, {eta} left  {msg}")?;
    let bar = ProgressBar::new((done + missing) as u64).with_style(style).with_position(done as u64);
    bar.reset_eta();
    Ok(bar)
}

/// Runs them, in no order; the first that goes wrong stops the rest.
fn run_all(simulator: &Path, kept: &Path, commands: &[Arguments], bar: &ProgressBar) -> Result<()> {
    let queue = Mutex::new(commands.iter());
    let worker = || -> Result<()> {
        loop {
            let Some(command) = queue.lock().expect("no worker panics").next() else { return Ok(()) };
            bar.set_message(command.join(" "));
            if let Err(error) = run_one(simulator, &file_of(kept, command), command) {
                queue.lock().expect("no worker panics").by_ref().for_each(drop);
                return Err(error);
            }
            bar.inc(1);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })
}

/// One command, into a file that exists only if it is complete.
fn run_one(simulator: &Path, file: &Path, arguments: &Arguments) -> Result<()> {
    let mut command = Command::new(simulator);
    command.arg("simulate").args(arguments).arg("--json");
    let done = Program::new(command, LIMIT).run()?;
    // A simulated run that failed is a result; anything else that goes wrong prints none.
    if !done.stdout.starts_with('{') {
        bail!("{}", done.transcript());
    }
    let unfinished = file.with_extension("part");
    fs::write(&unfinished, &done.stdout).with_context(|| format!("cannot write {}", workspace::shown(&unfinished)))?;
    fs::rename(&unfinished, file).with_context(|| format!("cannot rename {}", workspace::shown(&unfinished)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prints_no_result_stops_the_task_and_leaves_no_file() {
        let kept = workspace::scratch("fidelity-runs").expect("made");
        let commands: Vec<Arguments> = ["a", "b", "c"].map(|word| vec![word.to_owned()]).to_vec();
        let bar = ProgressBar::hidden();
        let error = run_all(Path::new("/bin/echo"), &kept, &commands, &bar).expect_err("echo is no simulator");
        assert!(error.to_string().contains("simulate "), "{error}");
        assert_eq!(fs::read_dir(&kept).expect("there").count(), 0);
        assert_eq!(bar.position(), 0);
    }

    #[test]
    fn every_command_has_a_file_of_its_own() {
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Arguments>();
        let kept = Path::new("kept");
        assert_ne!(file_of(kept, &command(&["a", "b"])), file_of(kept, &command(&["a b"])));
        assert_eq!(file_of(kept, &command(&["a", "b"])), file_of(kept, &command(&["a", "b"])));
    }
}
