//! # The catalogue of workloads
//!
//! One list. The command's names and options, its help, the tables of the documentation, the tests and the tasks that
//! run workloads come from it. A new workload is its page (a file of this crate that says what it does, and has the
//! code) and one row in `rows.rs`.
//!
//! ```text
//!   a row ──> WORKLOADS: names, parameters, traits      (for whoever lists, documents or parses)
//!        └──> WorkloadId::start ──> the page's `start` ──> Runner::run     (for whoever runs)
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `rows` | the list |
//! | `parameters` | [`Parameter`], and [`Values`]: what users can set |
//!
//! A [`Runner`] brings locks, a machine and threads: those of this computer, or simulated ones. A page's `start` makes
//! the workload from them. So a row serves any runner, and a runner serves any row.

mod parameters;

use alloc::vec;
use alloc::vec::Vec;

use flashlock_locks::machine::Machine;

use crate::Workload;
use crate::backend::Backend;
use crate::lock::RwLock;
use crate::wait::Waiting;
pub use parameters::{Parameter, Values, Wrong};
pub use rows::{WORKLOADS, WorkloadId};

/// What is known of a workload.
#[derive(Debug)]
pub struct WorkloadInfo {
    /// Names it in programs.
    pub id: WorkloadId,
    /// Its name, as users write it.
    pub name: &'static str,
    /// What it is, for help and results.
    pub summary: &'static str,
    /// What a thread does, for the documentation: Markdown, in one line.
    pub does: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Where in there.
    pub section: &'static str,
    /// How long a simulated run measures, in ms: some thousands of operations.
    pub millis: f64,
    /// How many ms are just enough for arrays to be in the caches, and for threads to wait for each other.
    pub brief_millis: f64,
    /// What users can set.
    pub parameters: &'static [Parameter],
    /// What a runner must know.
    pub traits: Traits,
}

/// What a runner must know of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// With fewer threads, it waits for ever for what no thread does.
    pub fewest_threads: u32,
    /// Whether threads wait for something else while they hold the lock, so that they must release it meanwhile.
    /// Closure locks cannot do that.
    pub waits_inside: bool,
    /// Whether the lock is a kernel's spin lock, which disables preemption for its holder and its waiters.
    pub in_kernel: bool,
    /// Whether some threads only read under the lock.
    pub has_readers: bool,
    /// Its large memory.
    pub arrays: Arrays,
}

impl Traits {
    /// One thread is enough, it only waits for the lock, which is a program's mutex, and has little memory.
    pub const PLAIN: Self = Self {
        fewest_threads: 1,
        waits_inside: false,
        in_kernel: false,
        has_readers: false,
        arrays: Arrays { shared: 0, lines: 0 },
    };
}

/// Arrays: one for each thread, and shared ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrays {
    /// The number of shared ones.
    pub shared: u32,
    /// Cache lines of each array.
    pub lines: u32,
}

impl Arrays {
    /// The lines of all arrays, with so many threads.
    pub fn of(self, threads: u32) -> u64 {
        (u64::from(self.shared) + u64::from(threads)) * u64::from(self.lines)
    }
}

/// Runs a workload: on this computer, or on a simulated one.
pub trait Runner: Sized {
    /// The machine of condition variables and semaphores.
    type Machine: Machine<Word: Sync> + 'static;
    /// The locks. A mutex lets readers in one at a time ([`Exclusive`](crate::lock::Exclusive)).
    type Lock: RwLock + 'static;
    /// Memory and time.
    type Backend: Backend;
    /// What comes out.
    type Outcome;

    /// The conditions of the run.
    fn setup(&self) -> &Setup;

    /// Makes a lock, which reports call by this name.
    fn lock(&mut self, name: &'static str) -> Self::Lock;

    /// Runs the workload with [`Setup::threads`] threads.
    fn run<W: Workload + 'static>(self, workload: W) -> Self::Outcome;
}

/// The conditions of a run, as far as workloads depend on them.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many threads there are.
    pub threads: u32,
    /// The seed of all random numbers.
    pub seed: u64,
    /// How threads wait for condition variables and semaphores.
    pub waiting: Waiting,
    /// The clock of the machine, for parameters in cycles.
    pub ghz: f64,
    /// The values of the workload's parameters.
    pub values: Values,
}

