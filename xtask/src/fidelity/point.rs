//! What is simulated: settings, points, and the command lines that run them.

/// All latencies times these: the machine's own first.
pub(super) const LATENCIES: [f64; 3] = [1.0, 0.75, 1.25];

/// How often a point is run: with each latency on the list, so many seeds, and with each of them so many placements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Effort([(u32, u32); 3]);

impl Effort {
    pub(super) const FULL: Self = Self([(2, 2), (1, 1), (1, 1)]);
    /// Where seeds differ much.
    pub(super) const MANY: Self = Self([(6, 1), (2, 1), (2, 1)]);
    /// Very long runs.
    pub(super) const FEW: Self = Self([(3, 1), (1, 1), (1, 1)]);
    /// Long runs on machines of one node, where a placement is hardly another than the next.
    pub(super) const LIGHT: Self = Self([(2, 1), (1, 1), (1, 1)]);
    /// No other latencies: for a sign.
    pub(super) const GLANCE: Self = Self([(1, 1), (0, 0), (0, 0)]);
}

/// A workload on a machine, how long it is run and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) machine: &'static str,
    workload: &'static str,
    options: &'static [&'static str],
    millis: Option<f64>,
    effort: Effort,
}

impl Setting {
    pub(super) const fn new(machine: &'static str, workload: &'static str) -> Self {
        Self { machine, workload, options: &[], millis: None, effort: Effort::FULL }
    }

    pub(super) const fn with(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// So many ms of virtual time instead of the command's own choice.
    pub(super) const fn millis(self, millis: f64) -> Self {
        Self { millis: Some(millis), ..self }
    }

    pub(super) const fn effort(self, effort: Effort) -> Self {
        Self { effort, ..self }
    }

    pub(super) fn has(self, option: &str) -> bool {
        self.options.contains(&option)
    }

    pub(super) const fn under(self, lock: &'static str, threads: u32) -> Point {
        Point { setting: self, lock, threads }
    }
}

/// A lock with a number of threads in a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) setting: Setting,
    lock: &'static str,
    pub(super) threads: u32,
}

/// What follows `flashlock simulate`.
pub(super) type Arguments = Vec<String>;

impl Point {
    /// One command line for each of [`LATENCIES`] that is run.
    pub(super) fn commands(&self) -> Vec<Arguments> {
        let runs = LATENCIES.into_iter().zip(self.setting.effort.0);
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

    #[test]
    fn a_point_is_run_with_each_latency() {
        let setting = Setting::new("m", "w").with(&["--lookups", "0"]).millis(2.5).effort(Effort::LIGHT);
        let commands: Vec<String> =
            setting.under("cna:wait=spin", 8).commands().iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            commands,
            [
                "w --machine m --locks cna:wait=spin --threads 8 --seeds 2 --placements 1 --millis 2.5 --lookups 0",
                "w --machine m --locks cna:wait=spin --threads 8 --seeds 1 --placements 1 --latencies 0.75 --millis 2.5 --lookups 0",
                "w --machine m --locks cna:wait=spin --threads 8 --seeds 1 --placements 1 --latencies 1.25 --millis 2.5 --lookups 0",
            ]
        );
        assert_eq!(setting.effort(Effort::GLANCE).under("mcs", 1).commands().len(), 1);
    }
}
