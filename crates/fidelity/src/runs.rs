//! The results of the points' command lines.

use std::collections::BTreeMap;

use anyhow::Result;
use flashlock_report::results::Results;

use crate::Simulator;
use crate::point::{Arguments, Point};

/// What was simulated, by command line.
pub(crate) struct Runs(BTreeMap<Arguments, Results>);

impl Runs {
    /// Runs what these points need.
    pub(crate) fn make<'a>(points: impl IntoIterator<Item = &'a Point>, simulator: &impl Simulator) -> Result<Self> {
        let mut commands: Vec<Arguments> = points.into_iter().flat_map(Point::commands).collect();
        commands.sort();
        commands.dedup();
        simulator.simulate(commands).map(Self)
    }

    /// A metric of a point: by latency, by round.
    pub(crate) fn values(&self, point: &Point, metric: &str) -> Result<Vec<Vec<f64>>, String> {
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
