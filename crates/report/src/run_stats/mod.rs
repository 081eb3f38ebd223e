//! # The schema of `flashlock run --stats=json`
//!
//! `docs/cli/stats.md` describes the fields to users; this module defines what is written and read.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::provenance::{self, Provenance};
use crate::{Error, units};

mod collect;
mod objects;
mod text;

pub use objects::{Object, Place, Reason};
pub use text::render;

/// The schema's name.
pub const SCHEMA: &str = "flashlock.run-stats";
/// The schema's version.
pub const VERSION: u32 = 1;

/// The counters of one run, and its circumstances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStats {
    /// The origin.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The lock that the program ran with.
    pub lock: Lock,
    /// How the program ended.
    pub outcome: Outcome,
    /// The resources that the program used, with those of its children that it waited for.
    pub resources: Resources,
    /// The number of processes that counted: the program and its descendants.
    pub processes: u32,
    /// The counters of the event list, by name.
    pub events: Counts,
    /// How long contended acquisitions of mutexes waited. Attempts that gave up are not among them.
    pub waits: Waits,
    /// The same for everything except mutexes.
    #[serde(default)]
    pub waits_of: OtherWaits,
    /// The counters of each object. The object that threads waited for longest comes first. At most [`MOST_OBJECTS`].
    #[serde(default)]
    pub objects: Vec<Object>,
    /// Values derived from the counters.
    pub derived: Derived,
}

/// The maximum number of objects in a report.
pub const MOST_OBJECTS: usize = 200;

/// Waits for anything except mutexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherWaits {
    /// For a readers-writer lock, to read.
    pub rw_read: Waits,
    /// For a readers-writer lock, to write.
    pub rw_write: Waits,
    /// For a permit of a semaphore.
    pub semaphore: Waits,
    /// For a spinlock.
    pub spinlock: Waits,
}

/// A lock and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Its name in the catalogue.
    pub name: String,
    /// `wait=`: how its waiters wait.
    pub wait: String,
    /// `bound=`, in µs.
    pub bound_us: u32,
    /// `shuffles=`.
    pub max_shuffles: u32,
    /// `ahead=`.
    pub wake_ahead: u32,
    /// The readers-writer lock's name.
    #[serde(default)]
    pub rw: String,
    /// Why the run was counted under this lock.
    #[serde(default)]
    pub why: Why,
    /// If only one of the two locks was named: the other one, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<Unnamed>,
}

/// The lock that nobody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unnamed {
    /// That of mutexes.
    Mutexes,
    /// That of readers-writer locks.
    RwLocks,
}

/// How the lock of a counted run was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// By default: no lock was named, and the program's own locks are counted.
    Today,
    /// On the command line.
    Argument,
    /// In the environment.
    Environment,
    /// In a file of an older version, which does not say.
    #[default]
    Unknown,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// By itself.
    Exited {
        /// Its exit status.
        status: i32,
    },
    /// By a signal.
    Signalled {
        /// The signal's number.
        signal: i32,
        /// The signal's name, such as `SIGKILL`.
        name: String,
    },
}

/// The resources that a program used, from `wait4`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// From its start to its end.
    pub elapsed_ns: u64,
    /// CPU time in user space.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Context switches because a thread had to wait.
    pub voluntary_switches: u64,
    /// Context switches because another thread was to run.
    pub involuntary_switches: u64,
}

/// A histogram of waiting times. A percentile is the upper edge of the bucket that contains it: this share of the waits
/// was shorter. Buckets are at most a quarter wide, so a percentile is at most a quarter too high.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// The number of waits.
    pub count: u64,
    /// Half of them were shorter.
    pub p50_ns: Option<u64>,
    /// 90 % were shorter.
    pub p90_ns: Option<u64>,
    /// 99 % were shorter.
    pub p99_ns: Option<u64>,
    /// 99.9 % were shorter.
    pub p999_ns: Option<u64>,
    /// All were shorter.
    pub max_ns: Option<u64>,
    /// The buckets that hold waits, in order.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The shortest wait in it.
    pub from_ns: u64,
    /// All waits in it are shorter; `null` in the last bucket, which is open.
    pub below_ns: Option<u64>,
    /// The number of waits in it.
    pub count: u64,
}

/// Values derived from the counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// The share of attempts that found the lock held; `null` if there were none. An attempt acquires the lock, times
    /// out, or has not ended.
    pub contention: Option<f64>,
    /// The share of attempts at readers-writer locks that had to wait; `null` if there were none.
    #[serde(default)]
    pub rw_contention: Option<f64>,
    /// The average number of threads that waited for a mutex, a readers-writer lock or a spinlock during the run. Under
    /// glibc's mutexes, this is without waits to take a mutex again at the end of a wait on a condition variable.
    #[serde(default)]
    pub waiting_threads: f64,
    /// Waits for a mutex, a readers-writer lock or a spinlock that had not ended when the program did.
    /// `waiting_threads` is without them.
    #[serde(default)]
    pub unfinished_waits: u64,
    /// The share of queue hand-offs that stayed on a NUMA node; `null` if there were none.
    pub handoff_locality: Option<f64>,
    /// Operations that were left to glibc.
    pub left_to_glibc: u64,
    /// Objects that were initialised in a process that counted, and were left to glibc.
    #[serde(default)]
    pub objects_left_to_glibc: u64,
}

impl RunStats {
    /// Reads a file that `flashlock run --stats=json --stats-file` wrote.
    pub fn read(file: &Path) -> Result<Self, Error> {
        provenance::read(file, SCHEMA, VERSION)
    }

    /// As JSON, ending in a newline.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a plain structure with string keys");
        text.push('\n');
        text
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited { status } => write!(f, "exit status {status}"),
            Self::Signalled { signal, name } => write!(f, "killed by {name} (signal {signal})"),
        }
    }
}

impl std::fmt::Display for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} elapsed, {} user, {} system, {} + {} context switches (voluntary + involuntary)",
            units::nanoseconds(self.elapsed_ns),
            units::nanoseconds(self.user_ns),
            units::nanoseconds(self.system_ns),
            units::count(self.voluntary_switches),
            units::count(self.involuntary_switches),
        )
    }
}
