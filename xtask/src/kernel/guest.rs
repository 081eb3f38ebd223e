//! Booting an image in an emulated machine.
//!
//! The machine has four NUMA nodes with two CPUs each, interleaved, each CPU in a socket of its own. QEMU interprets it
//! (`-accel tcg`) on one thread and counts instructions for time, so that what happens does not depend on how busy this
//! computer is, and happens again. The guest must not know that it is one (`-hypervisor`), or its spinlocks do not
//! queue.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::build::{Bench, Image};
use super::judge::Console;
use crate::child::{AGAINST_HANGS, Program};
use crate::setup;

/// Against an emulator that hangs. A guest that hangs ends itself, by its own clock, whatever this computer is busy
/// with.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// What the machine needs, by Debian's names.
const PACKAGES: [&str; 3] = ["busybox-static", "cpio", "qemu-system-x86"];

const NODES: usize = 4;
pub(crate) const CPUS: usize = 8;

/// Which CPUs are on which node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Layout {
    /// n and n + 4 on node n.
    Interleaved,
    /// All on one node.
    One,
    /// One on each node but the first, which has all others: so one of its waiters is always next, if it may be.
    Crowded,
}

impl Layout {
    /// The node of each CPU.
    pub(crate) fn nodes(self) -> [usize; CPUS] {
        std::array::from_fn(|cpu| match self {
            Self::Interleaved => cpu % NODES,
            Self::One => 0,
            Self::Crowded => cpu.saturating_sub(CPUS - NODES),
        })
    }
}

/// One boot.
#[derive(Clone, Debug)]
pub(crate) struct Boot<'a> {
    /// What it is called in messages.
    pub(crate) name: &'a str,
    /// Added to the kernel's command line.
    pub(crate) append: String,
    /// The shell commands that `kernel/test/init` runs.
    pub(crate) plan: String,
    pub(crate) layout: Layout,
    /// The CPU says that there is a hypervisor.
    pub(crate) knows: bool,
    /// Further files, and where they are in the guest.
    pub(crate) files: Vec<(PathBuf, String)>,
}

impl<'a> Boot<'a> {
    pub(crate) fn new(name: &'a str, append: &str, plan: &str) -> Self {
        let (append, plan) = (append.to_owned(), plan.to_owned());
        Self { name, append, plan, layout: Layout::Interleaved, knows: false, files: Vec::new() }
    }

    /// Boots and returns what the console said, however it ended.
    pub(crate) fn run(&self, bench: &Bench, image: &Image) -> Result<Console> {
        setup::install(PACKAGES.to_vec())?;
        let directory = bench.cache.join("guest");
        let initrd = self.initrd(&directory, image)?;
        let mut command = Command::new("nice");
        command.args(["-n", "10", "qemu-system-x86_64"]);
        command.args(["-accel", "tcg,thread=single", "-icount", "shift=4,sleep=off"]);
        command.args(["-rtc", "base=2026-01-01,clock=vm"]);
        let cpu = if self.knows { "max,-rdrand,-rdseed" } else { "max,-hypervisor,-rdrand,-rdseed" };
        command.args(["-cpu", cpu, "-machine", "q35", "-m", "512M"]);
        command.arg("-smp").arg(format!("{CPUS},sockets={CPUS},cores=1,threads=1"));
        if self.layout != Layout::One {
            numa(&mut command, self.layout.nodes());
        }
        command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
        command
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&initrd)
            .arg("-append")
            .arg(format!("console=ttyS0 panic=-1 oops=panic lpj=4000000 softlockup_panic=1 {}", self.append));
        let done = Program::new(command, LIMIT).run()?;
        if done.status.is_none() || done.stdout.is_empty() {
            bail!("{}", done.transcript());
        }
        let console = Console::new(self.name, &done.stdout);
        fs::write(directory.join(format!("{}.log", self.name)), &done.stdout)?;
        Ok(console)
    }

    /// The guest's files.
    fn initrd(&self, directory: &Path, image: &Image) -> Result<PathBuf> {
        let root = directory.join("root");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        for name in ["bin", "lib", "proc", "sys", "dev", "tmp"] {
            fs::create_dir_all(root.join(name))?;
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).context("busybox (package busybox-static)")?;
        fs::copy(Bench::tests().join("init"), root.join("init"))?;
        fs::write(root.join("plan"), &self.plan)?;
        let contend = directory.join("contend");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-Wall", "-Wextra", "-static", "-pthread", "-o"]).arg(&contend);
        gcc.arg(Bench::tests().join("user/contend.c"));
        Program::new(gcc, AGAINST_HANGS).run()?.successful()?;
        fs::rename(&contend, root.join("bin/contend"))?;
        for module in &image.modules {
            fs::copy(module, root.join("lib").join(module.file_name().context("a module without a name")?))?;
        }
        for (from, to) in &self.files {
            let to = root.join(to.trim_start_matches('/'));
            fs::create_dir_all(to.parent().context("a file without a directory")?)?;
            fs::copy(from, &to).with_context(|| format!("{}", from.display()))?;
        }
        let initrd = directory.join("initrd");
        let mut cpio = Command::new("sh");
        // The files' times, too, are the same in each boot: the guest reads them, and what it does differs by them.
        cpio.args([
            "-c",
            "find . -exec touch -h -d @0 {} + && find . | LC_ALL=C sort | cpio --quiet --reproducible -o -H newc",
        ]);
        cpio.current_dir(&root);
        let output = cpio.stdin(Stdio::null()).output().context("cannot start cpio")?;
        if !output.status.success() {
            bail!("cpio: {}", String::from_utf8_lossy(&output.stderr));
        }
        fs::write(&initrd, output.stdout)?;
        Ok(initrd)
    }
}

/// Nodes with these CPUs, equally far from each other.
fn numa(command: &mut Command, nodes: [usize; CPUS]) {
    for node in 0..NODES {
        command.arg("-object").arg(format!("memory-backend-ram,id=m{node},size={}M", 512 / NODES));
        let cpus: String = (0..CPUS).filter(|cpu| nodes[*cpu] == node).map(|cpu| format!(",cpus={cpu}")).collect();
        command.arg("-numa").arg(format!("node,nodeid={node},memdev=m{node}{cpus}"));
    }
    for from in 0..NODES {
        for to in (0..NODES).filter(|to| *to != from) {
            command.arg("-numa").arg(format!("dist,src={from},dst={to},val=21"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_cpu() {
        assert_eq!(Layout::Interleaved.nodes(), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(Layout::Crowded.nodes(), [0, 0, 0, 0, 0, 1, 2, 3]);
    }
}
