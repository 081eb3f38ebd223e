//! What a booted kernel must do.

use std::fmt::Display;

use anyhow::{Context, Result};

use super::build::{Bench, Image};
use super::guest::{Boot, CPUS, Layout};
use super::judge::{Console, Run};
use super::switch::{BAD_MODE, printed};
use crate::edit::Edit;
use crate::steps::Tally;

/// What the kernel prints when CNA is in use.
const IN_USE: &str = "numa_spinlock: waiters of the same NUMA node first";

/// Nodes of the machine.
const NODES: u64 = 4;

/// One line about a check. What it found is printed either way.
pub(crate) fn check(name: impl Display, is_ok: bool, found: impl Display) -> Tally {
    println!("{} {name}: {found}", if is_ok { "ok" } else { "not ok" });
    if is_ok { Tally::PASSED } else { Tally::FAILED }
}

/// The image that all gates are about. An error if there is none.
pub(crate) fn image(bench: &Bench) -> Result<Image> {
    bench.image("", &[])?.context("no image")
}

/// The guest came to its end, and the kernel had nothing to complain of.
pub(crate) fn sound(console: &Console, expected: &[&str]) -> Tally {
    let complaints = console.complaints(expected);
    if console.is_done && complaints.is_empty() {
        return check(format!("{} ends without complaints", console.name), true, "done");
    }
    let end = if console.is_done { String::new() } else { format!("\n  it ended with\n{}", console.end()) };
    check(format!("{} ends without complaints", console.name), false, format!("{complaints:?}{end}"))
}

/// A run of locktorture: nothing failed, every writer made progress.
pub(crate) fn tortured(name: &str, run: &Run) -> Tally {
    let writes = run.writes();
    let is_ok = writes.is_some_and(|writes| !writes.failed && writes.least > 0);
    check(format!("{name} excludes and serves everybody"), is_ok, format!("{writes:?}"))
}

/// Whether CNA is in use, by what the kernel prints.
pub(crate) fn used(console: &Console, is_used: bool) -> Tally {
    let found = if console.says(IN_USE) { "in use" } else { "not in use" };
    check(format!("{}: whether CNA is in use", console.name), console.says(IN_USE) == is_used, found)
}

pub(crate) fn shares(name: &str, run: &Run, is_ok: fn(f64) -> bool) -> Tally {
    let found = format!("{:.2} % of {} hand-offs on a node", run.share(), run.handoffs());
    check(name, run.handoffs() > 0 && is_ok(run.share()), found)
}

pub(crate) const SPIN: &str = "torture spin 10 torture_type=spin_lock\n";
pub(crate) const URGENT: &str =
    "torture irq 5 torture_type=spin_lock_irq\ntorture fifo 5 torture_type=spin_lock writer_fifo=1\n";

/// The shortest proof that the rig works.
pub(crate) fn boot(bench: &Bench) -> Result<Tally> {
    let Some(image) = bench.image("", &[])? else {
        println!("left out: the image takes longer than {} s to build here", bench.image_limit.as_secs());
        return Ok(Tally { skipped: 1, ..Tally::default() });
    };
    let console = Boot::new("boot", "", "torture spin 5 torture_type=spin_lock\n").run(bench, &image)?;
    let run = console.run("spin");
    let mut tally = sound(&console, &[]);
    tally += used(&console, true);
    tally += tortured("spin", &run);
    tally += shares("hand-offs stay on a node", &run, |share| share >= 90.0);
    Ok(tally)
}

