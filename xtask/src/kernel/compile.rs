//! What is checked without booting: style, and compilation in many configurations.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::build::{Bench, SHUFFLE, Toolchain, script};
use super::disassembly::disassemble;
use super::tree::{Tree, files};
use crate::child::{AGAINST_HANGS, Program};
use crate::files;
use crate::setup;
use crate::steps::Tally;

/// What the series changes on x86.
pub(crate) const OBJECTS: [&str; 3] =
    ["kernel/locking/qspinlock.o", "kernel/locking/spinlock.o", "arch/x86/kernel/alternative.o"];
/// Only with NUMA_AWARE_SPINLOCKS.
const SWITCH: &str = "arch/x86/kernel/numa_spinlock.o";
/// What of this a kernel without SMP has.
const ALTERNATIVE: &str = OBJECTS[2];
/// Such kernels.
const UP: [(&str, Toolchain, &str); 2] = [("x86_64", X86, "CONFIG_64BIT=y\n"), ("i386", I386, "")];

pub(crate) const PARAVIRT: &str = "CONFIG_PARAVIRT_SPINLOCKS";
pub(crate) const AWARE: &str = "CONFIG_NUMA_AWARE_SPINLOCKS";
pub(crate) const EVENTS: &str = "CONFIG_LOCK_EVENT_COUNTS";

/// The compilers and machines of the matrix.
const MATRIX_PACKAGES: [&str; 3] = ["clang", "gcc-aarch64-linux-gnu", "gcc-arm-linux-gnueabi"];
pub(crate) const X86: Toolchain = Toolchain { arch: "", variables: &[] };
const CLANG: Toolchain = Toolchain { arch: "", variables: &["CC=clang", "HOSTCC=gcc"] };
const I386: Toolchain = Toolchain { arch: "i386", variables: &[] };
const ARM64: Toolchain = Toolchain { arch: "arm64", variables: &["CROSS_COMPILE=aarch64-linux-gnu-"] };
const ARM: Toolchain = Toolchain { arch: "arm", variables: &["CROSS_COMPILE=arm-linux-gnueabi-"] };

