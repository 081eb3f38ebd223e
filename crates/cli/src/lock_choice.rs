//! Chooses the locks for a program: those of `--lock` and `--rw`, else of the environment, else the default; or the
//! program's own.

use std::ffi::{OsStr, OsString};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use flashlock_locks::catalogue::rw::{RW_DEFAULT, RW_LOCKS, RwId, RwInfo};
use flashlock_locks::catalogue::{
    DEFAULT, LOCKS, LockId, LockInfo, OptionInfo, OrderInfo, STANDALONE, StandaloneId, StandaloneInfo,
};
use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::order::Order;
use flashlock_native::settings::{self, BadChoice, Choice, RwChoice};
use flashlock_report::run_stats::{Lock, Unnamed, Why};

use crate::failure::Failure;
use crate::suggest::did_you_mean;

/// A lock with its options, as text and parsed.
#[derive(Clone, Debug)]
pub(crate) struct LockChoice {
    /// `NAME[:option=value,…]`.
    pub(crate) text: String,
    /// The parsed text.
    pub(crate) choice: Choice,
}

/// The lock for mutexes.
#[derive(Clone, Debug)]
pub(crate) enum Under {
    /// The program's own locks.
    Glibc,
    /// A lock of the catalogue.
    Ours(LockChoice),
}

/// The lock for readers-writer locks.
#[derive(Clone, Debug)]
pub(crate) enum RwUnder {
    /// The program's own locks.
    Glibc,
    /// A lock of the catalogue, as text and parsed.
    Ours(String, RwChoice),
}

/// The locks for a program.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    pub(crate) mutex: Under,
    pub(crate) rw: RwUnder,
    pub(crate) why: Why,
    /// If only one was named: the other one.
    unnamed: Option<Unnamed>,
}

impl LockChoice {
    /// The default lock.
    pub(crate) fn default_lock() -> Self {
        Self { text: DEFAULT.info().name.to_owned(), choice: Choice::DEFAULT }
    }

    /// Parses a text. `from` says in errors where the text was given.
    pub(crate) fn parse(text: &str, from: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Err(bad(text, from, &format!("no lock is named; known locks: {}", known())));
        }
        let choice = settings::parse(text, Tunables::DEFAULT).and_then(Choice::here);
        let choice = choice.map_err(|error| bad(text, from, &explain(&error, &[settings::GLIBC], from)))?;
        Ok(Self { text: text.to_owned(), choice })
    }
}

impl Under {
    /// Parses a text. `from` says in errors where the text was given.
    pub(crate) fn parse(text: &str, from: &str) -> Result<Self, Failure> {
        if is_glibc(text, from)? { Ok(Self::Glibc) } else { LockChoice::parse(text, from).map(Self::Ours) }
    }

    /// The value of `FLASHLOCK`, if it is set.
    pub(crate) fn inherited() -> Result<Option<Self>, Failure> {
        let Some(text) = inherited(settings::ENV)? else { return Ok(None) };
        Self::parse(&text, settings::ENV).map(Some)
    }

    /// The value for the preload library.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Glibc => settings::GLIBC,
            Self::Ours(lock) => &lock.text,
        }
    }
}

impl RwUnder {
    /// Parses a text. `from` says in errors where the text was given.
    pub(crate) fn parse(text: &str, from: &str) -> Result<Self, Failure> {
        if is_glibc(text, from)? {
            return Ok(Self::Glibc);
        }
        if text.is_empty() {
            return Err(bad(text, from, &format!("no lock is named; known locks: {}", known_rw())));
        }
        let choice = settings::parse(text, Tunables::DEFAULT).and_then(RwChoice::here);
        choice
            .map(|choice| Self::Ours(text.to_owned(), choice))
            .map_err(|error| bad(text, from, &explain(&error, &[settings::GLIBC], from)))
    }

    /// The one of the option `--rw`, else that of `FLASHLOCK_RW`, else the default.
    pub(crate) fn chosen(option: Option<&str>) -> Result<Self, Failure> {
        let named = match option {
            Some(text) => Some(Self::parse(text, "--rw")?),
            None => Self::inherited()?,
        };
        Ok(named.unwrap_or_else(Self::default_lock))
    }

    fn default_lock() -> Self {
        Self::Ours(RW_DEFAULT.info().name.to_owned(), RwChoice::DEFAULT)
    }

