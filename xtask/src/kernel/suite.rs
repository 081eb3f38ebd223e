//! The user-space suite in the guest: flashlock's commands, preload and conformance on a machine whose kernel says that
//! it has four NUMA nodes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::build::Bench;
use super::gates::{check, image, sound};
use super::guest::{Boot, CPUS, Layout};
use super::judge::Run;
use crate::child::{AGAINST_HANGS, Program};
use crate::steps::Tally;
use crate::workspace;

/// The guest's own clock ends it after so many seconds.
const LIMIT: u64 = 3000;

/// What is conformed to, in a machine that is some fifty times slower than this one. Not what repeats itself for long,
/// stops threads at each instruction, or is killed and watched from outside.
const AREAS: [&str; 8] =
    ["attributes.*", "c11.*", "cond_basic.*", "errno_kept.*", "mutex_kinds.*", "rwlock.*", "sem.*", "spin.*"];

/// Under glibc, so that a failure is not the guest's, and under locks that order by node and that do not.
const LOCKS: [&str; 5] = ["glibc", "flash", "shfl", "cna", "mcs"];

/// What a dynamically linked program opens, and what it loads when a thread is cancelled.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libstdc++.so.6"];
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Without what only debuggers read: the guest has little memory.
fn stripped(file: &Path, to: &Path) -> Result<PathBuf> {
    let name = file.file_name().context("a file without a name")?;
    let to = to.join(name);
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&to).arg(file);
    Program::new(strip, AGAINST_HANGS).run()?.successful()?;
    Ok(to)
}

/// Where this computer has a library.
fn library(name: &str) -> Result<PathBuf> {
    let places = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
    let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    found.with_context(|| format!("no {name} in {places:?}"))
}

/// What the guest needs besides.
fn files(bench: &Bench) -> Result<Vec<(PathBuf, String)>> {
    let directory = bench.cache.join("suite");
    std::fs::create_dir_all(&directory)?;
    let conformance = workspace::build_tests("conformance", "target/conformance")?;
    let mut files = vec![(PathBuf::from(LOADER), LOADER.to_owned())];
    for name in LIBRARIES {
        files.push((library(name)?, format!("/lib/x86_64-linux-gnu/{name}")));
    }
    for file in [workspace::command()?, workspace::preload()?, conformance.join("conformance")] {
        let name = file.file_name().context("a file without a name")?.to_string_lossy().into_owned();
        files.push((stripped(&file, &directory)?, format!("/bin/{name}")));
    }
    for (name, options) in [("contend", &["-pthread"][..]), ("nodes", &["-static"])] {
        let to = directory.join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-Wextra"]).args(options).arg("-o").arg(&to);
        gcc.arg(Bench::tests().join("user").join(format!("{name}.c")));
        Program::new(gcc, AGAINST_HANGS).run()?.successful()?;
        // The other `contend` is static, which nothing can be preloaded to.
        files.push((to, if name == "contend" { "/bin/contend-shared".to_owned() } else { format!("/bin/{name}") }));
    }
    Ok(files)
}

/// The object that a program has printed.
fn object(run: &Run) -> Result<Value> {
    let (Some(from), Some(to)) = (run.text.find("\n{"), run.text.rfind("\n}")) else { bail!("it printed no object") };
    Ok(serde_json::from_str(&run.text[from..to + 2])?)
}

/// The exit status of a program.
fn status(run: &Run) -> Option<i32> {
    run.text.lines().find_map(|line| line.strip_prefix("rig: status ")?.parse().ok())
}

