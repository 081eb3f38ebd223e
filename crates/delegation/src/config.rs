//! # Which server runs which lock
//!
//! Programs name their locks, and the user of the program says where each of them is to be:
//!
//! | variable | |
//! |---|---|
//! | `FLASHLOCK_RCL` | a list: `index=hot,log=ordinary` |
//! | `FLASHLOCK_RCL_CONFIG` | a TOML file, which describes servers, too; where both name a lock, the list decides |
//!
//! ```toml
//! [servers.hot]              # each of these may be left out
//! cpu = 3                    # its servicing threads are bound to that CPU; without it they are not bound
//! threads = 64               # servicing threads at most
//! timeout-ms = 10            # how long a section may take before another servicing thread goes on
//! scheduling = "real-time"   # or "ordinary"
//!
//! [locks]
//! index = "hot"              # a server's name,
//! log = "ordinary"           # or an ordinary lock,
//! queue = "adaptive"         # or one that goes to a server when that pays
//! "cache.*" = "hot"          # all names that begin so; the longest pattern that fits decides
//!
//! [adaptive]                 # when a server pays: `flashlock calibrate --delegation` measures it
//! go = 0.2                   # the share of time in sections; or "never"
//! back = 0.02                # the use rate at which a lock comes back
//! hand-off-ns = 400          # a hand-off of the contended ordinary lock
//! request-ns = 200           # a request to a server, besides the section
//! ```
//!
//! A lock that is not named here stays what its program makes it. Servers are opened when they are first needed. The
//! variables and the file are read once, at the first lock that has a name or is delegated.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{env, fs, io};

use serde::Deserialize;

use crate::adapt::Thresholds;
use crate::server::{Options, Scheduling};

/// The variable with a list of locks.
pub const ENV_LOCKS: &str = "FLASHLOCK_RCL";
/// The variable with the name of a file.
pub const ENV_FILE: &str = "FLASHLOCK_RCL_CONFIG";

/// Where a lock is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Ordinary,
    /// On a server if that pays.
    Adaptive,
    /// On the server of that name.
    Server(String),
}

/// The file's description of a server.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Described {
    cpu: Option<u32>,
    threads: Option<u32>,
    timeout_ms: Option<u32>,
    scheduling: How,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum How {
    #[default]
    Ordinary,
    RealTime,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    servers: BTreeMap<String, Described>,
    locks: BTreeMap<String, String>,
    adaptive: Thresholds,
}

/// The file and the list.
#[derive(Debug, Default)]
pub(crate) struct Config {
    servers: BTreeMap<String, Described>,
    /// The list's locks, then the file's.
    locks: [BTreeMap<String, Place>; 2],
    adaptive: Thresholds,
}

/// Words that cannot name a server.
const PLACES: [&str; 2] = ["ordinary", "adaptive"];

fn bad(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn place(word: &str) -> Place {
    match word {
        "ordinary" => Place::Ordinary,
        "adaptive" => Place::Adaptive,
        server => Place::Server(server.to_owned()),
    }
}

impl Config {
    /// The configuration that the variables give.
    pub(crate) fn from_env() -> io::Result<Self> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let mut config = match variable(ENV_FILE) {
            None => Self::default(),
            Some(path) => {
                let path = path.to_string_lossy();
                let told = |error: &dyn std::fmt::Display| bad(format!("{ENV_FILE}={path}: {error}"));
                let text = fs::read_to_string(&*path).map_err(|error| told(&error))?;
                Self::parse(&text).map_err(|error| told(&error))?
            }
        };
        if let Some(list) = variable(ENV_LOCKS) {
            let list = list.to_string_lossy();
            config.add(&list).map_err(|error| bad(format!("{ENV_LOCKS}={list}: {error}")))?;
        }
        Ok(config)
    }

    /// Parses a file's text.
    fn parse(text: &str) -> io::Result<Self> {
        let File { servers, locks, adaptive } = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        if let Some(name) = PLACES.iter().find(|name| servers.contains_key(**name)) {
            return Err(bad(format!("a server cannot be called `{name}`: give it another name")));
        }
        adaptive.check().map_err(|error| bad(format!("adaptive: {error}")))?;
        for (name, described) in &servers {
            described.options().check().map_err(|error| bad(format!("servers.{name}: {error}")))?;
        }
        let locks: BTreeMap<_, _> = locks.into_iter().map(|(lock, word)| (lock, place(&word))).collect();
        for (lock, place) in &locks {
            if let Place::Server(server) = place
                && !servers.contains_key(server)
            {
                return Err(bad(format!(
                    "locks.{lock} names the server `{server}`, which the file does not describe: add \
                     [servers.{server}], or correct the name"
                )));
            }
        }
        Ok(Self { servers, locks: [BTreeMap::new(), locks], adaptive })
    }

    /// Adds a list.
    fn add(&mut self, list: &str) -> io::Result<()> {
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (lock, word) = match entry.split_once('=') {
                Some((lock, word)) if !lock.trim().is_empty() && !word.trim().is_empty() => (lock.trim(), word.trim()),
                _ => return Err(bad(format!("`{entry}` must be LOCK=SERVER, LOCK=ordinary or LOCK=adaptive"))),
            };
            self.locks[0].insert(lock.to_owned(), place(word));
        }
        Ok(())
    }

    /// The thresholds of this machine.
    pub(crate) fn thresholds(&self) -> Thresholds {
        self.adaptive
    }

    /// Where the lock of that name is to be, if the configuration names it.
    pub(crate) fn place(&self, lock: &str) -> Option<&Place> {
        self.locks.iter().find_map(|locks| find(locks, lock))
    }

    /// The options of the server of that name.
    pub(crate) fn options(&self, server: &str) -> Options {
        self.servers.get(server).copied().unwrap_or_default().options()
    }
}

