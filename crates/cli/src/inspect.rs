//! Checks whether flashlock reaches a program at all, by its file and without running it.

use std::ffi::{CString, OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::elf::{self, Elf, Image};
use crate::failure::Failure;
use crate::launch::{NOT_EXECUTABLE, NOT_FOUND};
use crate::search::NoProgram;
use crate::{screen, search};

/// The level of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// It works, but the user should know this.
    Warn,
    /// flashlock does not work here.
    Problem,
}

/// A finding, and advice.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// The subject.
    pub(crate) subject: String,
    /// The level.
    pub(crate) level: Level,
    /// The finding in words.
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub(crate) fn ok(subject: &str, text: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), level: Level::Ok, text: text.into(), advice: None }
    }

    /// The user should know this.
    pub(crate) fn warn(subject: &str, text: impl Into<String>, advice: &str) -> Self {
        Self { subject: subject.to_owned(), level: Level::Warn, text: text.into(), advice: Some(advice.to_owned()) }
    }

    /// flashlock does not work here.
    pub(crate) fn problem(subject: &str, text: impl Into<String>, advice: &str) -> Self {
        Self { level: Level::Problem, ..Self::warn(subject, text, advice) }
    }
}

/// The maximum depth of scripts that are interpreted by scripts.
const DEPTH: usize = 4;
/// The interpreter of a text without an interpreter line: the C library's `execvp` calls it, like shells do.
const SHELL: &str = "/bin/sh";
/// A part of the name of musl's dynamic linker.
const MUSL: &str = "ld-musl";
/// The description of a file that cannot be run.
const NEITHER: &str = "it is neither a program nor a script";

/// What a program's file shows.
pub(crate) struct Inspection {
    /// The findings.
    pub(crate) findings: Vec<Finding>,
    /// The dynamically linked program that finally runs, if there is one.
    pub(crate) program: Option<(PathBuf, Box<Elf>)>,
    /// Whether it is linked with musl, whose dynamic linker does not start a program with a library that needs glibc.
    pub(crate) is_musl: bool,
    /// Whether it gets privileges, with which the dynamic linker ignores `LD_PRELOAD` and removes it.
    has_privileges: bool,
}

impl Inspection {
    /// Whether flashlock does not reach the programs that it starts either: their environment has no library, since
    /// the dynamic linker removes it, or since flashlock starts a program of musl without it.
    pub(crate) fn cuts_off(&self) -> bool {
        self.is_musl || self.has_privileges
    }

    fn find_privileges(&mut self, path: &Path) {
        let found = privileges(path);
        self.has_privileges = found.is_some();
        self.findings.extend(found);
    }
}

/// A program that can be executed, as far as its file shows.
pub(crate) struct Program {
    /// Its path.
    pub(crate) path: PathBuf,
    /// What its file shows.
    pub(crate) inspection: Inspection,
    /// The name that the user gave.
    name: OsString,
}

/// The program that would run by this name. If it cannot be executed, that is a failure with a shell's exit status, the
/// same for all verbs.
pub(crate) fn program(name: &OsStr) -> Result<Program, Failure> {
    let shown = name.display();
    let cannot =
        |code: u8, why: &dyn Display| Err(Failure::new(format_args!("cannot run '{shown}': {why}")).with_code(code));
    let path = match search::program(name) {
        Ok(path) => path,
        Err(NoProgram::Missing) if name.as_bytes().contains(&b'/') => {
            return cannot(NOT_FOUND, &"there is no such file");
        }
        Err(NoProgram::Missing) if name.is_empty() => return cannot(NOT_FOUND, &"the name is empty"),
        Err(NoProgram::Missing) => {
            return cannot(NOT_FOUND, &"it is not in PATH; if it is elsewhere, give its path, such as ./NAME");
        }
        Err(NoProgram::Directory(_)) => return cannot(NOT_EXECUTABLE, &"it is a directory"),
        Err(NoProgram::NoFile(_)) => return cannot(NOT_EXECUTABLE, &"it is no regular file"),
        Err(NoProgram::Unreachable(why)) => return cannot(NOT_EXECUTABLE, &why),
        Err(NoProgram::NotExecutable(file)) => {
            let it = if file == Path::new(name) { "it".to_owned() } else { file.display().to_string() };
            let why = format!("{it} is not executable; if it is a program or a script, run chmod +x on it");
            return cannot(NOT_EXECUTABLE, &why);
        }
    };
    match inspect(&path) {
        Ok(inspection) => Ok(Program { path, inspection, name: name.to_owned() }),
        Err(Unrunnable(code, why)) => cannot(code, &why),
    }
}

impl Program {
    /// Why its locks cannot be replaced, in a sentence, or `None` if they can.
    pub(crate) fn out_of_reach(&self) -> Option<String> {
        let problem = self.inspection.findings.iter().find(|finding| finding.level == Level::Problem)?;
        Some(format!("'{}' keeps its own locks: {}", self.name.display(), problem.text))
    }

