//! git: threads that search deltas while a history is repacked, and that resolve them while the pack is indexed.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use super::counts::Needs;
use super::run::Run;
use super::{App, Quick};
use crate::child::Finished;

pub(crate) const GIT: App =
    App { name: "git", packages: &["git"], quick: Quick::Once, sources: &[], needs: &[Needs::MutexLock(5000)], run };

const COMMITS: u32 = 400;
const FILES: u32 = 30;

fn run(run: &Run) -> Result<()> {
    fs::write(run.directory.join("history"), history())?;
    run.plain(["git", "init", "-q", "--bare", "."])?;
    run.plain(["sh", "-c", "git fast-import --quiet --force < history"])?;
    let before = objects(run)?;
    let threads = run.threads.to_string();
    let pack_threads = format!("pack.threads={threads}");
    run.wrapped(["git", "-c", &pack_threads, "repack", "-a", "-d", "-f", "-q", "--window=20", "--depth=50"])?;
    if objects(run)? != before {
        bail!("other objects after the repack");
    }
    run.plain(["git", "fsck", "--full", "--strict"])?;
    let pack = only_pack(run)?;
    let index = ["git", "index-pack", "--strict", &format!("--threads={threads}"), "-o", "again.idx", &pack];
    run.wrapped(index)?;
    run.plain(["cmp", "again.idx", &pack.replace(".pack", ".idx")])?;
    run.same("the objects", &before)
}

/// All objects with their types and sizes.
fn objects(run: &Run) -> Result<String> {
    let listed: Finished = run.plain(["git", "cat-file", "--batch-check", "--batch-all-objects"])?;
    let count = listed.stdout.lines().count();
    if count < 3 * COMMITS as usize {
        bail!("only {count} objects:\n{}", listed.transcript());
    }
    Ok(listed.stdout)
}

fn only_pack(run: &Run) -> Result<String> {
    let packs = run.plain(["sh", "-c", "ls objects/pack/*.pack"])?;
    let mut names = packs.stdout.lines();
    let name = names.next().context("no pack")?;
    if names.next().is_some() {
        bail!("more than one pack:\n{}", packs.stdout);
    }
    Ok(name.to_owned())
}

/// A history for `git fast-import`: each commit changes some lines of three files.
fn history() -> String {
    let mut history = String::new();
    for commit in 1..=COMMITS {
        let message = format!("Change {commit}");
        let _ = write!(
            history,
            "commit refs/heads/main\ncommitter A <a@example.com> {} +0000\ndata {}\n{message}\n",
            1_000_000_000 + commit,
            message.len()
        );
        for file in [commit, commit * 7 + 1, commit * 13 + 2].map(|file| file % FILES) {
            let text: String =
                (0..120).map(|line| format!("{file} {line} {}\n", line_of(commit, file, line))).collect();
            let _ = write!(history, "M 100644 inline {file}\ndata {}\n{text}\n", text.len());
        }
    }
    history
}

/// What stands in a line after a commit: it changes now and then.
fn line_of(commit: u32, file: u32, line: u32) -> u32 {
    let age = (commit + line * 17 + file * 5) / 40;
    age.wrapping_mul(2_654_435_761) ^ line.wrapping_mul(40_503)
}
