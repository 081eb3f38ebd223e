//! How often an application calls the lock functions: the numbers that `tests/apps/count.c` leaves in a file.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// The number of counters and their order, `enum slot` of `count.c`.
const SLOTS: usize = 10;

/// The bytes of the file, to be made before the run.
pub(crate) const FILE_SIZE: usize = SLOTS * 8;

/// The columns of `Counts::cells`.
pub(crate) const NAMES: [&str; 6] =
    ["mutex_lock", "process-shared", "mutex_trylock", "cond wait/wake", "rwlock", "sem"];

#[derive(Clone, Copy, Default)]
pub(crate) struct Counts([u64; SLOTS]);

/// Something that an application must call, and how often at least. Far less than it usually is: what runs for a fixed time does
/// little on a busy machine.
pub(crate) enum Needs {
    MutexLock(u64),
    /// `pthread_mutex_lock` on a process-shared mutex.
    SharedMutexLock(u64),
    CondWait(u64),
    RwLock(u64),
    SemWait(u64),
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
        let [mutex_lock, _, shared, _, cond_wait, _, rw_lock, _, sem_wait, _] = self.0;
        for need in needs {
            let (name, got, wanted) = match *need {
                Needs::MutexLock(wanted) => ("pthread_mutex_lock", mutex_lock, wanted),
                Needs::SharedMutexLock(wanted) => ("pthread_mutex_lock on a process-shared mutex", shared, wanted),
                Needs::CondWait(wanted) => ("waits on condition variables", cond_wait, wanted),
                Needs::RwLock(wanted) => ("pthread_rwlock_{rd,wr}lock", rw_lock, wanted),
                Needs::SemWait(wanted) => ("sem_wait and its like", sem_wait, wanted),
            };
            if got < wanted {
                bail!("it tests too little: {got} {name}, at least {wanted} expected");
            }
        }
        Ok(())
    }

    /// One cell for each of `NAMES`.
    pub(crate) fn cells(&self) -> [String; NAMES.len()] {
        let [mutex_lock, mutex_waited, shared, trylock, cond_wait, cond_wake, rw_lock, rw_waited, sem_wait, sem_waited] =
            self.0;
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
}
