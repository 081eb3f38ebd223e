//! Configuring and building the kernel, and the cache of images.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::module;
use super::tree::Tree;
use crate::child::Program;
use crate::edit::Edit;
use crate::files;
use crate::workspace;

/// A limit against hangs only: an image takes five to ten minutes on two quiet CPUs.
pub(crate) const LONG: Duration = Duration::from_secs(3 * 3600);

/// The option of the experimental variant, which no compilation needs.
pub(crate) const SHUFFLE: &str = "CONFIG_NUMA_SPINLOCK_SHUFFLE";

/// The modules that a guest loads, by where they are in the build directory.
const MODULES: [&str; 4] = ["kernel/torture.ko", "kernel/locking/locktorture.ko", "ours/bound.ko", "ours/nest.ko"];
/// What the last two are made from.
const MODULE_FILES: [&str; 3] = ["Makefile", "bound.c", "nest.c"];

/// What all steps work with.
pub(crate) struct Bench {
    pub(crate) cache: PathBuf,
    pub(crate) tree: Tree,
    /// How long an image may take to build.
    pub(crate) image_limit: Duration,
    /// Whether a step that takes too long is left out.
    pub(crate) may_skip: bool,
}

/// How to compile: for which machine, and with what.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Toolchain {
    /// `ARCH=`; empty: x86.
    pub(crate) arch: &'static str,
    /// Further variables for make.
    pub(crate) variables: &'static [&'static str],
}

/// A configured build directory.
pub(crate) struct Build<'a> {
    tree: &'a Tree,
    pub(crate) out: PathBuf,
    toolchain: Toolchain,
}

/// A bootable kernel and its modules.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) modules: Vec<PathBuf>,
}

impl Bench {
    pub(crate) fn tests() -> PathBuf {
        workspace::path("kernel/test")
    }

    /// The lines of the guest's configuration.
    pub(crate) fn guest_config() -> Result<String> {
        let path = Self::tests().join("guest.config");
        fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
    }

    /// The lines of the image's configuration: of the guest, with everything that can be chosen at boot, and these.
    fn image_lines(config: &str) -> Result<String> {
        Ok(format!("{}{SHUFFLE}=y\n{config}", Self::guest_config()?))
    }

