//! How often an application calls the lock functions: under glibc the numbers that `tests/apps/count.c` leaves in a
//! file, under a lock of ours what the library counts.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flashlock_locks::machine::event::Event;
use flashlock_native::stats::{self, Block, Totals};

use crate::system;

/// The number of counters and their order, `enum slot` of `count.c`.
const SLOTS: usize = 10;

/// The bytes of the file, to be made before the run.
pub(crate) const FILE_SIZE: usize = SLOTS * 8;

/// The columns of `Counts::cells`.
pub(crate) const NAMES: [&str; 6] =
    ["mutex_lock", "process-shared", "mutex_trylock", "cond wait/wake", "rwlock", "sem"];

#[derive(Clone, Copy, Default)]
pub(crate) struct Counts([u64; SLOTS]);

/// Something that an application must call, and how often at least. Far less than it usually is: what runs for a fixed
/// time does little on a busy machine.
pub(crate) enum Needs {
    MutexLock(u64),
    /// `pthread_mutex_lock` on a process-shared mutex.
    SharedMutexLock(u64),
    CondWait(u64),
    /// Waits on process-shared condition variables. (`count.c` does not tell them from the others.)
    SharedCondWait(u64),
    RwLock(u64),
    /// The same of process-shared ones.
    SharedRwLock(u64),
    SemWait(u64),
    /// The same of process-shared ones.
    SharedSemWait(u64),
}

impl Needs {
    /// What is called, what `count.c` has counted of it, and how much of it there must be.
    fn under_glibc(&self, counts: &Counts) -> (&'static str, u64, u64) {
        let [mutex_lock, _, shared, _, cond_wait, _, rw_lock, _, sem_wait, _] = counts.0;
        match *self {
            Self::MutexLock(wanted) => ("pthread_mutex_lock", mutex_lock, wanted),
            Self::SharedMutexLock(wanted) => ("pthread_mutex_lock on a process-shared mutex", shared, wanted),
            Self::CondWait(wanted) | Self::SharedCondWait(wanted) => {
                ("waits on condition variables", cond_wait, wanted)
            }
            Self::RwLock(wanted) | Self::SharedRwLock(wanted) => ("pthread_rwlock_{rd,wr}lock", rw_lock, wanted),
            Self::SemWait(wanted) | Self::SharedSemWait(wanted) => ("sem_wait and its like", sem_wait, wanted),
        }
    }

    /// What the library counts of it, and how much of it there must be: a tenth, for under a slow lock a program that
    /// runs for a fixed time does less. What is counted together is wanted together.
    fn under_a_lock(&self) -> (&'static [Event], u64) {
        let (events, wanted): (&[Event], u64) = match *self {
            Self::MutexLock(wanted) => (&[Event::Acquire], wanted),
            Self::CondWait(wanted) => (&[Event::CondWait], wanted),
            Self::RwLock(wanted) => (&[Event::RwRead, Event::RwWrite], wanted),
            Self::SemWait(wanted) => (&[Event::SemAcquire], wanted),
            Self::SharedMutexLock(wanted) | Self::SharedCondWait(wanted) | Self::SharedRwLock(wanted) => {
                (&[Event::GlibcShared], wanted)
            }
            Self::SharedSemWait(wanted) => (&[Event::GlibcSem], wanted),
        };
        (events, wanted.div_ceil(10))
    }
}

/// Counters that the library fills in all programs of one run under a lock.
pub(crate) struct Counters {
    /// Inherited by the programs, under a number that they hardly use themselves.
    descriptor: OwnedFd,
    block: &'static Block,
}

impl Counters {
    pub(crate) fn new() -> Result<Self> {
        const HIGH: i32 = 700;
        let (low, block) = Block::create().context("cannot make shared counters")?;
        Ok(Self { descriptor: system::inherited(&low, HIGH)?, block })
    }

    /// What tells the library of them.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (stats::ENV, self.descriptor.as_raw_fd().to_string())
    }

    /// What was counted, if it is enough.
    pub(crate) fn sufficient(&self, needs: &[Needs]) -> Result<Totals> {
        let totals = self.block.totals();
        if totals.processes == 0 {
            bail!("no process counted: the library was not loaded");
        }
        for (events, wanted) in needs.iter().map(Needs::under_a_lock) {
            let got: u64 = events.iter().map(|&event| totals.of(event)).sum();
            if got < wanted {
                let names: Vec<&str> = events.iter().map(|event| event.name()).collect();
                let names = names.join(" and ");
                bail!("the locks were not ours: {got} {names} counted, at least {wanted} expected");
            }
        }
        Ok(totals)
    }
}

/// The columns of `ours`.
pub(crate) const OURS: [&str; 5] = ["processes", "acquisitions", "contended", "cond waits", "left to glibc"];

/// One cell for each of `OURS`.
pub(crate) fn ours(totals: &Totals) -> [String; OURS.len()] {
    let of = |event| totals.of(event).to_string();
    let left = Event::ALL.iter().filter(|event| event.objects().is_some()).map(|&event| totals.of(event)).sum::<u64>();
    [totals.processes.to_string(), of(Event::Acquire), of(Event::Contended), of(Event::CondWait), left.to_string()]
}

impl Counts {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        if bytes.len() != FILE_SIZE {
            bail!("{} has {} bytes, not {FILE_SIZE}", file.display(), bytes.len());
        }
        let mut counts = Self::default();
        for (count, bytes) in counts.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *count = u64::from_ne_bytes(*bytes);
        }
        Ok(counts)
    }

    /// Whether the application called what it is here to call.
    pub(crate) fn suffice(&self, needs: &[Needs]) -> Result<()> {
        for need in needs {
            let (name, got, wanted) = need.under_glibc(self);
            if got < wanted {
                bail!("it tests too little: {got} {name}, at least {wanted} expected");
            }
        }
        Ok(())
    }

    /// One cell for each of `NAMES`.
    pub(crate) fn cells(&self) -> [String; NAMES.len()] {
        let [mutex_lock, mutex_waited, shared, trylock, rest @ ..] = self.0;
        let [cond_wait, cond_wake, rw_lock, rw_waited, sem_wait, sem_waited] = rest;
        [
            format!("{mutex_lock}/{mutex_waited}"),
            shared.to_string(),
            trylock.to_string(),
            format!("{cond_wait}/{cond_wake}"),
            format!("{rw_lock}/{rw_waited}"),
            format!("{sem_wait}/{sem_waited}"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_calls_are_an_error() {
        let counts = Counts([99, 0, 0, 0, 5, 0, 0, 0, 0, 0]);
        assert!(counts.suffice(&[Needs::MutexLock(99), Needs::CondWait(5)]).is_ok());
        assert!(counts.suffice(&[Needs::MutexLock(100)]).is_err());
        assert!(counts.suffice(&[Needs::SharedMutexLock(1)]).is_err());
    }

    #[test]
    fn a_run_that_nobody_counted_was_not_under_our_locks() {
        let counters = Counters::new().expect("anonymous files work");
        assert!(counters.sufficient(&[]).expect_err("refused").to_string().contains("not loaded"));
        assert_eq!(counters.variable().0, "FLASHLOCK_STATS_FD");
    }

    #[test]
    fn every_need_is_checked_under_a_lock_too() {
        assert_eq!(Needs::MutexLock(11).under_a_lock(), (&[Event::Acquire][..], 2));
        assert_eq!(Needs::RwLock(20).under_a_lock(), (&[Event::RwRead, Event::RwWrite][..], 2));
        assert_eq!(Needs::SharedMutexLock(1).under_a_lock(), (&[Event::GlibcShared][..], 1));
    }
}
