//! `--ablation`: what each mechanism of `flash` is worth: builds of the library that lack one of them.
//!
//! Each is a copy of the sources with a line or two replaced. A line that is not there any more is an error, so the list
//! cannot outlive the code.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::contestants::Library;
use crate::child::{AGAINST_HANGS, Program};
use crate::steps::watched;
use crate::workspace;

/// A mechanism, and how to do without.
struct Without {
    name: &'static str,
    /// In `crates/locks/src/flash`.
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const WITHOUT: [Without; 7] = [
    Without {
        name: "no-second-look",
        file: "arrival.rs",
        from: "let is_cold = state & COLD != 0 && !poll.careful && poll.moves == 0;",
        to: "let is_cold = true;",
    },
    Without {
        name: "no-cold",
        file: "arrival.rs",
        from: "let is_cold = state & COLD != 0 && !poll.careful && poll.moves == 0;",
        to: "let is_cold = false;",
    },
    Without {
        name: "no-probe",
        file: "arrival.rs",
        from: "let probes = M::random().is_multiple_of(PROBE_EVERY);",
        to: "let probes = false;",
    },
    Without { name: "no-stay", file: "stay.rs", from: "(left == 0).then_some(cost)", to: "None" },
    Without { name: "no-nap", file: "head.rs", from: "M::relax(nap.min(left().max(1)));", to: "" },
    Without {
        name: "no-offers",
        file: "evidence.rs",
        from: "const PATIENCE: core::ops::RangeInclusive<u32> = 100..=1_000;",
        to: "const PATIENCE: core::ops::RangeInclusive<u32> = 0..=0;",
    },
    Without { name: "no-way-made", file: "release.rs", from: "if makes_way {", to: "if false && makes_way {" },
];

/// Builds them all.
pub(super) fn libraries() -> Result<Vec<Library>> {
    let root = workspace::path("target/ablation");
    let sources = root.join("sources");
    copy(&sources)?;
    WITHOUT.iter().map(|without| watched(without.name, || build(&root, &sources, without))).collect()
}

/// A copy of what the repository holds now, changes that are not committed included.
fn copy(to: &Path) -> Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(workspace::root());
    let list = Program::new(list, AGAINST_HANGS).run()?.successful()?;
    for name in
        list.lines().filter(|name| name.starts_with("crates/") || !name.contains('/') || name.starts_with("xtask/"))
    {
        let (from, to) = (workspace::path(name), to.join(name));
        // Whatever was deleted and not committed is listed, too. An unchanged file keeps its time, so that it is not compiled anew.
        let Ok(text) = fs::read(&from) else { continue };
        if from.is_file() && fs::read(&to).ok().as_ref() != Some(&text) {
            fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
            fs::write(&to, text)?;
        }
    }
    Ok(())
}

fn build(root: &Path, sources: &Path, without: &Without) -> Result<Library> {
    let file = sources.join("crates/locks/src/flash").join(without.file);
    let whole = fs::read_to_string(&file)?;
    if whole.matches(without.from).count() != 1 {
        bail!("{}: {} does not have this line once: {}", without.name, without.file, without.from);
    }
    fs::write(&file, whole.replace(without.from, without.to))?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--package", "flashlock-preload", "--target-dir"]).arg(root.join("target"));
    let built = Program::new(cargo_in(cargo, sources), AGAINST_HANGS).run();
    fs::write(&file, whole)?;
    built?.successful()?;
    let library = root.join(format!("{}.so", without.name));
    fs::copy(root.join("target/release/libflashlock_preload.so"), &library)?;
    Ok(Library::new(without.name, library, "flash"))
}

/// Warnings are no errors: what a mechanism needs is not used without it.
fn cargo_in(mut cargo: Command, sources: &Path) -> Command {
    cargo.current_dir(sources).env("RUSTFLAGS", "--cap-lints=warn");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_there_once() {
        for without in &WITHOUT {
            let text =
                fs::read_to_string(workspace::path("crates/locks/src/flash").join(without.file)).expect("a file");
            assert_eq!(text.matches(without.from).count(), 1, "{}", without.name);
        }
    }
}
