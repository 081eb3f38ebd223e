//! Which lock a program is to run with: `--lock`, else the environment, else the default.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use flashlock_locks::catalogue::{APART, ApartInfo, DEFAULT, LOCKS, LockInfo, OptionInfo, OrderInfo};
use flashlock_locks::machine::Tunables;
use flashlock_locks::order::Order;
use flashlock_locks::rw::catalogue::{RW_LOCKS, RwInfo};
use flashlock_native::settings::{self, Choice, RwChoice};

use crate::failure::Failure;

/// A lock with its options, as text and as what the text means.
#[derive(Clone, Debug)]
pub(crate) struct LockChoice {
    /// `NAME[:option=value,…]`.
    pub(crate) text: String,
    /// What it means.
    pub(crate) choice: Choice,
}

impl LockChoice {
    /// From `--lock`, or from the environment if that is not given.
    pub(crate) fn find(argument: Option<&str>) -> Result<Self, Failure> {
        if let Some(text) = argument {
            return Self::parse(text, "--lock");
        }
        let Some(text) = std::env::var_os(settings::ENV).filter(|text| !text.is_empty()) else {
            return Ok(Self { text: DEFAULT.info().name.to_owned(), choice: Choice::DEFAULT });
        };
        let text = text.into_string().map_err(|text| {
            Failure::usage(format_args!("{}='{}': is not UTF-8", settings::ENV, text.to_string_lossy()))
        })?;
        Self::parse(&text, settings::ENV)
    }

    /// From a text; `from` says in errors where it was given.
    pub(crate) fn parse(text: &str, from: &str) -> Result<Self, Failure> {
        let bad = |what: &dyn std::fmt::Display| {
            Failure::usage(format_args!("{from} '{text}': {what} (flashlock locks describes them)"))
        };
        if text.is_empty() {
            return Err(bad(&format_args!("names no lock; known are: {}", known())));
        }
        let choice = settings::parse_here(text).map_err(|error| bad(&error))?;
        Ok(Self { text: text.to_owned(), choice })
    }
}

/// The readers-writer lock, as text, if the user names one: by `--rw`, else by the environment. An error if it makes no sense.
pub(crate) fn find_rw(argument: Option<&str>) -> Result<Option<String>, Failure> {
    let inherited = || std::env::var_os(settings::ENV_RW).filter(|text| !text.is_empty());
    let (text, from) = match argument {
        Some(text) => (text.to_owned(), "--rw"),
        None => match inherited() {
            Some(text) => (text.to_string_lossy().into_owned(), settings::ENV_RW),
            None => return Ok(None),
        },
    };
    parse_rw(&text, from).map(|_| Some(text))
}

fn parse_rw(text: &str, from: &str) -> Result<RwChoice, Failure> {
    let bad = |what: &dyn std::fmt::Display| {
        Failure::usage(format_args!("{from} '{text}': {what} (flashlock locks describes them)"))
    };
    if text.is_empty() {
        return Err(bad(&format_args!("names no lock; known are: {}", known_rw())));
    }
    settings::parse_rw_here(text, &mut Tunables::DEFAULT.clone()).map_err(|error| bad(&error))
}

/// The names of all readers-writer locks.
pub(crate) fn known_rw() -> String {
    RW_LOCKS.iter().map(|lock| lock.name).collect::<Vec<_>>().join(" ")
}

/// The names of all locks.
pub(crate) fn known() -> String {
    LOCKS.iter().map(|lock| lock.name).collect::<Vec<_>>().join(" ")
}

/// The names of the locks that no program can be run under.
pub(crate) fn known_apart() -> String {
    APART.iter().map(|lock| lock.name).collect::<Vec<_>>().join(" ")
}

/// What an option means, which values it takes, and which it has when the user says nothing.
pub(crate) fn explained(option: &OptionInfo) -> String {
    let OptionInfo { unit, meaning, least, most, default, words, .. } = option;
    match option.word(*default) {
        Some(default) => format!("{unit} {meaning}: {} (default {default})", words.join(", ")),
        None => format!("{unit} {meaning}: {least} to {most} (default {default})"),
    }
}

/// The same of an order.
pub(crate) fn explained_order(order: &OrderInfo) -> String {
    format!("in which order {} are called: {} (default fifo)", order.meaning, Order::SYNTAX)
}

/// What `FLASHLOCK_TOPOLOGY` imagines, if it is set; an error if it makes no sense.
pub(crate) fn imagined_topology() -> Result<Option<[u32; 3]>, Failure> {
    let Some(text) = std::env::var_os(settings::ENV_TOPOLOGY).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let parsed = text.to_str().and_then(settings::parse_topology);
    parsed.map(Some).ok_or_else(|| {
        Failure::usage(format_args!(
            "{}='{}': is not NODESxCORESxSMT, three numbers from 1 to 4096 such as 2x18x2; correct or unset it",
            settings::ENV_TOPOLOGY,
            text.to_string_lossy()
        ))
    })
}

/// Takes any text, and offers the locks' names to shells that complete. What is wrong with a text is said later, better
/// than clap can.
#[derive(Clone)]
pub(crate) struct LockNames {
    mutexes: &'static [LockInfo],
    rw_locks: &'static [RwInfo],
    apart: &'static [ApartInfo],
}

impl LockNames {
    /// Of mutexes.
    pub(crate) const MUTEXES: Self = Self { mutexes: LOCKS, rw_locks: &[], apart: &[] };
    /// Of readers-writer locks.
    pub(crate) const RW_LOCKS: Self = Self { mutexes: &[], rw_locks: RW_LOCKS, apart: &[] };
    /// Of all.
    pub(crate) const ANY: Self = Self { mutexes: LOCKS, rw_locks: RW_LOCKS, apart: APART };
}

impl TypedValueParser for LockNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        let mutexes = self.mutexes.iter().map(|lock| &lock.facts);
        let rw_locks = self.rw_locks.iter().map(|lock| &lock.facts);
        let facts = mutexes.chain(rw_locks).chain(self.apart.iter().map(|lock| &lock.facts));
        Some(Box::new(facts.map(|facts| PossibleValue::new(facts.name).help(facts.title))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_where_the_text_came_from_and_what_is_known() {
        let failure = LockChoice::parse("mcz", "--lock").unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().starts_with("--lock 'mcz': unknown lock 'mcz'; known are: tas"), "{failure}");
        let failure = LockChoice::parse("tas:bound=5", "--lock").unwrap_err().to_string();
        assert!(
            failure.starts_with("--lock 'tas:bound=5': lock tas takes no option 'bound'; it takes: wait"),
            "{failure}"
        );
        assert!(LockChoice::parse("", "--lock").unwrap_err().to_string().contains("known are: tas"));
    }

    #[test]
    fn readers_writer_locks_are_found_apart() {
        assert_eq!(find_rw(Some("shfl-rw:wait=park")).unwrap().as_deref(), Some("shfl-rw:wait=park"));
        let failure = find_rw(Some("shfl")).unwrap_err();
        assert_eq!(failure.code(), 2);
        let text = failure.to_string();
        assert!(text.starts_with("--rw 'shfl': unknown readers-writer lock 'shfl'; known are: futex-rw"), "{text}");
        assert!(find_rw(Some("")).unwrap_err().to_string().contains("names no lock"));
    }

    #[test]
    fn the_text_is_kept_as_the_user_wrote_it() {
        let lock = LockChoice::parse("mcs:wait=park", "--lock").unwrap();
        assert_eq!((lock.text.as_str(), lock.choice.lock.info().name), ("mcs:wait=park", "mcs"));
    }
}
