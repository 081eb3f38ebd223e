//! `--ablation`: what each mechanism of `flash` is worth: builds of the library that lack one of them.
//!
//! Each is a copy of the sources with a line replaced.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::contestants::Library;
use crate::child::{AGAINST_HANGS, Program};
use crate::edit::Edit;
use crate::steps::watched;
use crate::workspace;

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

/// Mechanisms, and how to do without.
const WITHOUT: [(&str, Edit); 8] = [
    ("no-second-look", edit(ARRIVAL, "M::pause(Pause::Steps(pause.max(stay)));", "M::pause(Pause::Steps(stay));")),
    ("no-growing-pause", edit(ARRIVAL, "poll.pause = (poll.pause * 2).min(LONGEST_PAUSE);", "")),
    ("no-early-end", edit(ARRIVAL, "if poll.moves >= TOO_HOT {", "if poll.moves >= 1000 * TOO_HOT {")),
    ("no-stay", edit("crates/locks/src/mutex/flash/stay.rs", "(left == 0).then_some(cost)", "None")),
    ("no-nap", edit(HEAD, "M::pause(Pause::Nap(nap.min(left().max(1))));", "")),
    (
        "no-offers",
        edit(
            "crates/locks/src/mutex/flash/evidence.rs",
            "const PATIENCE: core::ops::RangeInclusive<u32> = 100..=1_000;",
            "const PATIENCE: core::ops::RangeInclusive<u32> = 0..=0;",
        ),
    ),
    ("no-haste", edit(HEAD, "patience = M::sleep_cost();", "")),
    ("no-way-made", edit("crates/locks/src/mutex/flash/release.rs", "if makes_way {", "if false && makes_way {")),
];
const ARRIVAL: &str = "crates/locks/src/mutex/flash/arrival.rs";
const HEAD: &str = "crates/locks/src/mutex/flash/head.rs";

/// Builds them all.
pub(super) fn libraries() -> Result<Vec<Library>> {
    let root = workspace::path("target/ablation");
    let sources = root.join("sources");
    copy(&sources)?;
    WITHOUT.iter().map(|(name, edit)| watched(name, || build(&root, &sources, name, edit))).collect()
}

/// A copy of what the repository holds now, changes that are not committed included.
fn copy(to: &Path) -> Result<()> {
    for name in workspace::files()? {
        let (from, to) = (workspace::path(&name), to.join(&name));
        // Whatever was deleted and not committed is listed, too. An unchanged file keeps its time, so that it is not
        // compiled anew.
        let Ok(text) = fs::read(&from) else { continue };
        if from.is_file() && fs::read(&to).ok().as_ref() != Some(&text) {
            fs::create_dir_all(to.parent().context("a file is in a directory")?)?;
            fs::write(&to, text)?;
        }
    }
    Ok(())
}

fn build(root: &Path, sources: &Path, name: &str, edit: &Edit) -> Result<Library> {
    let before = edit.apply(sources).with_context(|| name.to_owned())?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--package", "flashlock-preload", "--target-dir"]).arg(root.join("target"));
    let built = Program::new(cargo_in(cargo, sources), AGAINST_HANGS).run();
    fs::write(sources.join(edit.file), before)?;
    built?.successful()?;
    let library = root.join(format!("{name}.so"));
    fs::copy(root.join("target/release/libflashlock_preload.so"), &library)?;
    Ok(Library::new(name, library, "flash"))
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
        for (name, edit) in &WITHOUT {
            let text = fs::read_to_string(workspace::path(edit.file)).expect("a file");
            assert!(edit.of(&text).is_ok(), "{name}");
        }
    }
}