impl Setup {
    /// How many ns so many cycles take.
    pub fn ns(&self, cycles: u32) -> u32 {
        (f64::from(cycles) / self.ghz) as u32
    }
}

macro_rules! define_workloads {
    ($(($variant:ident, $name:literal, $run:ident => $start:expr, { $($facts:tt)* })),* $(,)?) => {
        /// Names a workload.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WorkloadId {
            $(#[doc = concat!("`", $name, "`")] $variant),*
        }

        /// All workloads, in the order in which they are shown.
        pub static WORKLOADS: &[WorkloadInfo] =
            &[$(WorkloadInfo { id: WorkloadId::$variant, name: $name, $($facts)* }),*];

        impl WorkloadId {
            /// The names, for [`named`](Self::named), which cannot read a static.
            pub(super) const NAMES: &[(&str, Self)] = &[$(($name, Self::$variant)),*];

            /// Makes the workload, and runs it.
            pub fn start<R: Runner>(self, runner: R) -> R::Outcome {
                match self {
                    $(Self::$variant => { let $run = runner; $start })*
                }
            }
        }
    };
}

// After the macro, which it uses.
mod rows;

/// The workload that is run when the user names none.
pub const DEFAULT: WorkloadId = WorkloadId::Kvmap;

impl WorkloadId {
    /// What is known of it.
    pub fn info(self) -> &'static WorkloadInfo {
        &WORKLOADS[self as usize]
    }

    /// The workload of that name, in capitals or small letters.
    pub fn from_name(name: &str) -> Option<Self> {
        WORKLOADS.iter().find(|info| info.name.eq_ignore_ascii_case(name)).map(|info| info.id)
    }

    /// The workload of that name, for code that has the name as a constant: an unknown one does not compile there.
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    pub const fn named(name: &str) -> Self {
        let mut at = 0;
        while at < Self::NAMES.len() {
            let (known, id) = Self::NAMES[at];
            if is_same(known, name) {
                return id;
            }
            at += 1;
        }
        panic!("no workload has this name")
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Each name of a parameter once, with the workloads that have it, in the order of the catalogue.
pub fn parameters() -> Vec<(&'static str, Vec<(&'static WorkloadInfo, &'static Parameter)>)> {
    let mut all: Vec<(&str, Vec<_>)> = Vec::new();
    for (info, parameter) in WORKLOADS.iter().flat_map(|info| info.parameters.iter().map(move |one| (info, one))) {
        match all.iter_mut().find(|(name, _)| *name == parameter.name) {
            Some((_, of)) => of.push((info, parameter)),
            None => all.push((parameter.name, vec![(info, parameter)])),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_index_the_list_and_names_are_found() {
        for info in WORKLOADS {
            assert_eq!(info.id.info().name, info.name);
            assert_eq!(WorkloadId::from_name(info.name), Some(info.id));
            assert_eq!(WorkloadId::named(info.name), info.id);
        }
        assert_eq!(WorkloadId::from_name("KVMap"), Some(WorkloadId::Kvmap));
        assert_eq!(WorkloadId::from_name("no-such-workload"), None);
    }

    #[test]
    fn rows_are_complete() {
        for info in WORKLOADS {
            let texts = [info.name, info.summary, info.does, info.paper, info.section];
            let parameters = info.parameters.iter();
            let all = parameters.flat_map(|one| [one.name, one.unit, one.meaning, one.paper, one.section]).chain(texts);
            all.for_each(|text| assert!(!text.is_empty() && !text.contains(['\n', '|']), "{}: '{text}'", info.name));
            assert!(!info.summary.ends_with('.'), "{}: results add the full stop", info.name);
            assert!(0.0 < info.brief_millis && info.brief_millis <= info.millis, "{}", info.name);
            assert!(info.traits.fewest_threads >= 1, "{}", info.name);
        }
    }

    #[test]
    fn parameters_of_one_name_are_one_option() {
        for (name, rows) in parameters() {
            let first = rows[0].1;
            for (info, one) in rows {
                let same = (one.unit, one.least, one.most) == (first.unit, first.least, first.most);
                assert!(same && one.unit.chars().all(|c| c.is_ascii_lowercase()), "{name} of {}", info.name);
                assert!((one.least..=one.most).contains(&one.default), "{name} of {}", info.name);
            }
        }
    }
}
