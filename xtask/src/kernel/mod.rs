//! `cargo xtask kernel`: the patch series in `kernel/`. It applies, is in the kernel's style and compiles; the kernel
//! with it boots in an emulated machine of four NUMA nodes, and is tortured there.

mod build;
mod compile;
mod disassembly;
mod gates;
mod guest;
mod judge;
mod module;
mod mutants;
mod shuffle;
mod suite;
mod switch;
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::steps::{Steps, Tally};
use crate::{setup, workspace};
use build::Bench;
use tree::Tree;

#[derive(Args)]
pub(crate) struct Options {
    /// Run only what takes a few minutes: style, the object files, and a boot if the image exists or is built in time
    #[arg(long)]
    quick: bool,
    /// Run only steps whose names contain one of these texts (may be repeated, or a list with commas)
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// List the steps and how long they take; run nothing
    #[arg(long)]
    list: bool,
    /// Where the source, builds and images are kept [default: flashlock/kernel in $XDG_CACHE_HOME if that is set, or
    /// target/kernel]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// With --quick: the time limit for building an image, in minutes; 0: do not build one
    #[arg(long, value_name = "N", default_value_t = 5)]
    image_minutes: u64,
}

/// Debian's names of what all steps need.
const PACKAGES: [&str; 12] = [
    "bc",
    "binutils",
    "bison",
    "flex",
    "gcc",
    "git",
    "libc6-dev",
    "libelf-dev",
    "make",
    "python3-git",
    "python3-ply",
    "xz-utils",
];

/// What can be run alone.
struct Part {
    name: &'static str,
    about: &'static str,
    /// What it may take on two quiet CPUs, in minutes.
    minutes: u32,
    quick: bool,
    run: fn(&Bench) -> Result<Tally>,
}

const PARTS: &[Part] = &[
    Part {
        name: "style",
        about: "each patch passes checkpatch --strict",
        minutes: 1,
        quick: true,
        run: |bench| compile::style(&bench.tree),
    },
    Part {
        name: "objects",
        about: "the changed files compile without warnings, with and without PARAVIRT_SPINLOCKS and the series' option",
        minutes: 2,
        quick: true,
        run: compile::main_configurations,
    },
    Part {
        name: "boot",
        about: "one image boots, says that CNA is in use, and keeps hand-offs on a node",
        minutes: 6,
        quick: true,
        run: gates::boot,
    },
    Part {
        name: "rare",
        about: "the changed files compile with the experiment, without hypervisors, and without SMP",
        minutes: 2,
        quick: false,
        run: compile::rare_configurations,
    },
    Part {
        name: "headers",
        about: "the module compiles without warnings with the headers of Debian's 6.1, also with PREEMPT_RT, and 6.12",
        minutes: 1,
        quick: false,
        run: module::headers,
    },
    Part {
        name: "patches",
        about: "the changed files compile after each patch of the series, with and without its options",
        minutes: 5,
        quick: false,
        run: compile::each_patch,
    },
    Part {
        name: "matrix",
        about: "the changed files compile in all configurations and with clang, for i386, arm64 and arm",
        minutes: 12,
        quick: false,
        run: compile::matrix,
    },
    Part {
        name: "off",
        about: "a kernel that does not use CNA executes the same instructions, by disassembly (without \
                PARAVIRT_SPINLOCKS, except for the size of a queue node)",
        minutes: 2,
        quick: false,
        run: disassembly::same_instructions,
    },
    Part {
        name: "share",
        about: "hand-offs stay on a node with CNA and do not without; urgent waiters are served as without",
        minutes: 4,
        quick: false,
        run: gates::share,
    },
    Part {
        name: "switch",
        about: "numa_spinlock= and the threshold do what they say, on one node and in a guest, too",
        minutes: 3,
        quick: false,
        run: switch::run,
    },
    Part {
        name: "bound",
        about: "nobody waits for longer than the bound, with thresholds and critical sections of several lengths",
        minutes: 6,
        quick: false,
        run: gates::bound,
    },
    Part {
        name: "nesting",
        about: "all four queue nodes of a CPU are used, and lock_no_node in a build with one",
        minutes: 5,
        quick: false,
        run: gates::nesting,
    },
    Part {
        name: "static",
        about: "one more image, which calls the slow path by a static call and cannot shuffle: boot, share, nesting",
        minutes: 6,
        quick: false,
        run: gates::static_call,
    },
    Part { name: "hotplug", about: "CPUs come and go under torture", minutes: 2, quick: false, run: gates::hotplug },
    Part { name: "twice", about: "two runs print the same, byte by byte", minutes: 2, quick: false, run: gates::twice },
    Part {
        name: "user",
        about: "file locks, open and close, and a hot mutex in user space",
        minutes: 3,
        quick: false,
        run: gates::user,
    },
    Part {
        name: "shuffle",
        about: "the experimental variant, by the same gates and with seeded faults of its own",
        minutes: 10,
        quick: false,
        run: shuffle::run,
    },
    Part {
        name: "suite",
        about: "flashlock itself in the guest: topology, getcpu and mbind, queues by node, conformance (needs a build)",
        minutes: 10,
        quick: false,
        run: suite::run,
    },
    Part {
        name: "module",
        about: "the locks of the module exclude, progress and keep to their order; each seeded fault is caught",
        minutes: 8,
        quick: false,
        run: module::tortured,
    },
    Part {
        name: "mutants",
        about: "each seeded fault is caught, and so is a lock that does not exclude",
        minutes: 15,
        quick: false,
        run: mutants::run,
    },
];

pub(crate) fn run(options: &Options) -> Result<Tally> {
    let mut steps = Steps::only(&options.only);
    let meant = |part: &&Part| (!options.quick || part.quick) && steps.include(part.name);
    let parts: Vec<&Part> = PARTS.iter().filter(meant).collect();
    let minutes: u32 = parts.iter().map(|part| part.minutes).sum();
    println!("about {minutes} minutes on two quiet CPUs, and 3 for the source:");
    for part in &parts {
        println!("  {:8} {:2} min  {}", part.name, part.minutes, part.about);
    }
    if options.list {
        return Ok(Tally::PASSED);
    }
    setup::install(PACKAGES.to_vec())?;
    let cache = options.cache.clone().unwrap_or_else(default_cache);
    let image_limit = if options.quick { Duration::from_secs(60 * options.image_minutes) } else { build::LONG };
    // The series is applied in any case, so that counts in any case.
    let mut tree = None;
    let mut fetched = Steps::default();
    fetched.run("apply", || {
        tree = Some(Tree::fetch(&cache)?);
        Ok(Tally::PASSED)
    });
    let mut tally = fetched.finish();
    if let Some(tree) = tree {
        let bench = Bench { cache, tree, image_limit, may_skip: options.quick };
        for part in parts {
            if part.name == "boot" && !bench.may_boot()? {
                println!("boot: left out, because there is no image, and none is to be built (--image-minutes)");
                tally.skipped += 1;
                continue;
            }
            steps.run(part.name, || (part.run)(&bench));
        }
        tally += steps.finish();
    }
    Ok(tally)
}

fn default_cache() -> PathBuf {
    match std::env::var_os("XDG_CACHE_HOME") {
        Some(home) if !home.is_empty() => PathBuf::from(home).join("flashlock/kernel"),
        _ => workspace::path("target/kernel"),
    }
}
