//! What is checked without booting: style, and compilation in many configurations.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::{Bench, Build, SHUFFLE, Toolchain, script};
use super::tree::{Tree, files};
use crate::child::{AGAINST_HANGS, Program};
use crate::setup;
use crate::steps::Tally;

/// What the series changes on x86.
const OBJECTS: [&str; 3] = ["kernel/locking/qspinlock.o", "kernel/locking/spinlock.o", "arch/x86/kernel/alternative.o"];
/// Only with NUMA_AWARE_SPINLOCKS.
const SWITCH: &str = "arch/x86/kernel/numa_spinlock.o";

const PARAVIRT: &str = "CONFIG_PARAVIRT_SPINLOCKS";
const AWARE: &str = "CONFIG_NUMA_AWARE_SPINLOCKS";
const EVENTS: &str = "CONFIG_LOCK_EVENT_COUNTS";

/// The compilers and machines of the matrix.
const MATRIX_PACKAGES: [&str; 3] = ["clang", "gcc-aarch64-linux-gnu", "gcc-arm-linux-gnueabi"];
const CLANG: Toolchain = Toolchain { arch: "", variables: &["CC=clang", "HOSTCC=gcc"] };
const I386: Toolchain = Toolchain { arch: "i386", variables: &[] };
const ARM64: Toolchain = Toolchain { arch: "arm64", variables: &["CROSS_COMPILE=aarch64-linux-gnu-"] };
const ARM: Toolchain = Toolchain { arch: "arm", variables: &["CROSS_COMPILE=arm-linux-gnueabi-"] };

pub(crate) fn style(tree: &Tree) -> Result<Tally> {
    let mut tally = Tally::default();
    for patch in Tree::patches()? {
        tally += checkpatch(tree, &[], &patch)?;
    }
    // Of our own files, those in C.
    for (directory, options) in [
        ("kernel/module", &["--file"][..]),
        // x86 declares handlers of NMIs in asm/nmi.h, which linux/nmi.h need not include.
        ("kernel/test/modules", &["--file", "--ignore", "INCLUDE_LINUX"]),
    ] {
        for file in files(directory, &["c", "h"])? {
            tally += checkpatch(tree, options, &file)?;
        }
    }
    Ok(tally)
}

fn checkpatch(tree: &Tree, options: &[&str], file: &Path) -> Result<Tally> {
    let mut command = Command::new("perl");
    command.arg(script(tree, "checkpatch.pl")).arg("--strict").args(options).arg(file).current_dir(&tree.path);
    let done = Program::new(command, AGAINST_HANGS).run()?;
    let is_clean = done.ok() && done.stdout.contains("total: 0 errors, 0 warnings, 0 checks");
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Ok(report(&format!("checkpatch {name}"), if is_clean { "" } else { &done.stdout }))
}

/// One line about a check, and all that speaks against it.
fn report(name: &str, complaints: &str) -> Tally {
    if complaints.trim().is_empty() {
        println!("ok {name}");
        Tally::PASSED
    } else {
        println!("not ok {name}\n{complaints}");
        Tally::FAILED
    }
}

/// The lines that set these options, and leave those out.
fn lines(on: &[&str], off: &[&str]) -> String {
    let mut lines = String::new();
    for name in on {
        let _ = writeln!(lines, "{name}=y");
    }
    for name in off {
        let _ = writeln!(lines, "# {name} is not set");
    }
    lines
}

/// All subsets of these options, as lines, with a name for each.
fn subsets(options: &[&str]) -> Vec<(String, String)> {
    (0..1_usize << options.len())
        .map(|bits| {
            let (on, off): (Vec<_>, Vec<_>) =
                options.iter().enumerate().partition(|(index, _)| bits & (1 << index) != 0);
            let [on, off] = [on, off].map(|part| part.into_iter().map(|(_, name)| *name).collect::<Vec<_>>());
            let short: Vec<_> = on.iter().map(|name| name.trim_start_matches("CONFIG_")).collect();
            (if short.is_empty() { "none".to_owned() } else { short.join("+") }, lines(&on, &off))
        })
        .collect()
}