pub(crate) fn share(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let plan = format!("{SPIN}{URGENT}torture rw 5 torture_type=rw_lock nreaders_stress=0\n");
    let off = Boot::new("share-off", "numa_spinlock=off", &plan).run(bench, &image)?;
    let auto = Boot::new("share-auto", "", &plan).run(bench, &image)?;
    let mut tally = Tally::default();
    for console in [&off, &auto] {
        tally += sound(console, &[]);
        for name in ["spin", "irq", "fifo", "rw"] {
            tally += tortured(&format!("{} {name}", console.name), &console.run(name));
        }
    }
    tally += used(&off, false);
    tally += used(&auto, true);
    tally += shares("off: hand-offs do not stay on a node", &off.run("spin"), |share| share <= 10.0);
    tally += shares("auto: hand-offs stay on a node", &auto.run("spin"), |share| share >= 90.0);
    for name in ["irq", "fifo"] {
        let (off, auto) = (off.run(name), auto.run(name));
        let is_ok = off.handoffs() > 0 && auto.handoffs() > 0 && (off.share() - auto.share()).abs() <= 5.0;
        let found = format!("{:.2} % off, {:.2} % with CNA", off.share(), auto.share());
        tally += check(format!("{name}: urgent waiters are served as without CNA"), is_ok, found);
        let moved = auto.event("cna_set_aside");
        // Others than the writers wait, too, but seldom.
        tally += check(format!("{name}: urgent waiters are not culled"), moved <= 10, format!("{moved} culled"));
    }
    Ok(tally)
}

/// Thresholds in µs, and for how long the lock is held.
const THRESHOLDS: [u64; 4] = [0, 300, 1000, 20_000];
const HOLDS: [u64; 4] = [0, 40, 700, 30_000];

/// How long a waiter may wait, in ns: with threshold and longest turn, in a machine where each CPU may be before it.
pub(crate) fn longest_wait(threshold: u64, turn: u64) -> u64 {
    let before = CPUS as u64 - 1;
    // A broken kernel may say anything.
    let away = threshold.saturating_add(turn.saturating_mul(2)).saturating_mul(NODES - 1);
    away.saturating_add(turn.saturating_mul(before + 1))
}

/// What the module `bound` says: the longest wait and turn, and the fewest turns of a thread.
pub(crate) fn waits(run: &Run) -> Option<(u64, u64, u64)> {
    let line = run.text.lines().find_map(|line| line.split_once("bound: wait ").map(|(_, rest)| rest))?;
    let mut words = line.split([' ', ':']);
    let wait = words.next()?.parse().ok()?;
    let mut number = |label: &str| words.by_ref().skip_while(|word| *word != label).nth(1)?.parse().ok();
    Some((wait, number("turn")?, number("least")?))
}

/// The longest wait of one boot's runs, beside the bound.
pub(crate) fn within_bound(console: &Console, threshold: u64, longest: fn(u64, u64) -> u64) -> Tally {
    let mut tally = Tally::default();
    for hold in HOLDS {
        let name = format!("{}: threshold {threshold} us, held for {hold} us", console.name);
        let Some((wait, turn, least)) = waits(&console.run(&format!("hold-{hold}"))) else {
            tally += check(name, false, "the module said nothing");
            continue;
        };
        let most = longest(1000 * threshold, turn);
        let found = format!("waited {} us of {} at most (turn {} us)", wait / 1000, most / 1000, turn / 1000);
        tally += check(name, wait <= most && least > 0, found);
    }
    tally
}

/// A boot with this threshold that holds a lock for each of these times.
pub(crate) fn bound_boot(name: &str, threshold: u64, layout: Layout) -> Boot<'_> {
    let plan: String =
        HOLDS.iter().map(|hold| format!("bound hold-{hold} {} {hold}\n", if *hold > 1000 { 15 } else { 4 })).collect();
    Boot { layout, ..Boot::new(name, &format!("numa_spinlock_threshold_us={threshold}"), &plan) }
}

/// By our module, and by locktorture's own limit of an acquisition's time.
pub(crate) fn bound(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let mut tally = Tally::default();
    for threshold in THRESHOLDS {
        for (layout, suffix) in [(Layout::Interleaved, ""), (Layout::Crowded, "-crowded")] {
            let name = format!("bound-{threshold}{suffix}");
            let console = bound_boot(&name, threshold, layout).run(bench, &image)?;
            tally += sound(&console, &[]);
            tally += within_bound(&console, threshold, longest_wait);
        }
    }
    // locktorture holds for 20 ms at most, now and then; a round of the simulated CPUs is added. In jiffies of 1 ms.
    let limit = longest_wait(1_000_000, 25_000_000) / 1_000_000;
    let plan = format!("torture spin 10 torture_type=spin_lock long_hold=20 acq_writer_lim={limit}\n");
    let console = Boot::new("bound-torture", "", &plan).run(bench, &image)?;
    tally += sound(&console, &[]);
    tally += tortured(&format!("no acquisition takes longer than {limit} ms"), &console.run("spin"));
    Ok(tally)
}