/// `flashlock topology` says what the machine was made as.
fn topology(run: &Run) -> Result<Tally> {
    let found = object(run)?;
    let wanted = Layout::Interleaved.nodes();
    let cpus = found["cpu_list"].as_array().context("no cpu_list")?;
    let nodes: Vec<Option<u64>> = cpus.iter().map(|cpu| cpu["node"].as_u64()).collect();
    let is_right = nodes.len() == CPUS && nodes.iter().zip(wanted).all(|(got, node)| *got == Some(node as u64));
    let mut tally = check("topology: each CPU is on its node", is_right, format!("{nodes:?}"));
    let [all, used] = ["numa_nodes", "lock_nodes"].map(|name| found[name].as_u64());
    tally += check(
        "topology: four nodes, and locks use them",
        all == Some(4) && used == Some(4),
        format!("{all:?}, {used:?}"),
    );
    let source = &found["node_source"];
    tally += check("topology: where the node is read", source.is_string() && source != "one node", source);
    Ok(tally)
}

/// Hand-offs that stayed on a node, in percent, and how many there were.
#[expect(clippy::cast_precision_loss, reason = "counts of millions")]
fn share(run: &Run) -> Result<(f64, u64)> {
    let stats = object(run)?;
    let [same, other] =
        ["handoffs_same_node", "handoffs_other_node"].map(|name| stats["events"][name].as_u64().unwrap_or(0));
    Ok((100.0 * same as f64 / (same + other).max(1) as f64, same + other))
}

pub(crate) fn run(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let mut plan = format!("limit {LIMIT}\nprogram nodes nodes\nprogram topology flashlock topology --json\n");
    for lock in ["cna", "mcs"] {
        let stats = "--stats=json --stats-file /tmp/stats";
        plan += &format!(
            "program queue-{lock} flashlock run --lock {lock}:wait=spin {stats} -- contend-shared mutex {CPUS} 2\n"
        );
        plan += &format!("program stats-{lock} cat /tmp/stats\n");
    }
    for lock in LOCKS {
        plan += &format!("conform {lock} {}\n", AREAS.map(|area| format!("'{area}'")).join(" "));
    }
    let boot = Boot { files: files(bench)?, ..Boot::new("suite", "", &plan) };
    let console = boot.run(bench, &image)?;
    let mut tally = sound(&console, &[]);

    let nodes = console.run("nodes");
    let is_right = nodes.text.contains(&format!("nodes: 4 nodes {CPUS} CPUs")) && status(&nodes) == Some(0);
    tally += check("getcpu and mbind agree with /sys", is_right, nodes.text.lines().rev().nth(2).unwrap_or("nothing"));
    tally += topology(&console.run("topology")).unwrap_or_else(|error| check("topology", false, error));
    for (lock, is_right) in [("cna", (|share| share >= 75.0) as fn(f64) -> bool), ("mcs", |share| share <= 30.0)] {
        let done = status(&console.run(&format!("queue-{lock}")));
        let (share, count) = share(&console.run(&format!("stats-{lock}"))).unwrap_or_default();
        let found = format!("{share:.1} % of {count} hand-offs stayed on a node");
        tally += check(
            format!("preload, {lock}: its queue knows nodes"),
            done == Some(0) && count > 1000 && is_right(share),
            found,
        );
    }
    for lock in LOCKS {
        let run = console.run(&format!("conform-{lock}"));
        let failed: Vec<&str> = run.text.lines().filter(|line| line.starts_with("not ok")).collect();
        let sum = run.text.lines().rfind(|line| line.contains(" passed, ")).unwrap_or("no result");
        let found = format!("{sum} {}", failed.join("; "));
        tally += check(format!("conformance, {lock}"), sum.contains(" passed, 0 failed") && failed.is_empty(), found);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::super::judge::Console;
    use super::*;

    #[test]
    fn an_object_is_found_between_other_lines() {
        let text = "rig: begin x\n[ 1.0] a line\n\
                    {\n  \"events\": {\n    \"handoffs_same_node\": 3,\n    \"handoffs_other_node\": 1\n  }\n}\n\
                    rig: status 0\nrig: end x\n";
        let run = Console::new("x", text).run("x");
        assert_eq!(share(&run).expect("an object"), (75.0, 4));
        assert_eq!(status(&run), Some(0));
        assert!(object(&Run::default()).is_err());
    }
}
