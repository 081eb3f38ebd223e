//! The parameters of workloads as options of the command line.

use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use flashlock_workloads::catalogue::{self, Parameter, Values, WorkloadInfo, Wrong};

use crate::failure::Failure;
use crate::usage::number;

/// An option: a parameter's name, with all workloads that have it.
struct Choice {
    name: &'static str,
    value_name: String,
    range: (u32, u32),
    help: String,
    workloads: Vec<&'static str>,
}

static CHOICES: LazyLock<Vec<Choice>> = LazyLock::new(|| {
    let choice = |(name, rows): (&'static str, Vec<(&WorkloadInfo, &Parameter)>)| {
        let (_, one) = rows[0];
        let what = |(work, one): &(&WorkloadInfo, &Parameter)| {
            format!("{}: {} (default {}; the paper: {})", work.name, one.meaning, one.default, one.paper)
        };
        Choice {
            name,
            value_name: one.unit.to_uppercase(),
            range: (one.least, one.most),
            help: rows.iter().map(what).collect::<Vec<_>>().join(". "),
            workloads: rows.iter().map(|(work, _)| work.name).collect(),
        }
    };
    catalogue::parameters().into_iter().map(choice).collect()
});

/// The names of all options.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CHOICES.iter().map(|choice| choice.name)
}

/// What the user has set.
pub(super) struct Parameters(Vec<(&'static Choice, u32)>);

impl Parameters {
    /// The values of this workload's parameters. Fails if the user has set one that it does not have.
    pub(super) fn values(&self, work: &'static WorkloadInfo) -> Result<Values, Failure> {
        let mut values = Values::new(work);
        for &(choice, value) in &self.0 {
            values.set(choice.name, value).map_err(|wrong| {
                let others = match wrong {
                    Wrong::Unknown { .. } => {
                        format!("; '{}' is a parameter of {}", choice.name, choice.workloads.join(", "))
                    }
                    Wrong::OutOfRange { .. } => String::new(),
                };
                Failure::usage(format_args!("--{}: {wrong}{others}", choice.name))
            })?;
        }
        Ok(values)
    }
}

impl clap::Args for Parameters {
    fn augment_args(command: Command) -> Command {
        command.args(CHOICES.iter().map(|choice| {
            let (least, most) = choice.range;
            Arg::new(choice.name)
                .long(choice.name)
                .value_name(choice.value_name.as_str())
                .help(choice.help.as_str())
                .allow_negative_numbers(true)
                .value_parser(number(least, most))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Parameters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let set = |choice: &'static Choice| Some((choice, *matches.get_one::<u32>(choice.name)?));
        Ok(Self(CHOICES.iter().filter_map(set).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
