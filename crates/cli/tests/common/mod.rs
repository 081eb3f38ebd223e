//! What the tests share: the command, and the library that it preloads.

#![allow(dead_code)]

pub(crate) mod comparison;
pub(crate) mod simulated;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use assert_cmd::Command;

/// How long anything may take: no outcome depends on how busy the machine is.
pub(crate) const AGAINST_HANGS: Duration = Duration::from_secs(600);

/// The command under test.
pub(crate) fn flashlock() -> Command {
    let mut command = Command::new(binary());
    for name in ["FLASHLOCK", "FLASHLOCK_TOPOLOGY", "FLASHLOCK_STATS_FD", "LD_PRELOAD", "COLUMNS"] {
        command.env_remove(name);
    }
    command.env("FLASHLOCK_PRELOAD_PATH", preload()).timeout(AGAINST_HANGS);
    command
}

/// The command, for tests that interrupt it. Whoever runs the tests may ignore signals, as `nohup` does, and a child
/// would inherit that.
pub(crate) fn interruptible() -> Process {
    let mut command = Process::new("env");
    command.arg("--default-signal").arg(binary());
    command
}

/// Its file.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_flashlock"))
}

/// The preload library, beside the command: `cargo test` builds no libraries for other languages, so it is built here.
pub(crate) fn preload() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = binary().parent().expect("the command is in a directory");
        let target = directory.parent().expect("a profile's directory is in the target directory");
        let profile = match directory.file_name().and_then(OsStr::to_str) {
            Some("debug") => "dev",
            Some(name) => name,
            None => panic!("{} is no profile's directory", directory.display()),
        };
        let built = Process::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "flashlock-preload", "--profile", profile])
            .arg("--manifest-path")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target)
            .output()
            .expect("cargo can be run");
        let complaint = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "the preload library does not build, so nothing can be tested:\n{complaint}");
        let library = directory.join("libflashlock_preload.so");
        assert!(library.is_file(), "{} was built and is not there", library.display());
        library
    })
}

/// Tries until something has been seen to happen that a busy machine can prevent.
pub(crate) fn eventually(what: &str, happens: impl FnMut() -> bool) {
    let begun = Instant::now();
    let seen = std::iter::repeat_with(happens).take_while(|_| begun.elapsed() < AGAINST_HANGS).any(|seen| seen);
    assert!(seen, "{what}: not in {AGAINST_HANGS:?}");
}

/// A path for a file of one test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// A shell command that makes a small program with threads and a pthread mutex run for so many milliseconds.
pub(crate) fn threads(millis: u32) -> String {
    format!("'{}' map-worker 4 {millis}", binary().display())
}
