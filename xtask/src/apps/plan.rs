//! Which runs are made: under what, and with how many threads.

use anyhow::Result;

use super::run::Wrapper;
use super::stage::Stage;
use super::{Options, Quick};
use crate::locks;
use crate::workspace;

/// The locks of a full run: the default, and those with a queue of their own kind.
const LOCKS: [&str; 3] = ["flash", "cna", "mcscr"];
/// Further ones of a quick run, for applications that are [`Quick::Always`].
const QUICK_LOCKS: [&str; 2] = ["mcs", "futex"];

/// The runs of each application.
pub(crate) struct Plan {
    /// The ways in which an application is started, the reference first.
    pub(crate) wrappers: Vec<Wrapper>,
    /// Of a quick run: the number of threads for locks other than the default; `None`: all numbers.
    only: Option<u32>,
    /// Whether the user has named the locks.
    named: bool,
}

impl Plan {
    /// Several plans, each with its own counts. (Not made while applications run, because they copy the library.)
    pub(crate) fn several(options: &Options, stage: &Stage, threads: &[u32], number: usize) -> Result<Vec<Self>> {
        (0..number).map(|which| Self::new(options, stage, threads, &format!("counts-{which}"))).collect()
    }

    fn new(options: &Options, stage: &Stage, threads: &[u32], counts: &str) -> Result<Self> {
        let mut wrappers = vec![Wrapper::reference(stage, counts)?];
        if !options.reference {
            wrappers.extend(ours(options, stage)?);
        }
        wrappers.iter().try_for_each(Wrapper::assert_works)?;
        let only = options.quick.then(|| threads[(threads.len() - 1) / 2]);
        Ok(Self { wrappers, only, named: !options.lock.is_empty() })
    }

    /// Whether an application is run under this wrapper with so many threads.
    pub(crate) fn includes(&self, quick: Quick, wrapper: &Wrapper, threads: u32) -> bool {
        let Some((lock, only)) = wrapper.lock.as_ref().filter(|lock| !lock.default).zip(self.only) else { return true };
        let is_meant = self.named || quick == Quick::Always || !QUICK_LOCKS.contains(&lock.name.as_str());
        is_meant && only == threads
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
    fn a_quick_run_leaves_out_what_it_says() {
        let lock = |name: &str| Lock {
            name: name.into(),
            kind: Kind::Mutex,
            default: name == "flash",
            principal: true,
            strict: false,
            exceptions: Vec::new(),
        };
        let wrapper = |name| Wrapper::command("flashlock".as_ref(), lock(name));
        let plan = |only, named| Plan { wrappers: Vec::new(), only, named };
        for threads in [2, 8, 32] {
            let quick = plan(Some(8), false);
            assert!(quick.includes(Quick::Once, &wrapper("flash"), threads));
            assert_eq!(quick.includes(Quick::Always, &wrapper("cna"), threads), threads == 8);
            assert_eq!(quick.includes(Quick::Always, &wrapper("mcs"), threads), threads == 8);
            assert!(!quick.includes(Quick::Once, &wrapper("mcs"), threads));
            assert_eq!(plan(Some(8), true).includes(Quick::Once, &wrapper("mcs"), threads), threads == 8);
            assert!(plan(None, false).includes(Quick::Never, &wrapper("cna"), threads));
        }
    }
}
