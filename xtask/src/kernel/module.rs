//! The out-of-tree module in `kernel/module`: it compiles for Debian's kernels, and its locks are tortured in the
//! guest, where the kernel's own spinlocks keep the order of arrival (`numa_spinlock=off`).

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::{Bench, LONG};
use super::gates::{check, longest_wait, sound};
use super::guest::{Boot, CPUS, Layout};
use super::judge::{Console, Run};
use crate::child::Program;
use crate::edit::Edit;
use crate::steps::Tally;
use crate::workspace;

pub(crate) const FILE: &str = "flocks.ko";

/// What stands for the newest headers of each series.
const HEADERS: [&str; 3] = ["linux-headers-amd64", "linux-headers-6.12-amd64", "linux-headers-rt-amd64"];

const ALGORITHMS: [&str; 4] = ["stock", "mcs", "cna", "shfl"];
const KINDS: [&str; 3] = ["spin", "mutex", "rw"];

/// The module's files, and no others, in a directory of their own.
pub(crate) fn copy_sources(to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let from = workspace::path("kernel/module");
    for entry in fs::read_dir(&from).with_context(|| format!("{}", from.display()))? {
        let entry = entry?;
        let (path, text) = (to.join(entry.file_name()), fs::read(entry.path())?);
        // make compiles what is newer.
        if fs::read(&path).ok().as_ref() != Some(&text) {
            fs::write(&path, text)?;
        }
    }
    Ok(())
}

/// Where the headers are that this package stands for.
fn fetched(bench: &Bench, package: &str) -> Result<String> {
    let mut command = Command::new("sh");
    command.arg(workspace::path("kernel/headers.sh")).arg(bench.cache.join("headers")).arg(package);
    let text = Program::new(command, LONG).run()?.successful()?;
    text.lines().last().map(str::to_owned).context("headers.sh printed nothing")
}

pub(crate) fn headers(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    for package in HEADERS {
        let headers = fetched(bench, package)?;
        let name = headers.rsplit('/').next().unwrap_or(&headers);
        let sources = bench.cache.join("build/module").join(name);
        copy_sources(&sources)?;
        let mut make = Command::new("nice");
        make.args(["-n", "10", "make", "-s", "W=1", "-C", &headers, &format!("M={}", sources.display())]);
        // The type information of modules needs that of the kernel, which the headers may lack.
        make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "clean", "modules"]);
        let done = Program::new(make, LONG).run()?;
        let complaints: Vec<&str> =
            done.stderr.lines().filter(|line| !line.starts_with("Skipping BTF generation")).collect();
        let is_built = done.ok() && sources.join(FILE).exists();
        tally += check(format!("module with {name}"), is_built && complaints.is_empty(), complaints.join("\n"));
    }
    Ok(tally)
}

/// What the module prints when it is unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tortured {
    writes: u64,
    reads: u64,
    least: u64,
    wait: u64,
    turn: u64,
    local: u64,
    parked: u64,
    is_excluded: bool,
}

impl Tortured {
    fn read(run: &Run, lock: &str) -> Option<Self> {
        let head = format!("flocks: {lock} threads ");
        let line = run.text.lines().find_map(|line| line.split_once(&head))?.1;
        let number = |label: &str| line.split_once(&format!(" {label} "))?.1.split(' ').next()?.parse().ok();
        Some(Self {
            writes: number("writes")?,
            reads: number("reads")?,
            least: number("least")?,
            wait: number("wait")?,
            turn: number("turn")?,
            local: number("local")?,
            parked: number("parked")?,
            is_excluded: line.trim_end().ends_with(": excluded"),
        })
    }

    /// Turns that stayed on the node of the one before, in percent.
    #[expect(clippy::cast_precision_loss, reason = "counts of millions")]
    fn share(&self) -> f64 {
        100.0 * self.local as f64 / self.writes.max(1) as f64
    }
}

/// One boot: how long a lock is held and passes others over (µs), and where the CPUs are.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    hold: u64,
    threshold: u64,
    layout: Layout,
    seconds: u64,
    /// Few threads, with pauses: the lock is often free, and the queue often empty.
    is_sparse: bool,
}

const SHORT: Load =
    Load { name: "short", hold: 0, threshold: 1000, layout: Layout::Interleaved, seconds: 2, is_sparse: false };

const LOADS: [Load; 4] = [
    SHORT,
    Load { name: "sparse", is_sparse: true, ..SHORT },
    Load { name: "long", hold: 300, ..SHORT },
    Load { name: "crowded", hold: 40, threshold: 300, layout: Layout::Crowded, ..SHORT },
];