    /// A build directory of this name with tinyconfig and these lines.
    pub(crate) fn configure(&self, name: &str, toolchain: Toolchain, lines: &str) -> Result<Build<'_>> {
        let build = Build { tree: &self.tree, out: self.cache.join("build").join(name), toolchain };
        build.configure(lines)?;
        Ok(build)
    }

    /// Those of these lines that the kernel's rules refuse. Nothing can be compiled there.
    pub(crate) fn refused(&self, name: &str, toolchain: Toolchain, lines: &str) -> Result<Vec<String>> {
        let build = Build { tree: &self.tree, out: self.cache.join("build").join(name), toolchain };
        build.settle(lines)
    }

    /// The build directory of the image with these lines. One per configuration: what is edited is compiled anew, and
    /// nothing else.
    fn image_build(&self, lines: &str) -> Result<Build<'_>> {
        let mut hasher = DefaultHasher::new();
        (&self.tree.stamp, lines).hash(&mut hasher);
        self.configure(&format!("image-{:016x}", hasher.finish()), Toolchain::default(), lines)
    }

    /// The image of the guest, and beside its modules that of `kernel/module` with these edits.
    pub(crate) fn image_and_flocks(&self, edits: &[Edit]) -> Result<Option<Image>> {
        let Some(mut image) = self.image("", &[])? else { return Ok(None) };
        let build = self.image_build(&Self::image_lines("")?)?;
        // The image may be from the cache, and its build directory emptied.
        if !build.out.join("Module.symvers").exists()
            && !build.make_within(&["bzImage", "modules"], self.image_limit)?
        {
            return Ok(None);
        }
        let sources = build.out.join("flocks");
        module::copy_sources(&sources)?;
        for edit in edits {
            edit.apply(&sources)?;
        }
        build.make(&[&format!("M={}", sources.display()), "modules"])?;
        image.modules.push(sources.join(module::FILE));
        Ok(Some(image))
    }

    /// Whether there is an image to boot, or may be one.
    pub(crate) fn may_boot(&self) -> Result<bool> {
        Ok(!self.image_limit.is_zero() || self.place(&Self::image_lines("")?, &[])?.join("bzImage").exists())
    }

    /// Where the image with these lines and edits is kept.
    fn place(&self, lines: &str, edits: &[Edit]) -> Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        (&self.tree.stamp, lines, format!("{edits:?}"), compiler()?).hash(&mut hasher);
        for file in MODULE_FILES {
            fs::read(Self::tests().join("modules").join(file))?.hash(&mut hasher);
        }
        Ok(self.cache.join("images").join(format!("{:016x}", hasher.finish())))
    }

    /// The image with this configuration besides the guest's, built from a source with these edits, unless it is in the
    /// cache. `None`: it would have taken too long, and may be left out.
    pub(crate) fn image(&self, config: &str, edits: &[Edit]) -> Result<Option<Image>> {
        let lines = Self::image_lines(config)?;
        let directory = self.place(&lines, edits)?;
        let kernel = directory.join("bzImage");
        let modules = MODULES.map(|path| directory.join(path.rsplit('/').next().unwrap_or(path))).to_vec();
        if kernel.exists() {
            return Ok(Some(Image { kernel, modules }));
        }
        let build = self.image_build(&lines)?;
        let ours = build.out.join("ours");
        fs::create_dir_all(&ours)?;
        for file in MODULE_FILES {
            fs::copy(Self::tests().join("modules").join(file), ours.join(file))?;
        }
        let built = self.tree.edited(edits, || {
            if !build.make_within(&["bzImage", "modules"], self.image_limit)? {
                return Ok(false);
            }
            build.make(&[&format!("M={}", ours.display()), "modules"])?;
            Ok(true)
        })?;
        if !built {
            if self.may_skip {
                return Ok(None);
            }
            bail!("the image took longer than {} s to build", self.image_limit.as_secs());
        }
        fs::create_dir_all(&directory)?;
        for (from, to) in MODULES.iter().zip(&modules) {
            fs::copy(build.out.join(from), to).with_context(|| format!("{from} was not built"))?;
        }
        // Last, because it is what says that the image is complete.
        fs::copy(build.out.join("arch/x86/boot/bzImage"), &kernel)?;
        Ok(Some(Image { kernel, modules }))
    }
}

