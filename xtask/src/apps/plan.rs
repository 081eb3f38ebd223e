//! Which runs are made: under what, and with how many threads.

use anyhow::Result;

use super::Options;
use super::run::Wrapper;
use super::stage::Stage;
use crate::locks;
use crate::workspace;

/// The locks of a full run: the default, and those with a queue of their own kind.
const LOCKS: [&str; 3] = ["shfl", "cna", "mcscr"];
/// Further ones, where there is time because few threads are tried.
const QUICK_LOCKS: [&str; 2] = ["mcs", "futex"];

/// The runs of each application.
pub(crate) struct Plan {
    /// The ways in which an application is started, the reference first.
    pub(crate) wrappers: Vec<Wrapper>,
    /// The number of threads for locks other than the default; `None`: all of them.
    only: Option<u32>,
}

impl Plan {
    pub(crate) fn new(options: &Options, stage: &Stage, threads: &[u32]) -> Result<Self> {
        let mut wrappers = vec![Wrapper::reference(stage)?];
        if !options.reference {
            wrappers.extend(ours(options, stage)?);
        }
        wrappers.iter().try_for_each(Wrapper::assert_works)?;
        Ok(Self { wrappers, only: options.quick.then(|| threads[threads.len() / 2]) })
    }

    /// Whether there is a run under this wrapper with so many threads.
    pub(crate) fn includes(&self, wrapper: &Wrapper, threads: u32) -> bool {
        let everywhere = wrapper.lock.as_ref().is_none_or(|lock| lock.default);
        everywhere || self.only.is_none_or(|only| only == threads)
    }
}

/// The chosen locks, ready to be put under programs of any user.
fn ours(options: &Options, stage: &Stage) -> Result<Vec<Wrapper>> {
    let usual = LOCKS.iter().chain(QUICK_LOCKS.iter().filter(|_| options.quick));
    let usual: Vec<String> = usual.map(|&lock| lock.to_owned()).collect();
    let chosen = locks::select(if options.lock.is_empty() { &usual } else { &options.lock })?;
    let chosen = chosen.into_iter();
    if let Some(library) = &options.preload {
        let library = workspace::require(library.clone(), "--preload names no file")?.canonicalize()?;
        let library = stage.adopt(&library)?;
        return Ok(chosen.map(|lock| Wrapper::preload(&library, lock)).collect());
    }
    stage.adopt(&workspace::preload()?)?;
    let command = stage.adopt(&workspace::command()?)?;
    Ok(chosen.map(|lock| Wrapper::command(&command, lock)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{Kind, Lock};

    #[test]
    fn other_locks_than_the_default_are_quick_with_one_number_of_threads() {
        let lock = |default| Lock {
            name: "x".into(),
            kind: Kind::Mutex,
            interposable: true,
            default,
            principal: true,
            exceptions: Vec::new(),
        };
        let wrapper = |default| Wrapper::command("flashlock".as_ref(), lock(default));
        let plan = |only| Plan { wrappers: Vec::new(), only };
        for threads in [2, 8, 32] {
            assert!(plan(Some(8)).includes(&wrapper(true), threads));
            assert_eq!(plan(Some(8)).includes(&wrapper(false), threads), threads == 8);
            assert!(plan(None).includes(&wrapper(false), threads));
        }
    }
}