    /// Warns if its locks cannot be replaced. The program can still run, and flashlock may reach the programs that it
    /// starts.
    pub(crate) fn warn(&self) {
        if let Some(why) = self.out_of_reach() {
            screen::complain(Some("warning"), &format!("{why}; for details: flashlock doctor {}", self.name.display()));
        }
    }
}

/// The program, or a script's interpreter, cannot be executed: the exit status and the reason.
#[derive(Debug)]
struct Unrunnable(u8, String);

/// Inspects a program file, and its interpreter if it is a script.
fn inspect(path: &Path) -> Result<Inspection, Unrunnable> {
    let mut inspection = Inspection { findings: Vec::new(), program: None, is_musl: false, has_privileges: false };
    let mut path = path.to_owned();
    for _ in 0..DEPTH {
        match elf::read(&path) {
            Err(error) => {
                inspection.find_privileges(&path);
                let text = format!("it cannot be read: {}", screen::reason(&error));
                let advice = "run doctor as a user who can read the file; if the program is dynamically linked, \
                              flashlock works for it";
                inspection.findings.push(Finding::warn("file", text, advice));
            }
            Ok(Image::Script(interpreter, argument)) => {
                path = interpreter_of(&interpreter, argument.as_deref())?;
                inspection.findings.push(Finding::ok("file", format!("a script, run by {}", path.display())));
                continue;
            }
            Ok(Image::Other) if is_text(&path) => {
                path = PathBuf::from(SHELL);
                inspection.findings.push(Finding::ok("file", format!("a script without a #! line, run by {SHELL}")));
                continue;
            }
            Ok(Image::Elf(elf)) => {
                // The kernel ignores the privileges of scripts.
                inspection.find_privileges(&path);
                inspection.findings.extend(linkage(&elf));
                inspection.is_musl = elf.interpreter.as_deref().is_some_and(|linker| linker.contains(MUSL));
                let reached = elf.interpreter.is_some() && !inspection.is_musl;
                inspection.program = reached.then_some((path, elf));
            }
            Ok(image) => {
                if let Some(what) = unrunnable(&image).filter(|_| !other_formats_are_registered()) {
                    let is_script = !inspection.findings.is_empty();
                    let script = if is_script { "it is a script, and its interpreter cannot be run: " } else { "" };
                    return Err(Unrunnable(NOT_EXECUTABLE, format!("{script}{what}")));
                }
                inspection.findings.push(not_for_us(&image));
            }
        }
        return Ok(inspection);
    }
    Err(Unrunnable(
        NOT_EXECUTABLE,
        "it is a script whose interpreter is a script, and so on; more than 4 levels are not followed".into(),
    ))
}

/// The program that interprets a script. `env` stands for the program that it runs.
fn interpreter_of(interpreter: &str, argument: Option<&str>) -> Result<PathBuf, Unrunnable> {
    let direct = Path::new(interpreter);
    let found = search::executable(direct.to_owned()).map_err(|why| no_interpreter(interpreter, why))?;
    if direct.file_name() != Some(OsStr::new("env")) {
        return Ok(found);
    }
    match argument.and_then(run_by_env) {
        None => Ok(found),
        Some(name) => search::program(OsStr::new(name)).map_err(|why| no_interpreter(name, why)),
    }
}

/// The program that `env` runs if a script gives it this argument: `PROGRAM`, or `-S [NAME=VALUE…] PROGRAM …`.
/// `None` if that depends on more: `env` has further options, and it says itself what it cannot run.
fn run_by_env(argument: &str) -> Option<&str> {
    let Some(words) = argument.strip_prefix("-S") else {
        // The kernel passes all of the line as one word.
        return (!argument.starts_with('-') && !argument.contains('=')).then_some(argument);
    };
    if words.contains(['"', '\'', '\\', '$', '#']) || words.contains("PATH=") {
        return None;
    }
    words.split_whitespace().find(|word| !word.contains('=')).filter(|word| !word.starts_with('-'))
}

/// Why a script's interpreter cannot be run.
fn no_interpreter(interpreter: &str, why: NoProgram) -> Unrunnable {
    let (code, what) = match why {
        NoProgram::Missing if interpreter.contains('/') => (NOT_FOUND, "does not exist".to_owned()),
        NoProgram::Missing => (NOT_FOUND, "is not in PATH".to_owned()),
        NoProgram::Directory(_) => (NOT_EXECUTABLE, "is a directory".to_owned()),
        NoProgram::NoFile(_) => (NOT_EXECUTABLE, "is no regular file".to_owned()),
        NoProgram::NotExecutable(_) => (NOT_EXECUTABLE, "is not executable".to_owned()),
        NoProgram::Unreachable(why) => (NOT_EXECUTABLE, format!("cannot be reached: {why}")),
    };
    let hint = match (code, interpreter.ends_with('\r'), interpreter.contains(' ')) {
        (NOT_FOUND, true, _) => "; the script has the line ends of Windows",
        (NOT_FOUND, _, true) => "; the #! line needs 'env -S' for a program with arguments",
        _ => "",
    };
    let shown = interpreter.escape_debug();
    Unrunnable(code, format!("it is a script, and its interpreter '{shown}' {what}{hint}"))
}