impl Build<'_> {
    /// Makes the configuration, unless it is there. Lines that the kernel's rules refuse are an error: a test would
    /// silently not test what it is for.
    fn configure(&self, lines: &str) -> Result<()> {
        let (wanted, there) = (self.out.join("wanted.config"), self.out.join("include/config/auto.conf"));
        let stamped = format!("# {} {:?}\n{lines}", self.tree.stamp, self.toolchain);
        if there.exists() && fs::read_to_string(&wanted).is_ok_and(|old| old == stamped) {
            return Ok(());
        }
        // What make has built for another configuration of the same source it keeps where it may. It is not asked to
        // know another source: files that have become older would look built.
        let same_source = fs::read_to_string(&wanted).is_ok_and(|old| old.lines().next() == stamped.lines().next());
        if !same_source {
            files::remove(&self.out)?;
        }
        let refused = self.settle(lines)?;
        if !refused.is_empty() {
            bail!("the kernel's configuration does not take {refused:?} (see {})", self.out.display());
        }
        self.make(&["prepare"])?;
        fs::write(&wanted, stamped)?;
        Ok(())
    }

    /// Writes the configuration, and returns those of its lines that the kernel's rules refuse.
    fn settle(&self, lines: &str) -> Result<Vec<String>> {
        files::make(&self.out)?;
        let (config, tiny) = (self.out.join(".config"), self.out.join("tiny.config"));
        if !tiny.exists() {
            self.make(&["tinyconfig"])?;
            fs::copy(&config, &tiny)?;
        }
        let tiny = fs::read_to_string(&tiny)?;
        // The later of two lines counts.
        fs::write(&config, format!("{tiny}\n{lines}"))?;
        self.make(&["olddefconfig"])?;
        let got = fs::read_to_string(&config)?;
        Ok(last_settings(lines).into_iter().filter(|line| !has_setting(&got, line)).map(str::to_owned).collect())
    }

    fn command(&self, targets: &[&str]) -> Result<Command> {
        let mut command = Command::new("nice");
        command.args(["-n", "10", "make", "-s", "-C"]).arg(&self.tree.path);
        command.arg(format!("O={}", self.out.display())).arg(format!("-j{}", std::thread::available_parallelism()?));
        if !self.toolchain.arch.is_empty() {
            command.arg(format!("ARCH={}", self.toolchain.arch));
        }
        // The same bytes whenever and by whomever it is built.
        command.args([
            "KBUILD_BUILD_TIMESTAMP=2026-01-01",
            "KBUILD_BUILD_USER=flashlock",
            "KBUILD_BUILD_HOST=flashlock",
        ]);
        command.args(self.toolchain.variables).args(targets);
        Ok(command)
    }

    /// What make printed. Warnings of the compiler are among that.
    pub(crate) fn make(&self, targets: &[&str]) -> Result<String> {
        let done = Program::new(self.command(targets)?, LONG).run()?;
        let complaints = done.stderr.clone();
        done.successful()?;
        Ok(complaints)
    }

    /// Whether it was done in time.
    fn make_within(&self, targets: &[&str], limit: Duration) -> Result<bool> {
        let done = Program::new(self.command(targets)?, limit).run()?;
        if done.status.is_none() {
            return Ok(false);
        }
        done.successful()?;
        Ok(true)
    }

    /// Compiles these files anew and returns what the compiler complained of.
    pub(crate) fn compile(&self, objects: &[&str]) -> Result<String> {
        for object in objects {
            let path = self.out.join(object);
            if path.exists() {
                fs::remove_file(&path)?;
            }
        }
        self.make(objects)
    }
}

/// The lines that set something, of which only the last for each name counts.
fn last_settings(lines: &str) -> Vec<&str> {
    let mut settings: Vec<(&str, &str)> = Vec::new();
    for line in lines.lines() {
        let Some(name) = setting_name(line) else { continue };
        settings.retain(|(other, _)| *other != name);
        settings.push((name, line));
    }
    settings.into_iter().map(|(_, line)| line).collect()
}

/// `CONFIG_X` of `CONFIG_X=y` and of `# CONFIG_X is not set`.
fn setting_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("# ").map_or(line, |line| line.strip_suffix(" is not set").unwrap_or(""));
    line.starts_with("CONFIG_").then(|| line.split('=').next().unwrap_or(line))
}

/// Whether a finished configuration says so. An option that is not visible is not set, and no line says so.
fn has_setting(config: &str, line: &str) -> bool {
    config.lines().any(|got| got == line)
        || (line.ends_with(" is not set")
            && setting_name(line).is_some_and(|name| !config.contains(&format!("\n{name}="))))
}

/// The compiler's first line about itself.
fn compiler() -> Result<String> {
    let mut command = Command::new("gcc");
    command.arg("--version");
    let text = Program::new(command, LONG).run()?.successful()?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The path of a tool's file below the source.
pub(crate) fn script(tree: &Tree, name: &str) -> PathBuf {
    Path::new(&tree.path).join("scripts").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts() {
        let lines = "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_A is not set\n# a comment\n";
        assert_eq!(last_settings(lines), ["CONFIG_B=m", "# CONFIG_A is not set"]);
    }

    #[test]
    fn what_is_invisible_is_not_set() {
        let config = "CONFIG_A=y\n# CONFIG_B is not set\n\nCONFIG_CD=y\n";
        assert!(has_setting(config, "CONFIG_A=y") && has_setting(config, "# CONFIG_B is not set"));
        assert!(has_setting(config, "# CONFIG_C is not set"));
        assert!(!has_setting(config, "# CONFIG_CD is not set") && !has_setting(config, "CONFIG_B=y"));
    }
}