/// Compiles what the series changes, in this configuration besides the guest's.
fn compile(bench: &Bench, directory: &str, toolchain: Toolchain, lines: &str) -> Result<String> {
    let build = bench.configure(directory, toolchain, &format!("{}{lines}", Bench::guest_config()?))?;
    let mut objects = OBJECTS.to_vec();
    if lines.contains(&format!("{AWARE}=y")) {
        objects.push(SWITCH);
    }
    build.compile(&objects)
}

pub(crate) fn main_configurations(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    for (name, lines) in subsets(&[PARAVIRT, AWARE]) {
        let more = if lines.contains(&format!("{AWARE}=y")) { format!("{SHUFFLE}=y\n") } else { String::new() };
        // One directory for all: little is compiled twice.
        let complaints = compile(bench, "main", Toolchain::default(), &format!("{lines}{more}"))?;
        tally += report(&format!("compiles: {name}"), &complaints);
    }
    Ok(tally)
}

pub(crate) fn each_patch(bench: &Bench) -> Result<Tally> {
    let tree = &bench.tree;
    let mut tally = Tally::default();
    let list = tree.git(&["rev-list", "--reverse", "base..series"])?;
    for (index, commit) in list.lines().enumerate() {
        tree.git(&["checkout", "--force", "--quiet", commit])?;
        let knows =
            std::fs::read_to_string(tree.path.join("arch/x86/Kconfig"))?.contains("config NUMA_AWARE_SPINLOCKS");
        let lines = if knows { lines(&[PARAVIRT, AWARE], &[]) } else { lines(&[PARAVIRT], &[AWARE]) };
        // A directory for those without the option and one for those with it: little is compiled twice.
        let result = compile(bench, if knows { "patch-aware" } else { "patch" }, Toolchain::default(), &lines);
        tally +=
            report(&format!("compiles: patch {}", index + 1), &result.unwrap_or_else(|error| format!("{error:#}")));
    }
    tree.git(&["checkout", "--force", "--quiet", "series"])?;
    Ok(tally)
}

pub(crate) fn matrix(bench: &Bench) -> Result<Tally> {
    setup::install(MATRIX_PACKAGES.to_vec())?;
    let mut tally = Tally::default();
    let mut wanted = subsets(&[PARAVIRT, AWARE, EVENTS]);
    let all = lines(&[PARAVIRT, AWARE, EVENTS], &[]);
    wanted.push(("LOCKDEP".to_owned(), format!("{all}CONFIG_PROVE_LOCKING=y\n")));
    let rt = "CONFIG_EXPERT=y\n# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT=y\nCONFIG_PREEMPT_RT=y\n";
    wanted.push(("PREEMPT_RT".to_owned(), format!("{all}{rt}")));
    for (compiler, toolchain) in [("gcc", Toolchain::default()), ("clang", CLANG)] {
        for (name, lines) in &wanted {
            let complaints = compile(bench, &format!("matrix-{compiler}"), toolchain, lines);
            let complaints = complaints.unwrap_or_else(|error| format!("{error:#}"));
            tally += report(&format!("compiles with {compiler}: {name}"), &complaints);
        }
    }
    tally += other("i386 has no such option", || i386(bench));
    tally += other("arm64 compiles", || arm64(bench));
    tally += other("arm's hand-off macros expand", || arm(bench));
    Ok(tally)
}

fn other(name: &str, check: impl FnOnce() -> Result<String>) -> Tally {
    report(name, &check().unwrap_or_else(|error| format!("{error:#}")))
}