/// Why the kernel cannot run such a file, unless its format is registered.
fn unrunnable(image: &Image) -> Option<String> {
    match image {
        Image::Foreign(64, architecture) => Some(format!("it is a program for {architecture}, not for this machine")),
        Image::Unloadable(what) => Some(format!("it is a broken ELF file: {what}")),
        Image::Other => Some(NEITHER.into()),
        _ => None,
    }
}

/// Whether the kernel knows additional formats of programs: `binfmt_misc`, for example for emulators.
fn other_formats_are_registered() -> bool {
    let Ok(formats) = fs::read_dir("/proc/sys/fs/binfmt_misc") else { return false };
    formats.flatten().any(|format| format.file_name() != "register" && format.file_name() != "status")
}

/// Whether a file starts like a text. A shell treats no other file as a script.
fn is_text(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(128).read_to_end(&mut head));
    read.is_ok() && !head.contains(&0)
}

fn not_for_us(image: &Image) -> Finding {
    let broken =
        |what: &str| Finding::problem("file", format!("it is a broken ELF file: {what}"), "build or install it again");
    match image {
        Image::Foreign(bits, architecture) => Finding::problem(
            "file",
            format!("it is a {bits}-bit program for {architecture}, which cannot load the preload library"),
            "use a build of the program for this machine",
        ),
        Image::Broken(what) => broken(what),
        Image::Unloadable(what) => broken(what),
        _ => Finding::problem("file", NEITHER, "run it by the program that interprets it"),
    }
}

fn linkage(elf: &Elf) -> Vec<Finding> {
    let mut findings = Vec::new();
    match elf.interpreter.as_deref() {
        None => findings.push(Finding::problem(
            "linking",
            "it is statically linked, so no dynamic linker can preload a library",
            if elf.is_go {
                "flashlock cannot help Go programs: they use no pthread locks"
            } else {
                "link it dynamically"
            },
        )),
        Some(linker) if linker.contains(MUSL) => findings.push(Finding::problem(
            "linking",
            format!("it is linked with musl ({linker}), whose locks have another layout"),
            "use a build of the program for glibc",
        )),
        Some(linker) => {
            let version = elf.glibc.map(|(major, minor)| format!(", needs glibc {major}.{minor} or newer"));
            let text = format!("dynamically linked by {linker}{}", version.unwrap_or_default());
            findings.push(Finding::ok("linking", text));
        }
    }
    if elf.is_go && elf.interpreter.is_some() {
        findings.push(Finding::warn(
            "language",
            "a Go program: its sync.Mutex belongs to the Go runtime and is not replaced",
            "only the locks of C libraries that it calls are replaced",
        ));
    }
    if elf.exports.iter().any(|name| name == "pthread_mutex_lock") && elf.interpreter.is_some() {
        findings.push(Finding::problem(
            "symbols",
            "it defines pthread_mutex_lock itself, which takes precedence over a preloaded one (a sanitizer or a lock \
             library)",
            "use a build without ThreadSanitizer and without locks of its own",
        ));
    }
    findings
}