    /// The value of `FLASHLOCK_RW`, if it is set.
    pub(crate) fn inherited() -> Result<Option<Self>, Failure> {
        let Some(text) = inherited(settings::ENV_RW)? else { return Ok(None) };
        Self::parse(&text, settings::ENV_RW).map(Some)
    }

    /// The value for the preload library.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Glibc => settings::GLIBC,
            Self::Ours(text, _) => text,
        }
    }

    /// The lock's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Glibc => settings::GLIBC,
            Self::Ours(_, choice) => choice.lock.info().name,
        }
    }
}

impl Locks {
    /// From the command line, else from the environment. If neither names a lock, the default depends on the run. A run
    /// that counts keeps the program's own locks, because the user wants to know about these. Other runs use the
    /// default locks.
    pub(crate) fn find(lock: Option<&str>, rw: Option<&str>, counts: bool) -> Result<Self, Failure> {
        if let Some(list) = lock.filter(|text| is_list(text)) {
            return Err(Failure::usage(format_args!(
                "run takes one lock; to try several: flashlock compare --locks {list} -- CMD"
            )));
        }
        let (mutex, named_rw) = match (lock, rw) {
            (Some(lock), rw) => (Some(Under::parse(lock, "--lock")?), rw),
            (None, rw) => (Under::inherited()?, rw),
        };
        let named_rw = match named_rw {
            Some(rw) => Some(RwUnder::parse(rw, "--rw")?),
            None => RwUnder::inherited()?,
        };
        let why = match (lock.or(rw), mutex.is_some() || named_rw.is_some()) {
            (Some(_), _) => Why::Argument,
            (None, true) => Why::Environment,
            (None, false) if counts => Why::Today,
            (None, false) => Why::Unknown,
        };
        let unnamed = match (&mutex, &named_rw) {
            (None, Some(_)) => Some(Unnamed::Mutexes),
            (Some(_), None) => Some(Unnamed::RwLocks),
            _ => None,
        };
        let mutex = mutex.unwrap_or_else(|| match why {
            Why::Today => Under::Glibc,
            _ => Under::Ours(LockChoice::default_lock()),
        });
        let rw = named_rw.unwrap_or_else(|| match mutex {
            Under::Glibc => RwUnder::Glibc,
            Under::Ours(_) => RwUnder::default_lock(),
        });
        Ok(Self { mutex, rw, why, unnamed })
    }

    /// The description of the locks in a report.
    pub(crate) fn described(&self) -> Lock {
        let mutex = match &self.mutex {
            Under::Glibc => Lock::glibc(),
            Under::Ours(lock) => Lock::from(&lock.choice),
        };
        let locks = Lock { rw: self.rw.name().to_owned(), why: self.why, unnamed: self.unnamed, ..mutex };
        let Some(tunables) = self.tunables() else { return locks };
        let Tunables { bound_us, max_shuffles, wake_ahead, .. } = tunables;
        Lock { bound_us, max_shuffles, wake_ahead, ..locks }
    }

    /// The options that both locks have in the program: those of `--lock`, and over them those of `--rw`. `None` if
    /// both are glibc's.
    fn tunables(&self) -> Option<Tunables> {
        let of_mutex = match &self.mutex {
            Under::Glibc => None,
            Under::Ours(lock) => Some(lock.choice.tunables),
        };
        match &self.rw {
            RwUnder::Glibc => of_mutex,
            RwUnder::Ours(text, alone) => {
                let merged = settings::parse(text, of_mutex.unwrap_or(Tunables::DEFAULT)).and_then(RwChoice::here);
                Some(merged.unwrap_or(*alone).tunables)
            }
        }
    }
}

/// A variable's value, if it is set.
fn inherited(name: &str) -> Result<Option<String>, Failure> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let not_text =
        |text: OsString| Failure::usage(format_args!("{name}='{}': the value is not UTF-8", text.to_string_lossy()));
    text.into_string().map(Some).map_err(not_text)
}

/// Whether a text names glibc's own locks, which have no options.
fn is_glibc(text: &str, from: &str) -> Result<bool, Failure> {
    match text.split_once(':') {
        Some((settings::GLIBC, _)) => Err(bad(text, from, "glibc's locks have no options")),
        _ => Ok(text == settings::GLIBC),
    }
}