impl Load {
    /// The locks' torture, one after the other.
    fn boot(self, locks: &[String]) -> Boot<'static> {
        let Self { name, hold, threshold, layout, seconds, is_sparse } = self;
        let few = if is_sparse { " threads=3 pauses=100" } else { "" };
        let plan: String = locks
            .iter()
            .map(|lock| format!("flocks {lock} {seconds} lock={lock} hold_us={hold} threshold_us={threshold}{few}\n"))
            .collect();
        Boot { layout, ..Boot::new(name, "numa_spinlock=off", &plan) }
    }

    /// What is wrong with a lock's run, if anything.
    fn fault(self, lock: &str, got: Option<Tortured>) -> Option<String> {
        let Some(got) = got else { return Some("the module said nothing".to_owned()) };
        let (algorithm, kind) = lock.split_once('-').unwrap_or((lock, ""));
        if !got.is_excluded {
            return Some("it did not exclude".to_owned());
        }
        if got.least == 0 {
            return Some("a thread made no progress".to_owned());
        }
        if (got.reads > 0) != (kind == "rw") {
            return Some(format!("{} reads", got.reads));
        }
        // How often the kernel's own sleep, the module does not know.
        if kind == "mutex" && algorithm != "stock" && !self.is_sparse && got.parked == 0 {
            return Some("nobody slept".to_owned());
        }
        // Threads that sleep are woken late, and turns of readers are not counted.
        if kind != "spin" {
            return None;
        }
        if self.layout == Layout::Interleaved && !self.is_sparse {
            let is_ok = match algorithm {
                "cna" => got.share() >= 75.0,
                // With two CPUs on a node, the one that comes back is the tail, which is never moved: half of all
                // turns.
                "shfl" => got.share() >= 45.0,
                _ => got.share() <= 30.0,
            };
            if !is_ok {
                return Some(format!("{:.1} % of turns stayed on a node", got.share()));
            }
        }
        if algorithm != "stock" {
            let most = self.bound(algorithm, got.turn);
            if got.wait > most {
                return Some(format!("a wait of {} us instead of {} at most", got.wait / 1000, most / 1000));
            }
        }
        None
    }

    /// How long a waiter waits at most, in ns, if a turn takes so long.
    fn bound(self, algorithm: &str, turn: u64) -> u64 {
        let (threshold, cpus) = (1000 * self.threshold, CPUS as u64);
        match algorithm {
            // Those before it, each once.
            "mcs" => turn.saturating_mul(cpus),
            "cna" => longest_wait(threshold, turn),
            // A batch for each of those before it, and for itself.
            _ => threshold.saturating_add(turn.saturating_mul(cpus + 1)).saturating_mul(cpus),
        }
    }

    fn judge(self, console: &Console, locks: &[String]) -> Tally {
        let mut tally = sound(console, &[]);
        for lock in locks {
            let got = Tortured::read(&console.run(lock), lock);
            let fault = self.fault(lock, got);
            let found = got.map_or_else(String::new, |got| {
                format!(
                    "{} writes, {} reads, {:.1} % on a node, longest wait {} us, turn {} us, slept {} times",
                    got.writes,
                    got.reads,
                    got.share(),
                    got.wait / 1000,
                    got.turn / 1000,
                    got.parked
                )
            });
            let suffix = fault.as_ref().map_or_else(String::new, |fault| format!(": {fault}"));
            tally += check(format!("{} {lock}", console.name), fault.is_none(), format!("{found}{suffix}"));
        }
        tally
    }
}

fn all_locks() -> Vec<String> {
    let of = |kind: &'static str| ALGORITHMS.map(|algorithm| format!("{algorithm}-{kind}"));
    KINDS.into_iter().flat_map(of).collect()
}