/// The entry of that name, or the longest pattern that fits.
fn find<'a>(locks: &'a BTreeMap<String, Place>, name: &str) -> Option<&'a Place> {
    locks.get(name).or_else(|| {
        let pattern = |(pattern, place): (&'a String, &'a Place)| {
            let begin = pattern.strip_suffix('*')?;
            name.starts_with(begin).then_some((begin.len(), place))
        };
        locks.iter().filter_map(pattern).max_by_key(|(length, _)| *length).map(|(_, place)| place)
    })
}

impl Described {
    fn options(self) -> Options {
        let usual = Options::default();
        Options {
            cpu: self.cpu,
            threads: self.threads.unwrap_or(usual.threads),
            timeout: self.timeout_ms.map_or(usual.timeout, |ms| Duration::from_millis(ms.into())),
            scheduling: match self.scheduling {
                How::Ordinary => Scheduling::Ordinary,
                How::RealTime => Scheduling::RealTime,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[servers.hot]\ncpu = 3\nthreads = 64\ntimeout-ms = 20\nscheduling = \"real-time\"\n\
                        [servers.cool]\n[locks]\nindex = \"hot\"\nlog = \"ordinary\"\n\"cache.*\" = \"cool\"\n\
                        \"cache.a*\" = \"hot\"\n";

    fn server(name: &str) -> Option<Place> {
        Some(Place::Server(name.to_owned()))
    }

    #[test]
    fn a_file_says_where_locks_are_and_what_servers_are_given() {
        let config = Config::parse(FILE).expect("valid");
        let at = |lock: &str| config.place(lock).cloned();
        assert_eq!((at("index"), at("log"), at("other")), (server("hot"), Some(Place::Ordinary), None));
        assert_eq!((at("cache.b"), at("cache.ab"), at("cache")), (server("cool"), server("hot"), None));
        let hot = config.options("hot");
        assert_eq!((hot.cpu, hot.threads, hot.timeout), (Some(3), 64, Duration::from_millis(20)));
        assert_eq!(hot.scheduling, Scheduling::RealTime);
        assert_eq!(config.options("cool").threads, Options::default().threads);
    }

    #[test]
    fn the_list_comes_before_the_file() {
        let mut config = Config::parse(FILE).expect("valid");
        config.add(" log = cool , cache.*=ordinary,").expect("valid");
        assert_eq!(config.place("log").cloned(), server("cool"));
        assert_eq!(config.place("cache.a").cloned(), Some(Place::Ordinary));
        assert_eq!(config.place("index").cloned(), server("hot"));
    }

    #[test]
    fn thresholds_are_the_papers_unless_the_file_has_those_of_the_machine() {
        assert_eq!(Config::parse(FILE).expect("valid").thresholds(), Thresholds::PAPER);
        let file = "[adaptive]\ngo = \"never\"\nhand-off-ns = 150\n[locks]\nqueue = \"adaptive\"\n";
        let config = Config::parse(file).expect("valid");
        assert_eq!(config.thresholds(), Thresholds { hand_off_ns: 150.0, ..Thresholds::NEVER });
        assert_eq!(config.place("queue"), Some(&Place::Adaptive));
        let again = toml::to_string(&config.thresholds()).expect("can be written");
        assert_eq!(toml::from_str::<Thresholds>(&again).expect("valid"), config.thresholds());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let parse = |text: &str| Config::parse(text).expect_err(text).to_string();
        assert!(parse("[servers.ordinary]").contains("another name"));
        assert!(parse("[servers.adaptive]").contains("another name"));
        assert!(parse("[adaptive]\ngo = 1.5").contains("adaptive: go must be 0 to 1, not 1.5"));
        assert!(parse("[adaptive]\ngo = \"nver\"").contains("a share or \"never\""));
        assert!(parse("[adaptive]\nrequest-ns = 0").contains("request-ns must be"));
        assert!(parse("[locks]\nindex = \"hto\"").contains("add [servers.hto]"));
        assert!(parse("[servers.hot]\nthreads = 0").contains("servers.hot: a server has 1 to 4094"));
        assert!(parse("[servers.hot]\ntimeout-ms = 0").contains("time-out"));
        assert!(parse("[servers.hot]\ncpus = 1").contains("unknown field"));
        assert!(parse("[lock]").contains("unknown field"));
        let add = |list: &str| Config::default().add(list).expect_err(list).to_string();
        assert_eq!(add("index"), "`index` must be LOCK=SERVER, LOCK=ordinary or LOCK=adaptive");
        assert!(add("=hot").contains("must be") && add("a=").contains("must be"));
    }
}