/// What shows that all queue nodes of a CPU are used.
pub(crate) const NESTED: [&str; 3] = ["lock_use_node2", "lock_use_node3", "lock_use_node4"];

/// Locks of all levels of nesting exclude, and these events have happened.
pub(crate) fn levels(name: &str, run: &Run, wanted: &[&str]) -> Tally {
    let levels = run.text.matches(": excluded").count();
    let mut tally = check(format!("{name}: locks of all levels exclude"), levels == 4, format!("{levels} of 4"));
    for event in wanted {
        tally += check(format!("{name}: {event}"), run.event(event) > 0, run.event(event));
    }
    tally
}

/// An image whose slow path is called by a static call, and which cannot shuffle: a kernel for machines that are not
/// emulated.
const STATIC: &str = "# CONFIG_HYPERVISOR_GUEST is not set\n# CONFIG_PARAVIRT is not set\n\
                      # CONFIG_PARAVIRT_SPINLOCKS is not set\n# CONFIG_NUMA_SPINLOCK_SHUFFLE is not set\n";

/// What `boot`, `share` and `nesting` ask of the main image, in short.
pub(crate) fn static_call(bench: &Bench) -> Result<Tally> {
    let image = bench.image(STATIC, &[])?.context("no image")?;
    let plan = "torture spin 5 torture_type=spin_lock\nnest nest 5\n";
    let mut tally = Tally::default();
    for (name, append, is_used) in [
        ("static-auto", "", true),
        ("static-off", "numa_spinlock=off", false),
        // It is not there: as without the parameter.
        ("static-shuffle", "numa_spinlock=shuffle", true),
    ] {
        let console = Boot::new(name, append, plan).run(bench, &image)?;
        tally += sound(&console, &[]);
        tally += used(&console, is_used);
        if name == "static-shuffle" {
            let (is_ok, found) = printed(&console, BAD_MODE);
            tally += check(format!("{name}: it is refused"), is_ok, found);
        }
        let run = console.run("spin");
        tally += tortured(&format!("{name} spin"), &run);
        let is_right: fn(f64) -> bool = if is_used { |share| share >= 90.0 } else { |share| share <= 10.0 };
        tally += shares(&format!("{name}: whether hand-offs stay on a node"), &run, is_right);
        tally += levels(name, &console.run("nest"), &NESTED);
    }
    Ok(tally)
}

/// Four nested waits of a CPU at a time, and more than there are queue nodes for.
pub(crate) fn nesting(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    let full = image(bench)?;
    let one = [Edit { file: "kernel/locking/qspinlock.c", from: "#define MAX_NODES	4\n", to: "#define MAX_NODES	1\n" }];
    let single = bench.image("", &one)?.context("no image")?;
    for (name, image, append, wanted) in [
        ("nesting", &full, "", &NESTED[..]),
        ("nesting-off", &full, "numa_spinlock=off", &NESTED),
        ("nesting-one-node", &single, "", &["lock_no_node"]),
    ] {
        let console = Boot::new(name, append, "nest nest 5\n").run(bench, image)?;
        let run = console.run("nest");
        tally += sound(&console, &[]);
        tally += levels(name, &run, wanted);
    }
    Ok(tally)
}

pub(crate) fn hotplug(bench: &Bench) -> Result<Tally> {
    unplugged("hotplug", ("", IN_USE, "cna_set_aside"), bench, &image(bench)?)
}

