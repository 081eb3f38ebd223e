//! `cargo xtask mallocs`: our locks together with allocators that lock, too, and that run before and inside everything.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::child::{AGAINST_HANGS, Program};
use crate::conformance::Conformance;
use crate::locks::{self, Under};
use crate::steps::{Steps, Tally};
use crate::suite::{self, Excepted};

/// An allocator that replaces glibc's when it is preloaded.
struct Allocator {
    library: &'static str,
    package: &'static str,
}

const ALLOCATORS: [Allocator; 2] = [
    Allocator { library: "libjemalloc.so.2", package: "libjemalloc2" },
    Allocator { library: "libtcmalloc_minimal.so.4", package: "libtcmalloc-minimal4" },
];

/// The checks that meet an allocator: everything about mutexes and condition variables.
const GLOBS: [&str; 2] = ["mutex_*", "cond_*"];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Use these locks (may be repeated, or a list with commas); by default those for which `cargo xtask test` runs
    /// every check
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    lock: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<Tally> {
    for allocator in ALLOCATORS {
        allocator.require()?;
    }
    let [principal, _] = locks::tiers()?;
    let locks = locks::select(if options.lock.is_empty() { &principal } else { &options.lock })?;
    let mut steps = Steps::default();
    for allocator in ALLOCATORS {
        let others = vec![PathBuf::from(allocator.library)];
        steps.run(allocator.library, || {
            let conformance = Conformance::build(&GLOBS.map(str::to_owned), others)?;
            suite::run(&conformance.without_glibc().trying(Excepted::Nothing), &locks)
        });
    }
    Ok(steps.finish())
}

impl Allocator {
    /// The dynamic linker only warns of a preload library that it cannot find, and goes on without it.
    fn require(&self) -> Result<()> {
        let mut command = Command::new("/bin/true");
        Under::Glibc.apply(&mut command, &[PathBuf::from(self.library)]);
        let done = Program::new(command, AGAINST_HANGS).run()?;
        if !done.ok() {
            bail!("{} is not installed: it comes with the package {} (cargo xtask setup)", self.library, self.package);
        }
        Ok(())
    }
}
