//! C++ rivals: compiles them into libraries that the map's process loads, if a compiler and their packages are
//! installed.

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use flashlock_rivals::{Cpp, Rival, SHIM};

use super::contestant::{Contestant, Rivals};
use super::process::{Ending, Finished, Outcome, Watch};
use crate::failure::Failure;
use crate::screen;

/// The compilers that are tried in this order, unless CXX names one.
const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];
/// The package with the first of them.
const COMPILER_PACKAGE: &str = "g++";
/// The time limit of a compilation.
const LIMIT: Duration = Duration::from_secs(120);

/// A directory for the libraries, which is removed with this value.
pub(super) struct Workshop(PathBuf);

impl Drop for Workshop {
    fn drop(&mut self) {
        // Failing to remove it does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The available rivals, and the directory of their libraries.
pub(super) struct Made {
    pub(super) contestants: Vec<Contestant>,
    pub(super) workshop: Option<Workshop>,
}

/// Why a rival is not available.
enum Missing {
    Compiler,
    Package,
    /// The compiler's message.
    Compiles(String),
}

/// Compiles the requested rivals, and says in a line which are left out. `None` if the user interrupts.
pub(super) fn make(rivals: &Rivals, watch: &Watch) -> Result<Option<Made>, Failure> {
    let mut made = Made { contestants: Vec::new(), workshop: None };
    let mut missing: Vec<(&'static Rival, Missing)> = Vec::new();
    let mut compiler = None;
    for &rival in &rivals.wanted {
        let Some(cpp) = rival.cpp() else {
            made.contestants.push(Contestant::Rival(rival, None));
            continue;
        };
        if compiler.is_none() {
            let Some(found) = find_compiler(watch) else { return Ok(None) };
            compiler = Some(found);
        }
        let Some(Some(compiler)) = &compiler else {
            missing.push((rival, Missing::Compiler));
            continue;
        };
        if made.workshop.is_none() {
            made.workshop = Some(Workshop::new()?);
        }
        let Some(Workshop(directory)) = &made.workshop else { continue };
        match compile(compiler, rival.name, cpp, directory, watch)? {
            None => return Ok(None),
            Some(Ok(library)) => made.contestants.push(Contestant::Rival(rival, Some(library))),
            Some(Err(why)) => missing.push((rival, why)),
        }
    }
    match left_out(&missing) {
        Some(what) if rivals.are_named => Err(Failure::new(format_args!("--rivals: {what}"))),
        Some(what) => {
            screen::tell(&format!("flashlock: {what}\n"));
            Ok(Some(made))
        }
        None => Ok(Some(made)),
    }
}

impl Workshop {
    fn new() -> Result<Self, Failure> {
        let template = std::env::temp_dir().join("flashlock-compare-XXXXXX");
        let template = CString::new(template.into_os_string().into_vec()).map_err(Failure::new)?;
        let name = template.into_raw();
        // SAFETY: a C string of our own; its letters are replaced, and its length does not change.
        let (made, directory) = unsafe { (!libc::mkdtemp(name).is_null(), CString::from_raw(name)) };
        let directory = PathBuf::from(OsString::from_vec(directory.into_bytes()));
        if !made {
            let error = std::io::Error::last_os_error();
            return Err(Failure::new(format_args!(
                "cannot create the directory {}: {}; set TMPDIR to a directory that you can write to, or use --rivals \
                 none",
                directory.display(),
                screen::reason(&error)
            )));
        }
        Ok(Self(directory))
    }
}

/// The compiler, if there is one. `None` if the user interrupts.
fn find_compiler(watch: &Watch) -> Option<Option<OsString>> {
    let named = std::env::var_os("CXX").filter(|name| !name.is_empty());
    let candidates = match named {
        Some(name) => vec![name],
        None => COMPILERS.map(OsString::from).to_vec(),
    };
    first_that_works(candidates, watch)
}

/// The first compiler that works, if any. `None` if the user interrupts.
fn first_that_works(candidates: Vec<OsString>, watch: &Watch) -> Option<Option<OsString>> {
    for name in candidates {
        match watch.run(Command::new(&name).arg("--version"), LIMIT) {
            Ok(Outcome::Interrupted) => return None,
            Ok(Outcome::Finished(run)) if run.ending == Ending::Success => return Some(Some(name)),
            // It is not installed, or does not work.
            Ok(Outcome::Finished(_)) | Err(_) => {}
        }
    }
    Some(None)
}

/// Compiles a rival's library. `None` if the user interrupts.
fn compile(
    compiler: &OsString,
    name: &str,
    cpp: &Cpp,
    directory: &Path,
    watch: &Watch,
) -> Result<Option<Result<PathBuf, Missing>>, Failure> {
    let file = |suffix: &str| directory.join(format!("{name}{suffix}"));
    let write = |file: PathBuf, text: &str| {
        let written = fs::write(&file, text);
        written.map(|()| file.clone()).map_err(|error| crate::output::cannot_write(&file, &error))
    };
    let header = write(file(".h"), cpp.header)?;
    let probe = write(file("-probe.cc"), &format!("#include <{}>\n", cpp.include))?;
    let shim = write(file(".cc"), SHIM)?;
    let library = file(".so");
    let run = |arguments: &mut dyn FnMut(&mut Command)| -> Result<Option<Box<Finished>>, Failure> {
        let mut command = Command::new(compiler);
        command.arg("-std=c++17");
        arguments(&mut command);
        match watch.run(&mut command, LIMIT) {
            Ok(Outcome::Finished(run)) => Ok(Some(run)),
            Ok(Outcome::Interrupted) => Ok(None),
            Err(error) => Err(Failure::new(format_args!("cannot run the compiler: {}", screen::reason(&error)))),
        }
    };
    let Some(probed) = run(&mut |command| _ = command.args(["-E", "-o", "/dev/null"]).arg(&probe))? else {
        return Ok(None);
    };
    if probed.ending != Ending::Success {
        return Ok(Some(Err(Missing::Package)));
    }
    let compiled = run(&mut |command| {
        command.args([
            "-O2",
            "-DNDEBUG",
            "-DRIVAL_CALL=inline",
            "-fPIC",
            "-fno-plt",
            "-shared",
            "-pthread",
            "-include",
        ]);
        command.arg(&header).arg("-o").arg(&library).arg(&shim).arg(cpp.library);
    })?;
    let Some(compiled) = compiled else { return Ok(None) };
    if compiled.ending != Ending::Success {
        let said = compiled.stderr.lines().find(|line| line.contains("error")).unwrap_or("no error message");
        return Ok(Some(Err(Missing::Compiles(said.to_owned()))));
    }
    Ok(Some(Ok(library)))
}

/// A line that says what is left out and what to do about it.
fn left_out(missing: &[(&Rival, Missing)]) -> Option<String> {
    let (broken, absent): (Vec<_>, Vec<_>) = missing.iter().partition(|(_, why)| matches!(why, Missing::Compiles(_)));
    let mut parts = Vec::new();
    if !absent.is_empty() {
        let titles: Vec<&str> = absent.iter().map(|(rival, _)| rival.title).collect();
        let has_compiler = !absent.iter().any(|(_, why)| matches!(why, Missing::Compiler));
        let compiler = (!has_compiler).then_some(COMPILER_PACKAGE);
        let packages = absent.iter().filter_map(|(rival, _)| Some(rival.cpp()?.package));
        let packages: Vec<&str> = compiler.into_iter().chain(packages).collect();
        parts.push(format!("{} (to include them: apt-get install {})", titles.join(", "), packages.join(" ")));
    }
    for (rival, why) in broken {
        if let Missing::Compiles(said) = why {
            parts.push(format!("{} (it does not compile here: {said})", rival.title));
        }
    }
    (!parts.is_empty()).then(|| format!("left out: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_in_a_line_with_what_to_install() {
        let rival = |name: &str| Rival::named(name).unwrap();
        let nothing = left_out(&[(rival("tbb"), Missing::Compiler), (rival("nsync"), Missing::Compiler)]).unwrap();
        let told = "left out: tbb::mutex, nsync (to include them: apt-get install g++ libtbb-dev libnsync-dev)";
        assert_eq!(nothing, told);
        let package = left_out(&[(rival("absl"), Missing::Package)]).unwrap();
        assert_eq!(package, "left out: absl::Mutex (to include them: apt-get install libabsl-dev)");
        let broken = left_out(&[(rival("tbb"), Missing::Compiles("x.h:1: error: no".into()))]).unwrap();
        assert_eq!(broken, "left out: tbb::mutex (it does not compile here: x.h:1: error: no)");
        assert_eq!(left_out(&[]), None);
    }

    #[test]
    fn a_workshop_leaves_nothing_behind() {
        let workshop = Workshop::new().unwrap();
        let directory = workshop.0.clone();
        fs::write(directory.join("x"), "x").unwrap();
        drop(workshop);
        assert!(!directory.exists());
    }

    /// Ctrl-C is not a compiler that does not work: the comparison ends.
    #[test]
    fn an_interruption_while_compilers_are_tried_is_passed_on() {
        use std::os::unix::fs::PermissionsExt;
        let workshop = Workshop::new().unwrap();
        let slow = workshop.0.join("slow");
        fs::write(&slow, "#!/bin/sh\nsleep 600\n").unwrap();
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
        let candidates = |names: &[&str]| names.iter().map(OsString::from).collect::<Vec<_>>();
        let watch = Watch::begin();
        assert_eq!(first_that_works(candidates(&["false", "/no/such/file"]), &watch), Some(None));
        assert_eq!(first_that_works(candidates(&["false", "true"]), &watch), Some(Some("true".into())));
        // SAFETY: sends this thread a signal that it blocks and awaits.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), libc::SIGINT) };
        assert_eq!(first_that_works(vec![slow.into(), "true".into()], &watch), None);
    }
}