/// CPUs come and go under torture, with this on the command line; the kernel says that this is in use, and moves
/// waiters, which this event counts.
pub(crate) fn unplugged(
    name: &str,
    (append, in_use, event): (&str, &str, &str),
    bench: &Bench,
    image: &Image,
) -> Result<Tally> {
    // Twice as many writers as CPUs: they go where CPUs are.
    let plan = "torture spin 15 torture_type=spin_lock onoff_interval=1 onoff_holdoff=1 nwriters_stress=16\n";
    let console = Boot::new(name, append, plan).run(bench, image)?;
    let run = console.run("spin");
    let mut tally = sound(&console, &[]);
    tally += check(format!("{name}: it is in use"), console.says(in_use), in_use);
    tally += tortured(&format!("{name} spin"), &run);
    let (handoffs, moved) = (run.handoffs(), run.event(event));
    let found = format!("{handoffs} hand-offs, {event} {moved}");
    tally += check(format!("{name}: waiters queue and are moved"), handoffs > 1000 && moved > 100, found);
    let [gone, back] = ["is now offline", "Booting Node"].map(|words| run.text.matches(words).count());
    tally += check(format!("{name}: CPUs come and go"), gone > 0 && back > 0, format!("{gone} went, {back} came back"));
    Ok(tally)
}

pub(crate) fn twice(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let boot = || Boot::new("twice", "", "torture spin 2 torture_type=spin_lock\nnest nest 1\n").run(bench, &image);
    let (first, second) = (boot()?, boot()?);
    // Two that do nothing print the same, too.
    let mut tally = sound(&first, &[]);
    tally += tortured("twice spin", &first.run("spin"));
    let differs = first.text.lines().zip(second.text.lines()).find(|(a, b)| a != b);
    let is_same = first.text == second.text;
    let found = format!("{} bytes, first difference {differs:?}", first.text.len());
    tally += check("two runs print the same", is_same, found);
    Ok(tally)
}

/// What of its hand-offs stays on a node, in percent: without CNA at most, and with it at least. Loosely: the kernel
/// does other things besides. A mutex has no figures, because its threads do not queue at a spinlock here.
const USER_SHARES: (f64, f64) = (10.0, 40.0);

pub(crate) fn user(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let plan = "user flock 4 flock\nuser open 4 open\nuser mutex 4 mutex\n";
    let mut tally = Tally::default();
    for (name, append, is_used) in [("user-off", "numa_spinlock=off", false), ("user-auto", "", true)] {
        let console = Boot::new(name, append, plan).run(bench, &image)?;
        tally += sound(&console, &[]);
        tally += used(&console, is_used);
        for name in ["flock", "open", "mutex"] {
            let run = console.run(name);
            let line = run.text.lines().find(|line| line.starts_with("contend:")).unwrap_or("no result").to_owned();
            let is_ok = line.starts_with(&format!("contend: {name} total ")) && !line.ends_with("least 0");
            let found = format!("{line}; {:.1} % of {} hand-offs on a node", run.share(), run.handoffs());
            tally += check(format!("{} {name}: all threads make progress", console.name), is_ok, found);
            if name != "mutex" {
                let (most, least) = USER_SHARES;
                let is_ok = if is_used { run.share() >= least } else { run.share() <= most };
                let found = format!("{:.1} % of {} hand-offs", run.share(), run.handoffs());
                tally += check(
                    format!("{} {name}: whether hand-offs stay on a node", console.name),
                    run.handoffs() > 1000 && is_ok,
                    found,
                );
            }
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_counts_nodes_and_waiters() {
        assert_eq!(longest_wait(1000, 0), 3000);
        assert_eq!(longest_wait(0, 10), 60 + 80);
    }

    #[test]
    fn the_module_is_understood() {
        let text =
            "rig: begin hold-0\n[    1.2] bound: wait 1234 turn 56 turns 789 least 12: excluded\nrig: end hold-0\n";
        assert_eq!(waits(&Console::new("x", text).run("hold-0")), Some((1234, 56, 12)));
        assert_eq!(waits(&Run::default()), None);
    }
}