/// A fault in the module's files, and the locks in which it must be noticed.
struct Mutant {
    name: &'static str,
    edit: Edit,
    lock: &'static str,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "the word is free before the head has it",
        edit: Edit { file: "shfl.c", from: "!cmpxchg_acquire(&lock->locked, 0, 1)", to: "!xchg(&lock->locked, 0)" },
        lock: "shfl-spin",
    },
    Mutant {
        name: "a moved waiter loses those behind it",
        edit: Edit { file: "shfl.c", from: "WRITE_ONCE(prev->next, next);", to: "WRITE_ONCE(prev->next, NULL);" },
        lock: "shfl-spin",
    },
    Mutant {
        name: "a batch never ends",
        edit: Edit { file: "shfl.c", from: "	if (flk_is_late(me->deadline))\n		return;\n", to: "" },
        lock: "shfl-spin",
    },
    Mutant {
        name: "nobody is moved",
        edit: Edit { file: "shfl.c", from: "if (waiter->nid != me->nid)", to: "if (waiter->nid == me->nid)" },
        lock: "shfl-spin",
    },
    Mutant {
        name: "the second queue is lost when the main one is empty",
        edit: Edit { file: "cna.c", from: "second ? second->second_last : NULL", to: "NULL" },
        lock: "cna-spin",
    },
    Mutant {
        name: "the second queue has no deadline",
        edit: Edit { file: "cna.c", from: "!second || !flk_is_late(node->deadline)", to: "true" },
        lock: "cna-spin",
    },
    Mutant {
        name: "the last one stays in the queue",
        edit: Edit {
            file: "mcs.c",
            from: "cmpxchg_release(&lock->tail, node, NULL) == node",
            to: "READ_ONCE(lock->tail) == node",
        },
        lock: "mcs-spin",
    },
    Mutant {
        name: "who sleeps is not woken",
        edit: Edit {
            file: "flocks.h",
            from: "== FLK_PARKED)\n		wake_up_process(task);",
            to: "== FLK_PARKED)\n		(void)task;",
        },
        lock: "mcs-mutex",
    },
    Mutant {
        name: "a writer does not wait for readers",
        edit: Edit {
            file: "rw.h",
            from: "atomic_cmpxchg_acquire(&lock->readers, 0, FLK_WRITING)",
            to: "atomic_fetch_or(FLK_WRITING, &lock->readers) & FLK_WRITING",
        },
        lock: "mcs-rw",
    },
];

/// Each fault is looked for under one load after the other, until it is noticed.
fn mutants(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    for mutant in MUTANTS {
        let image = match bench.image_and_flocks(&[mutant.edit]) {
            Ok(image) => image.context("no image")?,
            // The others are tried all the same.
            Err(error) => {
                tally += check(format!("built: {}", mutant.name), false, format!("{error:#}"));
                continue;
            }
        };
        let mut found = None;
        for load in LOADS {
            if found.is_none() {
                let locks = [mutant.lock.to_owned()];
                let console = Boot { name: "module-mutant", ..load.boot(&locks) }.run(bench, &image)?;
                found = console.complaints(&[]).first().map(|line| (*line).to_owned());
                let fault = || load.fault(mutant.lock, Tortured::read(&console.run(mutant.lock), mutant.lock));
                found = found.or_else(fault);
            }
        }
        tally += check(
            format!("caught: {}", mutant.name),
            found.is_some(),
            found.unwrap_or_else(|| "nothing was noticed".to_owned()),
        );
    }
    Ok(tally)
}

pub(crate) fn tortured(bench: &Bench) -> Result<Tally> {
    let Some(image) = bench.image_and_flocks(&[])? else { bail!("no image") };
    let locks = all_locks();
    let mut tally = Tally::default();
    for load in LOADS {
        let console = load.boot(&locks).run(bench, &image)?;
        tally += load.judge(&console, &locks);
    }
    tally += mutants(bench)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "rig: begin cna-spin\n[    3.1] flocks: cna-spin threads 8 writes 100 reads 0 least 7 wait 123 \
         turn 45 local 90 of 100 parked 0 time 2000000000: excluded\nrig: end cna-spin\n";

    #[test]
    fn a_line_is_read() {
        let run = Console::new("x", LINE).run("cna-spin");
        let got = Tortured::read(&run, "cna-spin").expect("a line");
        let wanted =
            Tortured { writes: 100, reads: 0, least: 7, wait: 123, turn: 45, local: 90, parked: 0, is_excluded: true };
        assert_eq!(got, wanted);
        assert_eq!(Tortured::read(&run, "mcs-spin"), None);
        assert_eq!(SHORT.fault("cna-spin", Some(got)), None);
    }

    #[test]
    fn faults_are_found() {
        let good = Tortured {
            writes: 100,
            least: 7,
            wait: 123,
            turn: 45,
            local: 90,
            is_excluded: true,
            ..Tortured::default()
        };
        let load = SHORT;
        assert!(load.fault("cna-spin", None).is_some());
        assert!(load.fault("mcs-spin", Some(good)).is_some_and(|fault| fault.contains("90.0 %")));
        for bad in [
            Tortured { is_excluded: false, ..good },
            Tortured { least: 0, ..good },
            Tortured { reads: 1, ..good },
            Tortured { local: 9, ..good },
            Tortured { wait: 1_000_000_000, ..good },
        ] {
            assert!(load.fault("cna-spin", Some(bad)).is_some(), "{bad:?}");
        }
        assert!(load.fault("mcs-mutex", Some(good)).is_some_and(|fault| fault.contains("slept")));
    }

    #[test]
    fn there_are_twelve_locks() {
        assert_eq!(all_locks().len(), 12);
    }
}
