//! What the compiler has made of the locks, instruction by instruction.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::{Bench, Build};
use super::compile::{AWARE, EVENTS, OBJECTS, PARAVIRT, X86, lines, report};
use crate::child::{AGAINST_HANGS, Program};
use crate::steps::Tally;

/// The instructions of one function, or of all, without addresses.
pub(crate) fn disassemble(object: &Path, function: &str, tool: &str) -> Result<String> {
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
        bench.configure(name, X86, &format!("{guest}{}", lines(on, off)))
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
        // Without the option, the function has another name.
        let is_plain = name == "none";
        let now = paths(&build, is_plain)?;
        let fast = difference(&compiled[base].fast, &now.fast);
        tally += report(&format!("same fast path: {name}"), &fast);
        let before = &compiled[base].slow;
        let (what, before) = if name == "NUMA_AWARE_SPINLOCKS" {
            ("same slow path except for the size of a node", with_larger_nodes(before)?)
        } else {
            ("same slow path", before.clone())
        };
        tally += report(&format!("{what}: {name}"), &difference(&before, &now.slow));
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
        .replace("native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath")
        .lines()
        .map(|line| line.split(" #").next().unwrap_or(line).trim_end())
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What the code of a slow path with queue nodes of 16 bytes is with nodes of 32.
fn with_larger_nodes(code: &str) -> Result<String> {
    let (from, to) = ("shl    $0x4,", "shl    $0x5,");
    if !code.contains(from) {
        bail!("no `{from}` finds a queue node in\n{code}");
    }
    Ok(code.replace(from, to))
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
    fn a_function_is_cut_out() {
        let text = "\nDisassembly of section .text:\n\n<a>:\n\tret\n\t\tR_X x\n\n<ab>:\n\tnop\n\tret\n\n<c>:\n\tint3\n";
        assert_eq!(code_of(text, "ab").as_deref(), Some("\tnop\n\tret"));
        assert_eq!(code_of(text, "c").as_deref(), Some("\tint3\n"));
        assert_eq!(code_of(text, "b"), None);
        assert!(code_of(text, "").is_some_and(|code| code.contains("int3") && code.contains("nop")));
    }

    #[test]
    fn a_node_is_found_by_another_shift() {
        assert_eq!(with_larger_nodes("shl    $0x4,%rax\nret").expect("a shift"), "shl    $0x5,%rax\nret");
        assert!(with_larger_nodes("ret").is_err());
    }

    #[test]
    fn a_difference_is_found() {
        assert_eq!(difference("a\nb", "a\nb"), "");
        assert!(difference("a\nb", "a\nc").contains("line 2"));
        assert!(difference("a\nb", "a").contains("1 lines"));
    }
}
