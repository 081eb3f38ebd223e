//! Whether flashlock reaches a program at all: what its file says, without running it.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::elf::{self, Elf, Image};
use crate::{screen, search};

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, but should be known.
    Warn,
    /// flashlock does not work here.
    Problem,
}

/// Something found out, and what to do about it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// What it is about.
    pub(crate) subject: String,
    /// How good it is.
    pub(crate) level: Level,
    /// What was found.
    pub(crate) text: String,
    /// What to do.
    pub(crate) advice: Option<String>,
}

impl Finding {
    /// As it should be.
    pub(crate) fn ok(subject: &str, text: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), level: Level::Ok, text: text.into(), advice: None }
    }

    /// Should be known.
    pub(crate) fn warn(subject: &str, text: impl Into<String>, advice: &str) -> Self {
        Self { subject: subject.to_owned(), level: Level::Warn, text: text.into(), advice: Some(advice.to_owned()) }
    }

    /// Does not work.
    pub(crate) fn problem(subject: &str, text: impl Into<String>, advice: &str) -> Self {
        Self { level: Level::Problem, ..Self::warn(subject, text, advice) }
    }
}

/// How many scripts may be interpreted by scripts.
const DEPTH: usize = 4;

/// A program's file, seen from outside.
pub(crate) struct Inspection {
    /// What was found.
    pub(crate) findings: Vec<Finding>,
    /// The dynamically linked program that runs in the end, if it comes to that.
    pub(crate) program: Option<(PathBuf, Box<Elf>)>,
}

/// Looks at a program file, and at its interpreter if it is a script.
pub(crate) fn inspect(path: &Path) -> Inspection {
    let mut inspection = Inspection { findings: Vec::new(), program: None };
    let mut path = path.to_owned();
    for _ in 0..DEPTH {
        match elf::read(&path) {
            Err(error) => {
                inspection.findings.extend(privileges(&path));
                let text = format!("cannot be read: {}", screen::reason(&error));
                let advice = "let somebody look who may read it; flashlock works if it is dynamically linked";
                inspection.findings.push(Finding::warn("file", text, advice));
            }
            Ok(Image::Script(interpreter, argument)) => {
                let Some(next) = interpreter_of(&interpreter, argument.as_deref()) else {
                    let text = format!("a script whose interpreter '{interpreter}' is not there");
                    inspection.findings.push(Finding::problem("file", text, "install the interpreter"));
                    return inspection;
                };
                inspection.findings.push(Finding::ok("file", format!("a script, run by {}", next.display())));
                path = next;
                continue;
            }
            Ok(Image::Elf(elf)) => {
                // Of scripts, the kernel ignores these.
                inspection.findings.extend(privileges(&path));
                inspection.findings.extend(linkage(&elf));
                let reached = elf.interpreter.as_deref().is_some_and(|linker| !linker.contains("ld-musl"));
                inspection.program = reached.then_some((path, elf));
            }
            Ok(image) => inspection.findings.push(not_for_us(&image)),
        }
        return inspection;
    }
    let text = "scripts that are interpreted by scripts without end";
    inspection.findings.push(Finding::problem("file", text, "look at its first line"));
    inspection
}

/// `/usr/bin/env [-S] [NAME=VALUE…] PROGRAM` stands for the program in PATH.
fn interpreter_of(interpreter: &str, argument: Option<&str>) -> Option<PathBuf> {
    let direct = Path::new(interpreter);
    if direct.file_name() == Some(OsStr::new("env")) {
        let words = argument.unwrap_or_default().split_whitespace();
        let mut words = words.skip_while(|word| word.starts_with('-') || word.contains('='));
        return search::program(OsStr::new(words.next()?));
    }
    direct.is_file().then(|| direct.to_owned())
}

fn not_for_us(image: &Image) -> Finding {
    match image {
        Image::Foreign(bits, architecture) => Finding::problem(
            "file",
            format!("a {bits}-bit program for {architecture}: the preload library cannot be loaded into it"),
            "use a build of the program for this machine",
        ),
        Image::Broken(what) => {
            Finding::problem("file", format!("a broken ELF file: {what}"), "build or install it again")
        }
        _ => Finding::problem("file", "neither a program nor a script with a #! line", "name the program that runs it"),
    }
}

fn linkage(elf: &Elf) -> Vec<Finding> {
    let mut findings = Vec::new();
    match elf.interpreter.as_deref() {
        None => findings.push(Finding::problem(
            "linking",
            "statically linked: there is no dynamic linker that could replace its locks",
            if elf.is_go {
                "Go programs use no pthread locks; flashlock can do nothing for them"
            } else {
                "link it dynamically"
            },
        )),
        Some(linker) if linker.contains("ld-musl") => findings.push(Finding::problem(
            "linking",
            format!("linked with musl ({linker}), whose locks are laid out differently"),
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
            "a Go program: its sync.Mutex is the Go runtime's own and is not replaced",
            "only locks of C libraries that it calls are affected",
        ));
    }
    if elf.exports.iter().any(|name| name == "pthread_mutex_lock") && elf.interpreter.is_some() {
        findings.push(Finding::problem(
            "symbols",
            "defines pthread_mutex_lock itself, which comes before any preloaded one (a sanitizer, or a lock library)",
            "use a build without ThreadSanitizer or its own locks",
        ));
    }
    findings
}

/// What makes the dynamic linker ignore LD_PRELOAD.
fn privileges(path: &Path) -> Option<Finding> {
    let data = fs::metadata(path).ok()?;
    // SAFETY: asks for this process's ids.
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
        format!("{} {what}: the dynamic linker ignores LD_PRELOAD for it", path.display()),
        "run flashlock as the user whose privileges the program takes",
    ))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names are C strings; a size of zero asks for the size only.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Warns about a program that will run with glibc's locks whatever we do. Says nothing of one that cannot be found: starting
/// it says it better.
pub(crate) fn warn_if_out_of_reach(name: &OsStr) {
    let Some(path) = search::program(name) else { return };
    for finding in inspect(&path).findings.iter().filter(|finding| finding.level == Level::Problem) {
        let what = format!(
            "'{}' will run with its own locks: {}; see flashlock doctor {}",
            name.display(),
            finding.text,
            name.display()
        );
        screen::complain(Some("warning"), &what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_reached_through_its_script() {
        let inspection = inspect(&std::env::current_exe().unwrap());
        assert!(inspection.program.is_some());
        assert!(inspection.findings.iter().all(|finding| finding.level == Level::Ok), "{:?}", inspection.findings);
        let script = std::env::temp_dir().join(format!("flashlock-inspect-{}", std::process::id()));
        fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        let inspection = inspect(&script);
        assert!(inspection.findings[0].text.contains("a script, run by"), "{:?}", inspection.findings);
        assert!(inspection.program.is_some());
        fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        assert!(inspect(&script).findings[0].text.contains("is not there"));
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        assert!(inspect(&script).findings.last().unwrap().text.contains("without end"));
        fs::write(&script, "no program\n").unwrap();
        assert_eq!(inspect(&script).findings[0].level, Level::Problem);
        fs::remove_file(&script).unwrap();
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
