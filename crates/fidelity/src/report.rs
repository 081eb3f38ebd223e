//! What is kept of a run of this task: `docs/results/fidelity.json`, from which the page follows.

use std::collections::BTreeMap;
use std::mem;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flashlock_report::provenance::Provenance;
use serde::{Deserialize, Serialize};

use crate::figure::Ours;
use crate::row::{Goal, Group, Paper, Role, Row, Verdict};
use crate::runs::Runs;
use crate::{Count, Simulator, page, table};

/// The kind of file, and its version: a field that is renamed, removed or means something else raises it.
const SCHEMA: &str = "flashlock.fidelity";
const VERSION: u32 = 2;

/// All rows with what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    #[serde(flatten)]
    pub(crate) provenance: Provenance,
    pub(crate) machines: Vec<Facts>,
    pub(crate) groups: Vec<Shown>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) rows: Vec<Entry>,
}

/// A row with what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) what: String,
    /// Parameters were set with it.
    pub(crate) input: bool,
    pub(crate) paper: Paper,
    pub(crate) goal: Goal,
    pub(crate) ours: Option<Ours>,
    /// What is shown, but not judged: medians, or means where these are what the source tells.
    pub(crate) besides: BTreeMap<String, f64>,
    pub(crate) verdict: Verdict,
    /// What was run, without other latencies.
    pub(crate) commands: Vec<String>,
    /// When, if it was made after the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) later: Option<Later>,
}

/// When a row was made, and by what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Later {
    pub(crate) flashlock: String,
    pub(crate) date: String,
}

/// What a machine's description says, as far as the page shows it; all in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) source: String,
    pub(crate) latency_ns: Latencies,
    pub(crate) clock: Clock,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    pub(crate) transfer: Vec<f64>,
    pub(crate) llc: Vec<f64>,
    pub(crate) dram: Vec<f64>,
    pub(crate) rmw: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Clock {
    pub(crate) step_ns: f64,
}

impl Report {
    /// All rows of the table, simulated.
    pub fn simulated(simulator: &impl Simulator) -> Result<Self> {
        Self::of(&table::groups(), simulator)
    }

    /// Of these rows, as they come out.
    fn of(groups: &[Group], simulator: &impl Simulator) -> Result<Self> {
        let rows = groups.iter().flat_map(|group| &group.rows);
        let runs = Runs::make(rows.flat_map(Row::figures).flat_map(|figure| &figure.points), simulator)?;
        let made = simulator.provenance()?;
        let shown = |group: &Group| Shown {
            title: group.title.to_owned(),
            about: group.about.to_owned(),
            rows: group.rows.iter().map(|row| Entry::new(row, &runs)).collect(),
        };
        Ok(Self {
            provenance: Provenance { schema: SCHEMA.to_owned(), version: VERSION, ..made },
            machines: machines(groups, simulator)?,
            groups: groups.iter().map(shown).collect(),
        })
    }

    /// The same, except that it runs the rows whose names contain one of these texts, and those that it does not have.
    pub fn made_later(self, texts: &[String], simulator: &impl Simulator) -> Result<Self> {
        let report = self.in_todays_words(simulator)?;
        let mut groups = table::groups();
        let all = outline(&groups);
        if let Some(text) = texts.iter().find(|text| !all.iter().any(|row| row.what.contains(text.as_str()))) {
            bail!("no row has \"{text}\" in its name: docs/fidelity.md has all names");
        }
        let is_named = |row: &Row| texts.iter().any(|text| row.what.contains(text.as_str()));
        let there = report.outline();
        for group in &mut groups {
            let is_there = |row: &Row| {
                let is_it = |other: &&Outline| other.title == group.title && other.what == row.what;
                there.iter().find(is_it) == all.iter().find(is_it)
            };
            let rows = mem::take(&mut group.rows).into_iter();
            group.rows = rows.filter(|row| is_named(row) || !is_there(row)).collect();
        }
        report.with(&Self::of(&groups, simulator)?, &table::groups())
    }

    /// The same runs, in the words that the table and the machines' files have now.
    pub fn in_todays_words(self, simulator: &impl Simulator) -> Result<Self> {
        self.told_anew(&table::groups(), |machine| facts(machine, simulator))
    }

    /// How many goals are met, and how many are not.
    pub fn count(&self) -> Count {
        Count::of(&self.groups)
    }

    /// `docs/fidelity.md`.
    pub fn page(&self) -> String {
        page::render(self)
    }

    /// The figure of a row, if it has one.
    pub(crate) fn ours(&self, title: &str, what: &str) -> Option<f64> {
        let rows = self.groups.iter().filter(|group| group.title == title).flat_map(|group| &group.rows);
        rows.filter(|row| row.what == what).find_map(|row| row.ours).map(|ours| ours.value)
    }