fn i386(bench: &Bench) -> Result<String> {
    let lines = "CONFIG_SMP=y\nCONFIG_X86_BIGSMP=y\nCONFIG_HYPERVISOR_GUEST=y\nCONFIG_PARAVIRT=y\n\
                 CONFIG_PARAVIRT_SPINLOCKS=y\n";
    let build = bench.configure("matrix-i386", I386, &format!("{lines}# {AWARE} is not set\n"))?;
    build.compile(&OBJECTS)
}

fn arm64(bench: &Bench) -> Result<String> {
    let build = bench.configure(
        "matrix-arm64",
        ARM64,
        "CONFIG_NUMA=y\nCONFIG_DEBUG_KERNEL=y\nCONFIG_DEBUG_FS=y\nCONFIG_LOCK_EVENT_COUNTS=y\n",
    )?;
    build.compile(&["kernel/locking/qspinlock.o", "kernel/locking/spinlock.o"])
}

/// No configuration of arm has MCS locks, so a file of ours uses the macros.
fn arm(bench: &Bench) -> Result<String> {
    let lines = "CONFIG_MMU=y\nCONFIG_ARCH_MULTI_V7=y\nCONFIG_SMP=y\nCONFIG_MODULES=y\n";
    let build = bench.configure("matrix-arm", ARM, lines)?;
    build.make(&["modules_prepare"])?;
    let directory = build.out.join("handoff");
    std::fs::create_dir_all(&directory)?;
    for file in ["handoff.c", "Makefile"] {
        std::fs::copy(Bench::tests().join("arm").join(file), directory.join(file))?;
    }
    let complaints = build.make(&[&format!("M={}", directory.display()), "handoff.o"])?;
    let code = disassemble(&directory.join("handoff.o"), "", "arm-linux-gnueabi-objdump")?;
    let missing: Vec<&str> = ["wfe", "sev", "dmb"].into_iter().filter(|word| !code.contains(word)).collect();
    if !missing.is_empty() {
        bail!("the macros do not execute {missing:?}:\n{code}");
    }
    Ok(complaints)
}

/// The instructions of one function, or of all, without addresses.
fn disassemble(object: &Path, function: &str, tool: &str) -> Result<String> {
    let mut command = Command::new(tool);
    command.args(["-dr", "--no-show-raw-insn", "--no-addresses"]).arg(object);
    let text = Program::new(command, AGAINST_HANGS).run()?.successful()?;
    code_of(&text, function).with_context(|| format!("no function {function} in {}", object.display()))
}

/// The part of a disassembly that shows this function, or all of it. Not by objdump's own option, which also shows the
/// relocations of whatever comes before the function.
fn code_of(text: &str, function: &str) -> Option<String> {
    if function.is_empty() {
        return Some(text[text.find(">:")?..].to_owned());
    }
    let heading = format!("<{function}>:\n");
    let code = &text[text.find(&heading)? + heading.len()..];
    Some(code.split("\n\n").next().unwrap_or(code).to_owned())
}