/// Warns of privileges that make the dynamic linker ignore LD_PRELOAD.
fn privileges(path: &Path) -> Option<Finding> {
    let data = fs::metadata(path).ok()?;
    // SAFETY: reads this process's ids.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let set_user = data.mode() & libc::S_ISUID != 0 && data.uid() != user;
    let set_group = data.mode() & libc::S_ISGID != 0 && data.gid() != group;
    let capabilities = user != 0 && has_capabilities(path);
    let what = match (set_user, set_group, capabilities) {
        (true, ..) => "is setuid",
        (_, true, _) => "is setgid",
        (.., true) => "has file capabilities",
        _ => return None,
    };
    Some(Finding::problem(
        "privileges",
        format!("{} {what}, so the dynamic linker ignores LD_PRELOAD", path.display()),
        "run flashlock as the user whose privileges the program gets",
    ))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names are C strings; a size of zero only requests the size.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_reached_through_its_script() {
        let me = std::env::current_exe().unwrap();
        let inspection = inspect(&me).unwrap();
        assert!(inspection.program.is_some());
        assert!(inspection.findings.iter().all(|finding| finding.level == Level::Ok), "{:?}", inspection.findings);
        assert_eq!(program(me.as_os_str()).unwrap().out_of_reach(), None);
        let script = std::env::temp_dir().join(format!("flashlock-inspect-{}", std::process::id()));
        for (text, said) in [
            ("#!/usr/bin/env -S sh -e\n", "/sh"),
            ("#!/usr/bin/env -SLANG=C sh -e\n", "/sh"),
            ("#! /usr/bin/env  sh \n", "/sh"),
            ("#!/usr/bin/env -S -u FOO sh\n", "/env"),
            ("#!/usr/bin/env -S \"sh\" -e\n", "/env"),
            ("#!/usr/bin/env -S PATH=/no/such no-such-program\n", "/env"),
            ("#!/usr/bin/env -i\n", "/env"),
            ("#!/usr/bin/env FOO=1\n", "/env"),
            ("#!/usr/bin/env\n", "/env"),
            ("echo\n", "run by /bin/sh"),
        ] {
            fs::write(&script, text).unwrap();
            let inspection = inspect(&script).unwrap();
            assert!(inspection.findings[0].text.contains(said), "{:?}", inspection.findings);
            assert!(inspection.program.is_some());
        }
        for (text, code, said) in [
            ("#!/no/such/interpreter\n", NOT_FOUND, "does not exist"),
            ("#!/no/such/env sh\n", NOT_FOUND, "'/no/such/env' does not exist"),
            ("#!/usr/bin/env no-such-program\n", NOT_FOUND, "'no-such-program' is not in PATH"),
            ("#!/usr/bin/env -S no-such-program -e\n", NOT_FOUND, "'no-such-program' is not in PATH"),
            ("#!/usr/bin/env /no/such/program\n", NOT_FOUND, "'/no/such/program' does not exist"),
            ("#!/usr/bin/env /dev/null\n", NOT_EXECUTABLE, "'/dev/null' is no regular file"),
            ("#!/usr/bin/env sh -e\n", NOT_FOUND, "'sh -e' is not in PATH; the #! line needs 'env -S'"),
            ("#!/bin/sh\r\n", NOT_FOUND, r"'/bin/sh\r' does not exist; the script has the line ends of Windows"),
            ("#!/usr/bin/env sh\r\n", NOT_FOUND, r"'sh\r' is not in PATH; the script"),
            ("#!/dev/null\n", NOT_EXECUTABLE, "is no regular file"),
            ("#!/tmp\n", NOT_EXECUTABLE, "is a directory"),
        ] {
            fs::write(&script, text).unwrap();
            let Err(Unrunnable(found, why)) = inspect(&script) else { panic!("{text}") };
            assert!(found == code && why.contains(said), "{text}: {why}");
        }
        fs::write(&script, "no text\0").unwrap();
        match inspect(&script) {
            Err(Unrunnable(code, why)) => assert_eq!((code, why.as_str()), (NOT_EXECUTABLE, NEITHER)),
            Ok(seen) => assert!(other_formats_are_registered() && seen.findings[0].level == Level::Problem),
        }
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(inspect(&script).is_err_and(|Unrunnable(_, why)| why.contains("not followed")));
        fs::remove_file(&script).unwrap();
    }

    #[test]
    fn what_cannot_be_executed_has_a_shells_exit_status() {
        for (name, code, why) in [
            ("no-such-program-here", 127, "it is not in PATH"),
            ("/no/such/program", 127, "there is no such file"),
            ("", 127, "the name is empty"),
            ("/", 126, "it is a directory"),
            ("/dev/null", 126, "it is no regular file"),
            ("/proc/self/stat", 126, "it is not executable"),
            ("/proc/self/stat/x", 126, "Not a directory"),
        ] {
            let Err(failure) = program(OsStr::new(name)) else { panic!("{name}") };
            assert_eq!(failure.code(), code, "{name}");
            assert!(failure.to_string().starts_with(&format!("cannot run '{name}': {why}")), "{failure}");
        }
    }

    #[test]
    fn out_of_reach_is_a_problem() {
        let worst = |elf: &Elf| linkage(elf).iter().map(|finding| finding.level).max();
        let dynamic = || Elf { interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()), ..Elf::default() };
        assert_eq!(worst(&Elf::default()), Some(Level::Problem));
        assert_eq!(worst(&dynamic()), Some(Level::Ok));
        assert_eq!(worst(&Elf { is_go: true, ..dynamic() }), Some(Level::Warn));
        let musl = Some("/lib/ld-musl-x86_64.so.1".to_owned());
        assert_eq!(worst(&Elf { interpreter: musl, ..dynamic() }), Some(Level::Problem));
        assert_eq!(worst(&Elf { exports: vec!["pthread_mutex_lock".into()], ..dynamic() }), Some(Level::Problem));
    }
}