/// Whether a text lists several locks, as for `flashlock compare --locks`.
fn is_list(text: &str) -> bool {
    let name = |lock: &str| lock.split(':').next().unwrap_or_default().to_owned();
    let is_known = |name: String| name == settings::GLIBC || LockId::from_name(&name).is_some();
    // A piece without a value may also be an option that is written wrongly.
    name(text).contains(',') || settings::split_list(text).iter().skip(1).any(|lock| is_known(name(lock)))
}

/// The name of a readers-writer lock, if the text names one, in whatever case.
pub(crate) fn rw_named(text: &str) -> Option<&'static str> {
    let name = text.split(':').next().unwrap_or_default().to_lowercase();
    RwId::from_name(&name).map(|lock| lock.info().name)
}

/// The failure for a wrong text. `what` quotes the part that is wrong.
fn bad(text: &str, from: &str, what: &str) -> Failure {
    Failure::usage(format_args!("{from}: {what} ({})", see(text)))
}

/// The command that shows more about the lock that a text names; if no lock has this name, about all locks.
pub(crate) fn see(text: &str) -> String {
    let name = &text.split(':').next().unwrap_or_default().to_lowercase();
    let is_known = LockId::from_name(name).is_some() || RwId::from_name(name).is_some();
    let is_known = is_known || StandaloneId::from_name(name).is_some();
    let about = if is_known { format!(" {name}") } else { String::new() };
    format!("see 'flashlock locks{about}'")
}

/// Explains a wrong choice. `others` are the names that are accepted besides those of the catalogue. If one name is
/// similar to the unknown one, only this one is named. `from` is the option or the variable that has the wrong choice.
pub(crate) fn explain(error: &BadChoice<'_>, others: &[&str], from: &str) -> String {
    let is_for_program = others.contains(&settings::GLIBC);
    let others = || others.iter().copied();
    // In a variable, an option may be out of reach.
    let with = |option: &str, variable: &str, name: &str| match from.starts_with('-') {
        true => format!("use it with {option} {name} or {variable}={name}"),
        false => format!("use it with {variable}={name}"),
    };
    let standalone = |name: &str| StandaloneId::from_name(&name.to_lowercase()).filter(|_| is_for_program);
    let error = match *error {
        // In capitals, for example.
        BadChoice::Lock(name) | BadChoice::RwLock(name) => standalone(name).map_or(*error, BadChoice::Standalone),
        other => other,
    };
    let meant = match error {
        BadChoice::Lock(name) if is_for_program && rw_named(name).is_some() => rw_named(name)
            .map(|name| format!("'{name}' is a readers-writer lock; {}", with("--rw", settings::ENV_RW, name))),
        BadChoice::RwLock(name) if LockId::from_name(&name.to_lowercase()).is_some() => {
            let name = name.to_lowercase();
            Some(format!("'{name}' is a lock for mutexes; {}", with("--lock", settings::ENV, &name)))
        }
        BadChoice::Lock(name) => did_you_mean(name, LOCKS.iter().map(|lock| lock.name).chain(others()))
            .map(|meant| format!("unknown lock '{name}'; {meant}")),
        BadChoice::RwLock(name) => did_you_mean(name, RW_LOCKS.iter().map(|lock| lock.name).chain(others()))
            .map(|meant| format!("unknown readers-writer lock '{name}'; {meant}")),
        _ => None,
    };
    meant.unwrap_or_else(|| {
        let mut text = String::new();
        error.explain(&others().collect::<Vec<_>>(), &mut |part| text.push_str(part));
        text
    })
}

/// The names of all readers-writer locks.
pub(crate) fn known_rw() -> String {
    RW_LOCKS.iter().map(|lock| lock.name).collect::<Vec<_>>().join(" ")
}

/// The names of all locks.
pub(crate) fn known() -> String {
    LOCKS.iter().map(|lock| lock.name).collect::<Vec<_>>().join(" ")
}

/// The names of the locks that unmodified programs cannot use.
pub(crate) fn known_standalone() -> String {
    STANDALONE.iter().map(|lock| lock.name).collect::<Vec<_>>().join(" ")
}

/// Describes an option: its meaning, its values, and the default.
pub(crate) fn explained(option: &OptionInfo) -> String {
    let OptionInfo { unit, meaning, least, most, default, words, .. } = option;
    match option.word(*default) {
        Some(default) => format!("{unit} {meaning}: {} (default: {default})", words.join(", ")),
        None => format!("{unit} {meaning}: {least} to {most} (default: {default})"),
    }
}