/// The fast path, and the slow path where CNA is not in use, are what they were before the series.
pub(crate) fn same_instructions(bench: &Bench) -> Result<Tally> {
    // As distributions compile: optimised for speed, which also inlines what is called in two places.
    let guest = format!(
        "{}# {EVENTS} is not set\nCONFIG_CC_OPTIMIZE_FOR_PERFORMANCE=y\n# CONFIG_CC_OPTIMIZE_FOR_SIZE is not set\n\
         CONFIG_JUMP_LABEL=y\n",
        Bench::guest_config()?
    );
    let before = |on: &[&str], off: &[&str], name: &str| -> Result<Build<'_>> {
        bench.configure(name, Toolchain::default(), &format!("{guest}{}", lines(on, off)))
    };
    let objects = &OBJECTS[..2];
    bench.tree.git(&["checkout", "--force", "--quiet", "base"])?;
    let compiled = (|| {
        let mut code = Vec::new();
        for (on, off, name) in [(&[PARAVIRT][..], &[AWARE][..], "base-pv"), (&[], &[PARAVIRT, AWARE], "base-native")] {
            let build = before(on, off, name)?;
            build.compile(objects)?;
            code.push(paths(&build, name == "base-native")?);
        }
        Ok::<_, anyhow::Error>(code)
    })();
    bench.tree.git(&["checkout", "--force", "--quiet", "series"])?;
    let compiled = compiled?;
    let mut tally = Tally::default();
    for (on, off, name, base) in [
        (&[PARAVIRT][..], &[AWARE][..], "PARAVIRT_SPINLOCKS", 0),
        (&[PARAVIRT, AWARE], &[], "PARAVIRT_SPINLOCKS+NUMA_AWARE_SPINLOCKS", 0),
        (&[], &[PARAVIRT, AWARE], "none", 1),
        (&[AWARE], &[PARAVIRT], "NUMA_AWARE_SPINLOCKS", 1),
    ] {
        let build = before(on, off, &format!("series-{name}"))?;
        build.compile(objects)?;
        // Without PARAVIRT_SPINLOCKS, the name of the function differs and, with larger queue nodes, a shift by one.
        let is_plain = name == "none";
        let now = paths(&build, is_plain)?;
        let fast = difference(&compiled[base].fast, &now.fast);
        tally += report(&format!("same fast path: {name}"), &fast);
        if name != "NUMA_AWARE_SPINLOCKS" {
            tally += report(&format!("same slow path: {name}"), &difference(&compiled[base].slow, &now.slow));
        }
    }
    Ok(tally)
}

struct Paths {
    fast: String,
    slow: String,
}

fn paths(build: &Build<'_>, is_plain: bool) -> Result<Paths> {
    let slow = if is_plain { "queued_spin_lock_slowpath" } else { "native_queued_spin_lock_slowpath" };
    let of = |object: &str, function: &str| {
        disassemble(&build.out.join(object), function, "objdump").map(|text| normal(&text))
    };
    Ok(Paths { fast: of(OBJECTS[1], "_raw_spin_lock")?, slow: of(OBJECTS[0], slow)? })
}

/// Without what the linker or the boot replaces: a call of the slow path is one, whatever its name is.
fn normal(code: &str) -> String {
    code.replace("__SCT__qspinlock_slowpath", "queued_spin_lock_slowpath")
        .lines()
        .map(|line| line.split(" #").next().unwrap_or(line).trim_end())
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Empty if they are the same.
fn difference(before: &str, now: &str) -> String {
    let at = before.lines().zip(now.lines()).position(|(a, b)| a != b);
    match at {
        None if before.lines().count() == now.lines().count() => String::new(),
        None => format!("{} lines instead of {}", now.lines().count(), before.lines().count()),
        Some(at) => format!(
            "line {}: `{}` instead of `{}`",
            at + 1,
            now.lines().nth(at).unwrap_or_default(),
            before.lines().nth(at).unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subsets_are_named() {
        let names: Vec<String> = subsets(&["CONFIG_A", "CONFIG_B"]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["none", "A", "B", "A+B"]);
    }

    #[test]
    fn a_function_is_cut_out() {
        let text = "\nDisassembly of section .text:\n\n<a>:\n\tret\n\t\tR_X x\n\n<ab>:\n\tnop\n\tret\n\n<c>:\n\tint3\n";
        assert_eq!(code_of(text, "ab").as_deref(), Some("\tnop\n\tret"));
        assert_eq!(code_of(text, "c").as_deref(), Some("\tint3\n"));
        assert_eq!(code_of(text, "b"), None);
        assert!(code_of(text, "").is_some_and(|code| code.contains("int3") && code.contains("nop")));
    }

    #[test]
    fn a_difference_is_found() {
        assert_eq!(difference("a\nb", "a\nb"), "");
        assert!(difference("a\nb", "a\nc").contains("line 2"));
        assert!(difference("a\nb", "a").contains("1 lines"));
    }
}
