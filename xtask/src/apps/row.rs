//! The runs of one application with one number of threads.

use std::time::Instant;

use anyhow::Result;
use flashlock_native::stats::Totals;

use super::App;
use super::counts::Counts;
use super::plan::Plan;
use super::run::{Run, Shown, Wrapper};
use super::stage::Stage;
use crate::steps::{Tally, watched};

/// What came of them.
#[derive(Default)]
pub(crate) struct Row {
    /// One for each wrapper of the plan.
    pub(crate) cells: Vec<String>,
    pub(crate) counts: Counts,
    /// What the library counted, by lock.
    pub(crate) totals: Vec<(String, Totals)>,
    pub(crate) tally: Tally,
}

impl Row {
    /// Runs them. `counted`: the locks under which this application has been counted.
    pub(crate) fn run(app: &App, threads: u32, plan: &Plan, stage: &Stage, counted: &mut Vec<String>) -> Self {
        let (mut row, shown) = (Self::default(), Shown::default());
        for wrapper in &plan.wrappers {
            if !plan.includes(app.quick, wrapper, threads) {
                row.cells.push("-".to_owned());
                continue;
            }
            let is_reference = wrapper.counts_file.is_some();
            let count = !is_reference && !counted.contains(&wrapper.name);
            if count {
                counted.push(wrapper.name.clone());
            }
            let name = format!("{} with {threads} threads under {}", app.name, wrapper.name);
            let started = Instant::now();
            let result = watched(&name, || {
                let run = Run::new(app.name, threads, stage, wrapper, count, &shown)?;
                (app.run)(&run)?;
                row.judge(app, wrapper, &run)
            });
            row.note(app, wrapper, &name, started, result);
            if is_reference && row.tally.failed > 0 {
                println!("{} does not work under glibc: no lock is tried\n", app.name);
                break;
            }
        }
        row.cells.resize(plan.wrappers.len(), "-".to_owned());
        row
    }

    /// Whether the run called what it had to, and the locks were those that they were to be.
    fn judge(&mut self, app: &App, wrapper: &Wrapper, run: &Run) -> Result<()> {
        if let Some(file) = &wrapper.counts_file {
            self.counts = Counts::read(file)?;
            self.counts.suffice(app.needs)?;
        }
        if let Some(counters) = &run.counters {
            self.totals.push((wrapper.name.clone(), counters.sufficient(app.needs)?));
        }
        Ok(())
    }

    fn note(&mut self, app: &App, wrapper: &Wrapper, name: &str, started: Instant, result: Result<()>) {
        let seconds = started.elapsed().as_secs_f64();
        let Err(error) = result else {
            self.tally += Tally::PASSED;
            self.cells.push(format!("{seconds:.1}"));
            return;
        };
        let check = format!("apps.{}", app.name);
        let exception = wrapper.lock.as_ref().and_then(|lock| lock.exception(&check));
        if let Some(exception) = exception {
            self.tally += Tally { skipped: 1, ..Tally::default() };
            self.cells.push("cannot".to_owned());
            println!("skipped {name}: {} ({error:#})\n", exception.reason);
            return;
        }
        self.tally += Tally::FAILED;
        self.cells.push("FAILED".to_owned());
        println!("not ok {name} ({seconds:.1} s): {error:#}\n");
    }
}