/// The same for an order.
pub(crate) fn explained_order(order: &OrderInfo) -> String {
    format!("order in which {} are woken: {} (default: fifo)", order.meaning, Order::SYNTAX)
}

/// The topology in `FLASHLOCK_TOPOLOGY`, if it is set; an error if it is invalid.
pub(crate) fn imagined_topology() -> Result<Option<[u32; 3]>, Failure> {
    let Some(text) = std::env::var_os(settings::ENV_TOPOLOGY).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let parsed = text.to_str().and_then(settings::parse_topology);
    parsed.map(Some).ok_or_else(|| {
        Failure::usage(format_args!(
            "{}='{}' is not NODESxCORESxSMT (three numbers from 1 to 4096, such as 2x18x2); correct or unset it",
            settings::ENV_TOPOLOGY,
            text.to_string_lossy()
        ))
    })
}

/// Accepts any text, and offers the locks' names for shell completion. Errors are reported later, with better messages
/// than clap's.
#[derive(Clone)]
pub(crate) struct LockNames {
    mutexes: &'static [LockInfo],
    rw_locks: &'static [RwInfo],
    standalone: &'static [StandaloneInfo],
    glibc: bool,
}

impl LockNames {
    /// The names of mutex locks.
    pub(crate) const MUTEXES: Self = Self { mutexes: LOCKS, rw_locks: &[], standalone: &[], glibc: true };
    /// The names of readers-writer locks.
    pub(crate) const RW_LOCKS: Self = Self { mutexes: &[], rw_locks: RW_LOCKS, standalone: &[], glibc: true };
    /// All names in the catalogue.
    pub(crate) const ANY: Self = Self { mutexes: LOCKS, rw_locks: RW_LOCKS, standalone: STANDALONE, glibc: false };
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
        let facts = mutexes.chain(rw_locks).chain(self.standalone.iter().map(|lock| &lock.facts));
        let glibc = self.glibc.then(|| PossibleValue::new(settings::GLIBC).help("the program's own locks"));
        Some(Box::new(facts.map(|facts| PossibleValue::new(facts.name).help(facts.title)).chain(glibc)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_where_the_text_came_from_and_what_is_known() {
        let failure = LockChoice::parse("nothing", "--lock").unwrap_err();
        assert_eq!(failure.code(), 2);
        let text = failure.to_string();
        assert!(text.starts_with("--lock: unknown lock 'nothing'; known locks: tas"), "{text}");
        let failure = LockChoice::parse("tas:bound=5", "--lock").unwrap_err().to_string();
        assert!(failure.starts_with("--lock: lock tas has no option 'bound'; its options: wait"), "{failure}");
        assert!(LockChoice::parse("", "--lock").unwrap_err().to_string().contains("known locks: tas"));
    }

    #[test]
    fn errors_say_what_was_meant() {
        let said = |text: &str| Under::parse(text, "--lock").unwrap_err().to_string();
        for (text, meant) in [
            ("SHFL", "did you mean 'shfl'?"),
            ("mcx", "did you mean 'mcs'?"),
            ("Glibc", "did you mean 'glibc'?"),
            ("cst-rw", "'cst-rw' is a readers-writer lock; use it with --rw cst-rw or FLASHLOCK_RW=cst-rw"),
            ("shfl:buond=5", "did you mean 'bound'?"),
            ("mcs:wait=prak", "did you mean 'park'?"),
            ("flash:wait=park", "lock flash has only wait=stp (see 'flashlock locks flash')"),
            ("shfl:policy=nmua", "did you mean 'numa'?"),
            ("glibc:wait=park", "have no options"),
            ("rcl", "lock rcl cannot replace the locks of a program: "),
            ("rcl", "(see 'flashlock locks rcl')"),
            ("RCL", "lock rcl cannot replace the locks of a program: "),
            ("RCL", "(see 'flashlock locks rcl')"),
        ] {
            assert!(said(text).contains(meant), "{text}: {}", said(text));
        }
        // If a name is similar to a known one, the message does not list all names.
        assert!(!said("mcx").contains("known locks"), "{}", said("mcx"));
        let rw = |text: &str| RwUnder::parse(text, "--rw").unwrap_err().to_string();
        assert!(
            rw("mcs").contains("'mcs' is a lock for mutexes; use it with --lock mcs or FLASHLOCK=mcs"),
            "{}",
            rw("mcs")
        );
        assert!(rw("Rcl").contains("lock rcl cannot replace the locks of a program: "), "{}", rw("Rcl"));
        assert!(rw("cst-wr").contains("did you mean 'cst-rw'?"), "{}", rw("cst-wr"));
        assert!(rw("nothing").contains("known locks: futex-rw"), "{}", rw("nothing"));
        assert!(rw("").contains("no lock is named"));
        // What came from a variable belongs in a variable.
        let said = Under::parse("cst-rw", settings::ENV).unwrap_err().to_string();
        assert!(said.contains("lock; use it with FLASHLOCK_RW=cst-rw (see"), "{said}");
        let said = RwUnder::parse("mcs", settings::ENV_RW).unwrap_err().to_string();
        assert!(said.contains("mutexes; use it with FLASHLOCK=mcs (see"), "{said}");
    }

    #[test]
    fn what_is_counted_without_a_name_is_what_the_program_has() {
        let find = |lock, rw, counts| {
            let locks = Locks::find(lock, rw, counts).unwrap();
            (locks.mutex.text().to_owned(), locks.rw.text().to_owned(), locks.why)
        };
        let (default, rw) = (DEFAULT.info().name.to_owned(), RW_DEFAULT.info().name.to_owned());
        let glibc = || settings::GLIBC.to_owned();
        assert_eq!(find(None, None, false), (default.clone(), rw.clone(), Why::Unknown));
        assert_eq!(find(None, None, true), (glibc(), glibc(), Why::Today));
        assert_eq!(find(Some("glibc"), None, false), (glibc(), glibc(), Why::Argument));
        assert_eq!(find(Some("mcs:wait=park"), None, true), ("mcs:wait=park".into(), rw, Why::Argument));
        // The locks with which it would run without counting.
        assert_eq!(find(None, Some("cst-rw"), true), (default.clone(), "cst-rw".into(), Why::Argument));
        assert_eq!(find(Some("glibc"), Some("cst-rw"), true), (glibc(), "cst-rw".into(), Why::Argument));
        assert_eq!(find(None, Some("glibc"), false), (default, glibc(), Why::Argument));
        let unnamed = |lock, rw| Locks::find(lock, rw, true).unwrap().described().unnamed;
        assert_eq!(unnamed(None, Some("cst-rw")), Some(Unnamed::Mutexes));
        assert_eq!(unnamed(Some("mcs"), None), Some(Unnamed::RwLocks));
        assert_eq!((unnamed(Some("mcs"), Some("cst-rw")), unnamed(None, None)), (None, None));
    }

    /// As the preload library merges them.
    #[test]
    fn a_report_has_the_options_of_both_locks() {
        let bounds = |lock, rw| {
            let described = Locks::find(lock, rw, true).unwrap().described();
            (described.bound_us, described.wake_ahead)
        };
        let ahead = Tunables::DEFAULT.wake_ahead;
        assert_eq!(bounds(Some("shfl:bound=5"), None), (5, ahead));
        assert_eq!(bounds(Some("shfl:bound=5,ahead=0"), Some("shfl-rw:bound=7")), (7, 0));
        assert_eq!(bounds(Some("mcs"), Some("shfl-rw:bound=7")), (7, ahead));
        assert_eq!(bounds(Some("glibc"), Some("shfl-rw:bound=7")), (7, ahead));
        assert_eq!(bounds(Some("shfl:bound=5"), Some("glibc")), (5, ahead));
        assert_eq!(bounds(Some("glibc"), Some("glibc")), (0, 0));
    }

    #[test]
    fn several_locks_are_for_compare() {
        let find = |lock| Locks::find(Some(lock), None, false).map_err(|failure| failure.to_string());
        for list in ["flash,shfl", "flash,nothing", "shfl:bound=5,mcs", "mcs:wait=park,glibc"] {
            let told = format!("run takes one lock; to try several: flashlock compare --locks {list} -- CMD");
            assert_eq!(find(list).unwrap_err(), told);
        }
        assert!(find("shfl:bound=5,ahead").unwrap_err().contains("ahead"));
        assert!(find("shfl:bound=5,ahead=1").is_ok());
    }

    #[test]
    fn the_text_is_kept_as_the_user_wrote_it() {
        let lock = LockChoice::parse("mcs:wait=park", "--lock").unwrap();
        assert_eq!((lock.text.as_str(), lock.choice.lock.info().name), ("mcs:wait=park", "mcs"));
    }
}