pub(crate) fn style(tree: &Tree) -> Result<Tally> {
    let mut tally = Tally::default();
    for patch in Tree::patches()? {
        tally += checkpatch(tree, &[], &patch)?;
    }
    tally += maintainers(tree)?;
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

/// The heading of the series' entry in the kernel's MAINTAINERS.
const ENTRY: &str = "NUMA-AWARE SPINLOCKS";

/// The entry stands where the kernel's own tool puts it, and its lines do, too. Not every other entry does.
fn maintainers(tree: &Tree) -> Result<Tally> {
    let name = format!("order of MAINTAINERS: {ENTRY}");
    let text = files::read(&tree.path.join("MAINTAINERS"))?;
    let Some(part) = neighbourhood(&text, ENTRY) else { return Ok(report(&name, "there is no such entry")) };
    let directory = tree.path.with_file_name("maintainers");
    files::make(&directory)?;
    let [input, output] = ["input", "output"].map(|name| directory.join(name));
    files::write(&input, &part)?;
    let mut command = Command::new("perl");
    command.arg(script(tree, "parse-maintainers.pl")).arg("--order").current_dir(&directory);
    command.arg(format!("--input={}", input.display())).arg(format!("--output={}", output.display()));
    Program::new(command, AGAINST_HANGS).run()?.successful()?;
    let sorted = files::read(&output)?;
    Ok(report(&name, &if sorted == part { String::new() } else { format!("it is\n{part}\nand not\n{sorted}") }))
}

/// This entry of MAINTAINERS, with the one before and the one behind it.
fn neighbourhood(text: &str, entry: &str) -> Option<String> {
    let entries: Vec<&str> = text.split("\n\n").collect();
    let at = entries.iter().position(|lines| lines.lines().next() == Some(entry))?;
    let part = entries.get(at.checked_sub(1)?..at + 2)?;
    Some(part.iter().map(|lines| lines.trim_end()).collect::<Vec<_>>().join("\n\n") + "\n")
}

/// One line about a check, and all that speaks against it.
pub(crate) fn report(name: &str, complaints: &str) -> Tally {
    if complaints.trim().is_empty() {
        println!("ok {name}");
        Tally::PASSED
    } else {
        println!("not ok {name}\n{complaints}");
        Tally::FAILED
    }
}

/// The lines that set these options, and leave those out.
pub(crate) fn lines(on: &[&str], off: &[&str]) -> String {
    let mut lines = String::new();
    for name in on {
        let _ = writeln!(lines, "{name}=y");
    }
    for name in off {
        let _ = writeln!(lines, "# {name} is not set");
    }
    lines
}

/// An option's name in the kernel's Kconfig files.
fn short(option: &str) -> &str {
    option.trim_start_matches("CONFIG_")
}

/// All subsets of these options, as lines, with a name for each.
fn subsets(options: &[&str]) -> Vec<(String, String)> {
    (0..1_usize << options.len())
        .map(|bits| {
            let (on, off): (Vec<_>, Vec<_>) =
                options.iter().enumerate().partition(|(index, _)| bits & (1 << index) != 0);
            let [on, off] = [on, off].map(|part| part.into_iter().map(|(_, name)| *name).collect::<Vec<_>>());
            let names: Vec<_> = on.iter().map(|name| short(name)).collect();
            (if names.is_empty() { "none".to_owned() } else { names.join("+") }, lines(&on, &off))
        })
        .collect()
}

/// Compiles what the series changes, in this configuration besides the guest's.
fn compile(bench: &Bench, directory: &str, toolchain: Toolchain, lines: &str) -> Result<String> {
    let build = bench.configure(directory, toolchain, &format!("{}{lines}", Bench::guest_config()?))?;
    let mut objects = OBJECTS.to_vec();
    if is_set(lines, AWARE) {
        objects.push(SWITCH);
    }
    build.compile(&objects)
}

fn is_set(lines: &str, option: &str) -> bool {
    lines.lines().any(|line| line.strip_suffix("=y") == Some(option))
}

/// The configurations without the experiment.
pub(crate) fn main_configurations(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    for (name, lines) in subsets(&[PARAVIRT, AWARE]) {
        tally += in_turn(bench, &name, &lines);
    }
    Ok(tally)
}

/// Without hypervisors: nothing of the series can be patched in by PARAVIRT.
const BARE: &str = "# CONFIG_HYPERVISOR_GUEST is not set\n# CONFIG_PARAVIRT is not set\n\
                    # CONFIG_PARAVIRT_SPINLOCKS is not set\nCONFIG_NUMA_AWARE_SPINLOCKS=y\n";

/// Those with the experiment, one without hypervisors, and those without SMP.
pub(crate) fn rare_configurations(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut wanted = subsets(&[PARAVIRT, AWARE, SHUFFLE]);
    wanted.retain(|(_, lines)| is_set(lines, AWARE) && is_set(lines, SHUFFLE));
    for (name, lines) in wanted {
        tally += in_turn(bench, &name, &lines);
    }
    tally += in_turn(bench, "for machines that are not emulated", BARE);
    tally += without_smp(bench, "");
    Ok(tally)
}

/// Compiles a configuration in a directory that all share, so that little is compiled twice.
fn in_turn(bench: &Bench, name: &str, lines: &str) -> Tally {
    other(&format!("compiles: {name}"), || compile(bench, "main", X86, lines))
}

/// Compiles what a kernel for one CPU has of it, which includes other headers.
fn without_smp(bench: &Bench, suffix: &str) -> Tally {
    let mut tally = Tally::default();
    for (name, toolchain, lines) in UP {
        let check = || {
            let lines = format!("{lines}# CONFIG_SMP is not set\n");
            bench.configure(&format!("up-{name}"), toolchain, &lines)?.compile(&[ALTERNATIVE])
        };
        tally += other(&format!("compiles without SMP: {name}{suffix}"), check);
    }
    tally
}

pub(crate) fn each_patch(bench: &Bench) -> Result<Tally> {
    let tree = &bench.tree;
    let mut tally = Tally::default();
    let list = tree.git(&["rev-list", "--reverse", "base..series"])?;
    for (index, commit) in list.lines().enumerate() {
        tree.git(&["checkout", "--force", "--quiet", commit])?;
        let kconfig = std::fs::read_to_string(tree.path.join("arch/x86/Kconfig"))?;
        let knows = |option: &str| kconfig.contains(&format!("config {}\n", short(option)));
        let suffix = format!(", patch {}", index + 1);
        // The guest's configuration has all options.
        let (known, unknown): (Vec<_>, Vec<_>) =
            [PARAVIRT, AWARE, SHUFFLE].into_iter().partition(|option| *option == PARAVIRT || knows(option));
        // The comment makes it another configuration for each number of options: make would ask about new ones.
        let rest = format!("# of {} options\n{}", known.len(), lines(&[], &unknown));
        for (name, lines) in subsets(&known) {
            // `rare` compiles the experiment.
            if !is_set(&lines, SHUFFLE) {
                // One directory for all: little is compiled twice.
                let check = || compile(bench, "patch", X86, &format!("{lines}{rest}"));
                tally += other(&format!("compiles: {name}{suffix}"), check);
            }
        }
        if knows(AWARE) {
            tally += without_smp(bench, &suffix);
        }
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
    for (compiler, toolchain) in [("gcc", X86), ("clang", CLANG)] {
        for (name, lines) in &wanted {
            let complaints = compile(bench, &format!("matrix-{compiler}"), toolchain, lines);
            let complaints = complaints.unwrap_or_else(|error| format!("{error:#}"));
            tally += report(&format!("compiles with {compiler}: {name}"), &complaints);
        }
    }
    tally += other("i386 has no such option", || i386_refuses(bench));
    tally += other("i386 compiles", || i386(bench));
    tally += other("arm64 compiles", || arm64(bench));
    tally += other("arm's hand-off macros expand", || arm(bench));
    Ok(tally)
}

fn other(name: &str, check: impl FnOnce() -> Result<String>) -> Tally {
    report(name, &check().unwrap_or_else(|error| format!("{error:#}")))
}

/// With what the option needs apart from 64 bits.
const I386_LINES: &str = "CONFIG_SMP=y\nCONFIG_X86_BIGSMP=y\nCONFIG_HIGHMEM64G=y\nCONFIG_NUMA=y\n\
                          CONFIG_HYPERVISOR_GUEST=y\nCONFIG_PARAVIRT=y\nCONFIG_PARAVIRT_SPINLOCKS=y\n";

fn i386_refuses(bench: &Bench) -> Result<String> {
    let wanted = format!("{AWARE}=y");
    let refused = bench.refused("matrix-i386-refused", I386, &format!("{I386_LINES}{wanted}\n"))?;
    Ok(if refused == [wanted] { String::new() } else { format!("its configuration refuses {refused:?}") })
}

fn i386(bench: &Bench) -> Result<String> {
    bench.configure("matrix-i386", I386, I386_LINES)?.compile(&OBJECTS)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subsets_are_named() {
        let names: Vec<String> = subsets(&["CONFIG_A", "CONFIG_B"]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["none", "A", "B", "A+B"]);
    }

    #[test]
    fn an_entry_is_cut_out_with_its_neighbours() {
        let text = "preamble\n\nA\nM:\tx\n\nB\nM:\ty\n\nC\nM:\tz\n\nD\nM:\tw\n";
        assert_eq!(neighbourhood(text, "B").as_deref(), Some("A\nM:\tx\n\nB\nM:\ty\n\nC\nM:\tz\n"));
        assert_eq!(neighbourhood(text, "E"), None);
    }
}
