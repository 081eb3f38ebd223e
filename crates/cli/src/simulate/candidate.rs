//! A lock to be simulated: a mutex, a readers-writer lock, or a lock that unmodified programs cannot use.

use flashlock_erased::any::{self, Kind};
use flashlock_locks::catalogue::rw::{RW_LOCKS, RwId};
use flashlock_locks::catalogue::{STANDALONE, StandaloneId};
use flashlock_locks::machine::Tunables;
use flashlock_native::settings::{Choice, RwChoice, StandaloneChoice, UMWAIT, parse};
use flashlock_sim::Description;
use flashlock_workloads::catalogue::{DEFAULT, WORKLOADS, WorkloadInfo};
use flashlock_workloads::wait::Waiting;

use crate::failure::Failure;
use crate::lock_choice::{explain, known, known_rw, known_standalone, see};

/// A lock with its options, as text and parsed.
pub(super) struct Candidate {
    /// `NAME[:option=value,…]`.
    pub(super) text: String,
    /// The user's tuning: a few words for each lock of the command line, kept until the command ends.
    pub(super) tunables: &'static Tunables,
    chosen: Chosen,
}

enum Chosen {
    Mutex(Choice),
    Rw(RwChoice),
    Standalone(StandaloneChoice),
}

impl Candidate {
    /// Parses an entry of `--locks`.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let name = text.split(':').next().unwrap_or_default();
        if name.trim().is_empty() {
            return Err(Failure::usage(format_args!(
                "--locks: '{text}' names no lock; known locks: {} {} {} (see 'flashlock locks')",
                known(),
                known_rw(),
                known_standalone()
            )));
        }
        let chosen = if StandaloneId::from_name(name).is_some() {
            parse(text, Tunables::DEFAULT).map(Chosen::Standalone)
        } else if RwId::from_name(name).is_some() {
            parse(text, Tunables::DEFAULT).map(Chosen::Rw)
        } else {
            parse(text, Tunables::DEFAULT).map(Chosen::Mutex)
        };
        let chosen = chosen.map_err(|error| {
            let others: Vec<&str> =
                RW_LOCKS.iter().map(|lock| lock.name).chain(STANDALONE.iter().map(|lock| lock.name)).collect();
            Failure::usage(format_args!("--locks: {} ({})", explain(&error, &others, "--locks"), see(text)))
        })?;
        let tunables = match &chosen {
            Chosen::Mutex(choice) => choice.tunables,
            Chosen::Rw(choice) => choice.tunables,
            Chosen::Standalone(choice) => choice.tunables,
        };
        Ok(Self { text: text.to_owned(), tunables: Box::leak(Box::new(tunables)), chosen })
    }

    /// The lock's functions.
    pub(super) fn kind(&self) -> &'static Kind {
        match &self.chosen {
            Chosen::Mutex(choice) => any::kind(choice.lock, choice.wait),
            Chosen::Rw(choice) => any::kind_rw(choice.lock, choice.wait),
            Chosen::Standalone(choice) => any::standalone_kind(choice.lock, choice.wait),
        }
    }

    /// How waiters for condition variables and semaphores wait: if they poll for the lock, they poll for everything, as
    /// in the papers.
    pub(super) fn waiting(&self) -> Waiting {
        if self.wait() == "spin" { Waiting::Polling } else { Waiting::Sleeping }
    }

    /// The value of `wait=`.
    fn wait(&self) -> &'static str {
        match &self.chosen {
            Chosen::Mutex(choice) => choice.lock.info().waits[choice.wait],
            Chosen::Rw(choice) => choice.lock.info().waits[choice.wait],
            Chosen::Standalone(choice) => choice.lock.info().waits[choice.wait],
        }
    }

    /// Whether servers run its sections.
    pub(super) fn is_served(&self) -> bool {
        matches!(&self.chosen, Chosen::Standalone(StandaloneChoice { lock: StandaloneId::Rcl, .. }))
    }

    /// Fails if this lock cannot be simulated with these settings.
    pub(super) fn check(
        &self,
        work: &WorkloadInfo,
        machine: &Description,
        threads: &[u32],
        traced: bool,
    ) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::usage(format_args!("--locks '{}': {why}", self.text)));
        if self.wait() == UMWAIT && machine.umwait.is_none() {
            return refuse(&format!(
                "machine {} has no umwait; a file that has [umwait] describes one that does",
                machine.name
            ));
        }
        let choice = match &self.chosen {
            Chosen::Mutex(_) => return Ok(()),
            Chosen::Rw(_) if work.traits.has_readers => return Ok(()),
            Chosen::Rw(_) => {
                let read: Vec<&str> =
                    WORKLOADS.iter().filter(|work| work.traits.has_readers).map(|work| work.name).collect();
                return refuse(&format!("a readers-writer lock, which only {} has readers for", read.join(", ")));
            }
            Chosen::Standalone(choice) => choice,
        };
        let lock = choice.lock.info();
        match choice.lock {
            StandaloneId::Null if threads != [1] => refuse("it excludes nobody: --threads 1"),
            StandaloneId::Null | StandaloneId::Cas => Ok(()),
            _ if work.traits.waits_inside => {
                let other = DEFAULT.info().name;
                refuse(&format!("its sections cannot wait for something: another workload, such as {other}"))
            }
            _ if traced => refuse(&format!(
                "a {} lock runs sections in other threads than those that wait: no --trace",
                lock.interface
            )),
            _ => Ok(()),
        }
    }
}