    /// The rows of the table: of `newer`, each with its date, or as they were.
    pub(crate) fn with(self, newer: &Self, table: &[Group]) -> Result<Self> {
        let Provenance { flashlock, date, .. } = &newer.provenance;
        let later = Later { flashlock: flashlock.clone(), date: date.clone() };
        let find = |report: &Self, group: &Group, row: &Row| {
            let there = report.groups.iter().find(|there| there.title == group.title);
            there.and_then(|there| there.rows.iter().find(|there| there.what == row.what).cloned())
        };
        let entry = |group: &Group, row: &Row| {
            let made = find(newer, group, row).map(|made| Entry { later: Some(later.clone()), ..made });
            made.or_else(|| find(&self, group, row)).with_context(|| format!("not run: {}, {}", group.title, row.what))
        };
        let group = |group: &Group| {
            let rows = group.rows.iter().map(|row| entry(group, row)).collect::<Result<_>>()?;
            Ok(Shown { title: group.title.to_owned(), about: group.about.to_owned(), rows })
        };
        let groups = table.iter().map(group).collect::<Result<_>>()?;
        let mut machines = self.machines.clone();
        machines.retain(|old| newer.machines.iter().all(|new| new.name != old.name));
        machines.extend(newer.machines.iter().cloned());
        machines.sort_by_key(|one| self.machines.iter().position(|old| old.name == one.name).unwrap_or(usize::MAX));
        Ok(Self { groups, machines, ..self })
    }

    /// The same runs, in the words and with the goals that the table and the machines' files have now. A row that was
    /// run otherwise than the table says, and a machine whose numbers have changed, stay as they were.
    fn told_anew(mut self, table: &[Group], facts: impl Fn(&str) -> Result<Facts>) -> Result<Self> {
        for machine in &mut self.machines {
            let now = facts(&machine.name)?;
            if (&now.latency_ns, &now.clock) == (&machine.latency_ns, &machine.clock) {
                *machine = now;
            }
        }
        for group in table {
            let Some(shown) = self.groups.iter_mut().find(|shown| shown.title == group.title) else { continue };
            group.about.clone_into(&mut shown.about);
            for row in &group.rows {
                if let Some(entry) = shown.rows.iter_mut().find(|entry| entry.what == row.what) {
                    entry.tell_anew(row);
                }
            }
        }
        Ok(self)
    }

    /// Reads `docs/results/fidelity.json`.
    pub fn read(file: &Path) -> Result<Self> {
        Ok(flashlock_report::provenance::read(file, SCHEMA, VERSION)?)
    }

    /// One line for each row, so that two files can be compared line by line.
    pub fn json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(&Self { groups: Vec::new(), ..self.clone() })?;
        text.truncate(text.rfind("[]").context("no groups")?);
        let groups = self.groups.iter().map(|group| {
            let rows = group.rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?.join(",\n      ");
            let (title, about) = (serde_json::to_string(&group.title)?, serde_json::to_string(&group.about)?);
            Ok(format!("    {{ \"title\": {title}, \"about\": {about}, \"rows\": [\n      {rows}\n    ] }}"))
        });
        let groups = groups.collect::<Result<Vec<_>>>()?.join(",\n");
        Ok(format!("{text}[\n{groups}\n  ]\n}}\n"))
    }

    /// What the rows of the table are, without what came out: a file made of other rows is out of date.
    pub(crate) fn outline(&self) -> Vec<Outline> {
        let rows = |group: &Shown| {
            group
                .rows
                .iter()
                .map(|row| Outline {
                    title: group.title.clone(),
                    what: row.what.clone(),
                    input: row.input,
                    paper: row.paper.clone(),
                    goal: row.goal.clone(),
                    commands: row.commands.clone(),
                })
                .collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(rows).collect()
    }
}

/// A row before anything was run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outline {
    pub(crate) title: String,
    pub(crate) what: String,
    input: bool,
    paper: Paper,
    goal: Goal,
    commands: Vec<String>,
}

/// The same of the table itself.
pub(crate) fn outline(groups: &[Group]) -> Vec<Outline> {
    let rows = |group: &Group| {
        group
            .rows
            .iter()
            .map(|row| Outline {
                title: group.title.to_owned(),
                what: row.what.clone(),
                input: row.role == Role::Input,
                paper: row.paper.clone(),
                goal: row.goal.clone(),
                commands: commands(row),
            })
            .collect::<Vec<_>>()
    };
    groups.iter().flat_map(rows).collect()
}

/// What is run for a row, without other latencies.
fn commands(row: &Row) -> Vec<String> {
    let points = row.figures().flat_map(|figure| &figure.points);
    let mut commands: Vec<String> =
        points.map(|point| format!("flashlock simulate {}", point.commands()[0].join(" "))).collect();
    commands.dedup();
    commands
}

