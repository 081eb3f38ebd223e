//! What is simulated: settings, points, and the command lines that run them.

use flashlock_workloads::catalogue::WorkloadId;
use serde::{Deserialize, Serialize};

/// All latencies times these: the machine's own first.
pub(crate) const LATENCIES: [f64; 3] = [1.0, 0.75, 1.25];

/// How often a point is run: with each latency on the list, so many seeds, and with each of them so many placements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effort {
    /// The fewer threads, the more it matters where they are, and the less a run costs.
    Full,
    /// Where threads may be anywhere, it matters more.
    Drawn,
    /// Where seeds differ much.
    Many,
    /// Very long runs.
    Few,
    /// Long runs on machines of one node, where a placement is hardly another than the next.
    Light,
    /// No other latencies: for a sign.
    Glance,
}

impl Effort {
    fn rounds(self, threads: u32) -> [(u32, u32); 3] {
        match self {
            Self::Full if threads == 1 => [(2, 1), (1, 1), (1, 1)],
            Self::Full if threads <= 16 => [(2, 3), (1, 2), (1, 2)],
            Self::Drawn if threads == 1 => [(2, 1), (1, 1), (1, 1)],
            Self::Drawn if threads <= 4 => [(2, 10), (1, 6), (1, 6)],
            Self::Drawn if threads <= 36 => [(2, 4), (1, 2), (1, 2)],
            Self::Full | Self::Drawn => [(2, 2), (1, 1), (1, 1)],
            Self::Many => [(6, 1), (2, 1), (2, 1)],
            Self::Few => [(3, 1), (1, 1), (1, 1)],
            Self::Light => [(2, 1), (1, 1), (1, 1)],
            Self::Glance => [(1, 1), (0, 0), (0, 0)],
        }
    }
}

/// Which of its runs a source tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Typical {
    /// Their mean; the quotient of two means, if something is divided.
    Mean,
    /// The middle one; the middle one of quotients of two runs each, if something is divided.
    Median,
}

/// A workload on a machine, how long it is run and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) machine: &'static str,
    workload: &'static str,
    options: &'static [&'static str],
    millis: Option<f64>,
    effort: Effort,
    pub(crate) typical: Typical,
}

impl Setting {
    /// The workload is one of the catalogue's, or this does not compile where it is a constant, and panics elsewhere.
    pub(crate) const fn new(machine: &'static str, workload: &'static str) -> Self {
        WorkloadId::named(workload);
        Self { machine, workload, options: &[], millis: None, effort: Effort::Full, typical: Typical::Mean }
    }

    pub(crate) const fn with(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// So many ms of virtual time instead of the command's own choice.
    pub(crate) const fn millis(self, millis: f64) -> Self {
        Self { millis: Some(millis), ..self }
    }

    pub(crate) const fn effort(self, effort: Effort) -> Self {
        Self { effort, ..self }
    }

    /// Medians instead of means.
    pub(crate) const fn medians(self) -> Self {
        Self { typical: Typical::Median, ..self }
    }

    pub(crate) fn has(self, option: &str) -> bool {
        self.options.contains(&option)
    }

    pub(crate) const fn under(self, lock: &'static str, threads: u32) -> Point {
        Point { setting: self, lock, threads }
    }
}

/// A lock with a number of threads in a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) setting: Setting,
    lock: &'static str,
    pub(crate) threads: u32,
}

/// What follows `flashlock simulate`.
pub type Arguments = Vec<String>;

impl Point {
    /// One command line for each of [`LATENCIES`] that is run.
    pub(crate) fn commands(&self) -> Vec<Arguments> {
        let runs = LATENCIES.into_iter().zip(self.setting.effort.rounds(self.threads));
        runs.filter(|(_, (seeds, _))| *seeds > 0)
            .map(|(latencies, (seeds, placements))| self.command(latencies, seeds, placements))
            .collect()
    }

    fn command(&self, latencies: f64, seeds: u32, placements: u32) -> Arguments {
        let Setting { machine, workload, options, millis, .. } = self.setting;
        let mut arguments = format!(
            "{workload} --machine {machine} --locks {} --threads {} --seeds {seeds} --placements {placements}",
            self.lock, self.threads
        );
        if latencies != 1.0 {
            arguments += &format!(" --latencies {latencies}");
        }
        if let Some(millis) = millis {
            arguments += &format!(" --millis {millis}");
        }
        arguments.split(' ').chain(options.iter().copied()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    /// Such an option is a parameter of the workload, or one that any run takes.
    #[test]
    fn settings_have_options_that_their_workload_takes() {
        const OF_ANY: [&str; 2] = ["place", "servers"];
        let groups = table::groups();
        let figures = groups.iter().flat_map(|group| &group.rows).filter_map(|row| row.figure.as_ref());
        for setting in figures.flat_map(|figure| &figure.points).map(|point| point.setting) {
            let known = WorkloadId::named(setting.workload).info().parameters.iter().map(|parameter| parameter.name);
            let known: Vec<&str> = known.chain(OF_ANY).collect();
            let mut names = setting.options.iter().filter_map(|word| word.strip_prefix("--"));
            assert!(names.all(|name| known.contains(&name)), "{setting:?}: there are {known:?}");
        }
    }

    #[test]
    fn a_point_is_run_with_each_latency() {
        let setting = Setting::new("m", "lock2").with(&["--lookups", "0"]).millis(2.5).effort(Effort::Light);
        let commands: Vec<String> =
            setting.under("cna:wait=spin", 8).commands().iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            commands,
            [
                "lock2 --machine m --locks cna:wait=spin --threads 8 --seeds 2 --placements 1 --millis 2.5 --lookups 0",
                "lock2 --machine m --locks cna:wait=spin --threads 8 --seeds 1 --placements 1 --latencies 0.75 \
                 --millis 2.5 --lookups 0",
                "lock2 --machine m --locks cna:wait=spin --threads 8 --seeds 1 --placements 1 --latencies 1.25 \
                 --millis 2.5 --lookups 0",
            ]
        );
        assert_eq!(setting.effort(Effort::Glance).under("mcs", 1).commands().len(), 1);
    }

    #[test]
    fn few_threads_are_placed_more_often_than_many() {
        let placements = |threads| Effort::Drawn.rounds(threads).map(|(seeds, placements)| seeds * placements);
        assert!((2..200).all(|threads| placements(threads).iter().zip(placements(threads + 1)).all(|(a, b)| *a >= b)));
        assert!(placements(2)[0] >= 20, "with two threads on two sockets half of the runs are on one");
    }
}
