//! One run of the key-value map. It is a process of its own, so that the dynamic linker chooses its pthread mutex, as
//! in any program. It can also use a rival's mutex or a closure lock, which may need a library.

use std::path::PathBuf;
use std::process::Command;

use flashlock_measure::{map, pthread};
use flashlock_rivals::Rival;
use serde::{Deserialize, Serialize};

use super::contestant::{Contestant, closures};
use crate::failure::Failure;
use crate::{preload, screen};

/// The hidden verb's name.
const VERB: &str = "map-worker";

/// One run of the key-value map, for `flashlock compare`
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Threads
    threads: u32,
    /// How long
    millis: u64,
    /// Rounds of work between two operations
    #[arg(default_value_t = 0)]
    external: u32,
    /// Which keys there are, and which are asked for
    #[arg(default_value_t = 1)]
    seed: u64,
    /// The rival whose mutex is used
    #[arg(long)]
    rival: Option<String>,
    /// The closure lock that is used
    #[arg(long, conflicts_with = "rival")]
    closure: Option<String>,
    /// Its library, if it has one
    #[arg(long, requires = "rival")]
    library: Option<PathBuf>,
}

/// The result of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// The file that provides `pthread_mutex_lock`, or the rival's name.
    provider: String,
    /// The total of all threads.
    operations: u64,
    elapsed_ns: u64,
    pub(super) fairness: f64,
    /// The problem that the map's check found.
    wrong: Option<String>,
}

impl Sample {
    /// Parses a run's output. Checks that the mutex was the intended one, and that it excluded.
    pub(super) fn read(text: &str, meant: &Contestant) -> Result<Self, String> {
        let sample: Self = serde_json::from_str(text).map_err(|error| format!("it printed no result: {error}"))?;
        let is_ours = preload::is_ours(std::ffi::OsStr::new(&sample.provider));
        let is_closure = closures().any(|name| name == sample.provider);
        let is_rival = is_closure || Rival::named(&sample.provider).is_some();
        let is_meant = match meant {
            Contestant::Glibc => !is_ours && !is_rival,
            Contestant::Lock(_) => is_ours,
            Contestant::Rival(rival, _) => sample.provider == rival.name,
            Contestant::Closure(name) => sample.provider == *name,
        };
        if !is_meant {
            return Err(format!(
                "it ran with the locks of {} instead of the intended ones; run: flashlock doctor",
                sample.provider
            ));
        }
        match &sample.wrong {
            Some(what) => Err(format!("the lock did not exclude ({what}); please report this")),
            None => Ok(sample),
        }
    }

    /// Operations per microsecond.
    pub(super) fn ops_per_us(&self) -> f64 {
        self.operations as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }
}

/// The command of one run.
pub(super) fn command(
    threads: u32,
    millis: u64,
    external: u32,
    seed: u64,
    contestant: &Contestant,
) -> Result<Command, Failure> {
    let me = std::env::current_exe()
        .map_err(|error| Failure::new(format_args!("cannot find this command: {}", screen::reason(&error))))?;
    let mut command = Command::new(me);
    command.arg(VERB).args([u64::from(threads), millis, u64::from(external), seed].map(|number| number.to_string()));
    if let Contestant::Rival(rival, library) = contestant {
        command.args(["--rival", rival.name]);
        command.args(library.iter().flat_map(|file| [std::ffi::OsStr::new("--library"), file.as_os_str()]));
    }
    if let Contestant::Closure(name) = contestant {
        command.args(["--closure", name]);
    }
    Ok(command)
}

/// Runs the hidden verb.
pub(crate) fn run(args: &Args) -> Result<u8, Failure> {
    let &Args { threads, millis, external, seed, .. } = args;
    let run = map::Run { threads, millis, external, seed };
    let (sample, provider) = match (&args.rival, &args.closure) {
        (Some(name), _) => {
            let rival = Rival::named(name).ok_or_else(|| Failure::usage(format_args!("no rival is called {name}")))?;
            (run.under_rival(rival, args.library.as_deref()), name.clone())
        }
        (None, Some(name)) => (run.under_closure_lock(name), name.clone()),
        (None, None) => (run.under_pthread_mutex(), pthread::provider("pthread_mutex_lock").unwrap_or_default()),
    };
    let map::Sample { operations, elapsed_ns, fairness, wrong } = sample.map_err(Failure::new)?;
    let sample = Sample { provider, operations, elapsed_ns, fairness, wrong: wrong.map(str::to_owned) };
    screen::emit(&serde_json::to_string(&sample).map_err(Failure::new)?)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use flashlock_locks::catalogue::StandaloneId;
    use flashlock_rivals::RIVALS;

    use super::*;
    use crate::lock_choice::LockChoice;

    fn sample(provider: &str, wrong: Option<&str>) -> String {
        let wrong = wrong.map(str::to_owned);
        let sample =
            Sample { provider: provider.into(), operations: 5000, elapsed_ns: 1_000_000, fairness: 0.5, wrong };
        serde_json::to_string(&sample).unwrap()
    }

    #[test]
    fn only_what_was_meant_to_run_counts() {
        let (glibc, ours) = (sample("/lib/libc.so.6", None), sample("/x/libflashlock_preload.so", None));
        let lock = Contestant::Lock(LockChoice::parse("flash", "").unwrap());
        let rival = Contestant::Rival(&RIVALS[0], None);
        let closure = Contestant::Closure(StandaloneId::Rcl.info().name);
        let rcl = sample("rcl", None);
        assert!(Sample::read(&rcl, &closure).is_ok() && Sample::read(&rcl, &Contestant::Glibc).is_err());
        assert!(Sample::read(&glibc, &closure).unwrap_err().contains("instead of the intended"));
        assert_eq!(Sample::read(&glibc, &Contestant::Glibc).unwrap().ops_per_us(), 5.0);
        assert!(Sample::read(&ours, &lock).is_ok() && Sample::read(&sample(RIVALS[0].name, None), &rival).is_ok());
        for (text, meant) in [(&glibc, &lock), (&ours, &Contestant::Glibc), (&glibc, &rival), (&ours, &rival)] {
            assert!(Sample::read(text, meant).unwrap_err().contains("instead of the intended"));
        }
        assert!(Sample::read(&sample(RIVALS[1].name, None), &rival).unwrap_err().contains("instead of the intended"));
        let lost = Sample::read(&sample("/lib/libc.so.6", Some("lost")), &Contestant::Glibc).unwrap_err();
        assert!(lost.contains("did not exclude"));
        assert!(Sample::read("", &Contestant::Glibc).unwrap_err().contains("no result"));
    }
}