impl Entry {
    fn new(row: &Row, runs: &Runs) -> Self {
        let ours = row.figure.as_ref().map(|figure| figure.evaluate(runs));
        let verdict = match (&row.role, &ours) {
            (Role::Open(why), _) => Verdict::Open { why: (*why).to_owned() },
            (_, Some(Ok(ours))) => row.goal.judge(ours),
            (_, Some(Err(how))) => Verdict::Failed { how: how.clone() },
            (_, None) => Verdict::Failed { how: "the row says nothing of what is to be run".to_owned() },
        };
        let besides = row.besides.iter();
        Self {
            what: row.what.clone(),
            input: row.role == Role::Input,
            paper: row.paper.clone(),
            goal: row.goal.clone(),
            ours: ours.and_then(Result::ok),
            besides: besides
                .filter_map(|(name, figure)| Some(((*name).to_owned(), figure.evaluate(runs).ok()?.value)))
                .collect(),
            verdict,
            commands: commands(row),
            later: None,
        }
    }

    /// As the row is now, if the same was run for it.
    fn tell_anew(&mut self, row: &Row) {
        if self.commands != commands(row) {
            return;
        }
        self.input = row.role == Role::Input;
        (self.paper, self.goal) = (row.paper.clone(), row.goal.clone());
        match (&row.role, &self.ours) {
            (Role::Open(why), _) => self.verdict = Verdict::Open { why: (*why).to_owned() },
            (_, Some(ours)) => self.verdict = row.goal.judge(ours),
            (_, None) => (),
        }
    }
}

/// Each machine that a row runs on, in the order in which they come.
fn machines(groups: &[Group], simulator: &impl Simulator) -> Result<Vec<Facts>> {
    let rows = groups.iter().flat_map(|group| &group.rows);
    let points = rows.flat_map(Row::figures).flat_map(|figure| &figure.points);
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&point.setting.machine) {
            names.push(point.setting.machine);
        }
    }
    names.into_iter().map(|name| facts(name, simulator)).collect()
}

/// As the simulator has it.
fn facts(machine: &str, simulator: &impl Simulator) -> Result<Facts> {
    let text = simulator.machine(machine)?;
    toml::from_str(&text).with_context(|| format!("`--show-machine` of {machine} is not what was expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::point::{Setting, Typical};

    fn row(paper: f64, threads: u32) -> Row {
        let figure = Figure::speed(Setting::new("m", "kvmap").under("mcs", threads));
        Row::test("A", Paper::number(paper), Goal::near(paper, 0.5), figure)
    }

    fn machine(source: &str, step_ns: f64) -> Facts {
        let latency_ns = Latencies { transfer: vec![1.0], llc: vec![2.0], dram: vec![3.0], rmw: 4.0 };
        Facts { name: "m".into(), title: "M".into(), source: source.into(), latency_ns, clock: Clock { step_ns } }
    }

    /// A machine and a row that was put in and met, of one thread.
    fn old() -> Report {
        let Row { what, paper, goal, .. } = row(1.0, 1);
        let entry = Entry {
            what,
            input: true,
            paper,
            goal,
            ours: Some(Ours { value: 1.0, typical: Typical::Mean, low: 1.0, high: 1.0 }),
            besides: BTreeMap::new(),
            verdict: Verdict::Met,
            commands: commands(&row(1.0, 1)),
            later: None,
        };
        let group = Shown { title: "G".into(), about: "old".into(), rows: vec![entry] };
        Report { provenance: Provenance::default(), machines: vec![machine("old", 1.0)], groups: vec![group] }
    }

    #[test]
    fn what_was_run_alike_is_told_and_judged_anew() {
        let anew = |row| {
            let table = [Group { title: "G", about: "new", rows: vec![row] }];
            old().told_anew(&table, |_| Ok(machine("new", 1.0))).expect("the machine is there")
        };
        let told = anew(row(2.0, 1));
        let [entry] = &told.groups[0].rows[..] else { panic!("one row") };
        assert_eq!((told.groups[0].about.as_str(), told.machines[0].source.as_str()), ("new", "new"));
        assert_eq!((entry.input, entry.paper.value), (false, Some(2.0)));
        assert_eq!(entry.verdict, Verdict::Missed { by: -0.5, reached: false });
        // Of two threads it was not run, nor is there a row of another name.
        for other in [row(2.0, 2), Row { what: "B".into(), ..row(2.0, 1) }] {
            assert_eq!(anew(other).groups[0].rows, old().groups[0].rows);
        }
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_all_are_there() {
        let mut names: Vec<_> = outline(&table::groups()).into_iter().map(|row| (row.title, row.what)).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        let of = |title: &str| names.iter().filter(|(group, _)| group == title).count();
        assert_eq!(of("Kernel patch: lock2"), 10 + 1, "ten lines, and the peak");
    }

    #[test]
    fn a_machine_with_other_numbers_is_not_the_one_that_was_run() {
        let told = old().told_anew(&[], |_| Ok(machine("new", 2.0))).expect("the machine is there");
        assert_eq!(told, old());
    }
}
