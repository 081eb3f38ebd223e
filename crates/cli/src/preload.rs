//! The library that loads the locks into a program: where it is, and how to preload it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashlock_native::{settings, stats};

use crate::failure::Failure;

/// The library's file name.
pub(crate) const FILE: &str = "libflashlock_preload.so";
/// The environment variable with its path.
pub(crate) const ENV_PATH: &str = "FLASHLOCK_PRELOAD_PATH";
/// The dynamic linker's list of libraries to load first.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";

/// Finds the library: at the path in `FLASHLOCK_PRELOAD_PATH`, else beside this command, else in `../lib/flashlock/`
/// from there.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let explicit = std::env::var_os(ENV_PATH).filter(|path| !path.is_empty()).map(PathBuf::from);
    let command = std::env::current_exe().ok();
    find_among(explicit.as_deref(), command.as_deref())
}

fn find_among(explicit: Option<&Path>, command: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = explicit {
        let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        if !file.is_file() {
            return Err(Failure::new(format_args!(
                "cannot find {FILE}: {ENV_PATH}={} does not exist; correct or unset it",
                path.display()
            )));
        }
        return linkable(absolute(file));
    }
    let directory = command.and_then(Path::parent);
    let places: Vec<PathBuf> = directory
        .into_iter()
        .flat_map(|directory| [directory.join(FILE), directory.join("../lib/flashlock").join(FILE)])
        .collect();
    if let Some(file) = places.iter().find(|file| file.is_file()) {
        return linkable(absolute(file.clone()));
    }
    let searched: Vec<String> = places.iter().map(|file| file.display().to_string()).collect();
    Err(Failure::new(format_args!(
        "cannot find {FILE}: searched {}; install it in one of these places, or set {ENV_PATH} to its path",
        if searched.is_empty() {
            "nowhere, because the path of this command is unknown".into()
        } else {
            searched.join(" and ")
        }
    )))
}

fn absolute(file: PathBuf) -> PathBuf {
    file.canonicalize().unwrap_or(file)
}

/// Checks that LD_PRELOAD can contain the path. It is split at blanks and colons, and cannot quote them.
fn linkable(file: PathBuf) -> Result<PathBuf, Failure> {
    if file.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b':')) {
        return Err(Failure::new(format_args!(
            "cannot preload {}: LD_PRELOAD cannot contain a path with spaces or colons; \
             copy the library to another path, and set {ENV_PATH} to that",
            file.display()
        )));
    }
    Ok(file)
}

/// The value of LD_PRELOAD that loads the library before all existing entries.
pub(crate) fn prepend(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    for entry in entries(existing).filter(|entry| *entry != library.as_os_str()) {
        value.push(":");
        value.push(entry);
    }
    value
}

/// AddressSanitizer's options.
pub(crate) const ASAN_OPTIONS: &str = "ASAN_OPTIONS";

/// The name and value of a variable with which programs built for AddressSanitizer start. Their runtime refuses to if
/// another library comes before it. flashlock's may: of the functions that this sanitizer intercepts, it defines only
/// those of mutexes and semaphores. The user's own options come later, so they take precedence.
pub(crate) fn asan_options() -> (&'static str, OsString) {
    let mut value = OsString::from("verify_asan_link_order=0");
    if let Some(own) = std::env::var_os(ASAN_OPTIONS).filter(|own| !own.is_empty()) {
        value.push(":");
        value.push(own);
    }
    (ASAN_OPTIONS, value)
}

/// The existing entries, except flashlock's library.
pub(crate) fn without_ours(existing: Option<&OsStr>) -> OsString {
    let foreign: Vec<&OsStr> = entries(existing).filter(|entry| !is_ours(entry)).collect();
    foreign.join(OsStr::new(":"))
}

/// Sets a command's environment for a mutex and a readers-writer lock, or for glibc's if there are none, regardless of
/// this command's own environment. Other preloaded libraries stay.
pub(crate) fn put_under(command: &mut Command, locks: Option<(&Path, [&str; 2])>) {
    let existing = without_ours(std::env::var_os(LD_PRELOAD).as_deref());
    command.env_remove(stats::ENV).env_remove(settings::ENV).env_remove(settings::ENV_RW).env_remove(LD_PRELOAD);
    if let Some((library, [mutex, rw])) = locks {
        command.env(settings::ENV, mutex).env(settings::ENV_RW, rw);
        command.env(LD_PRELOAD, prepend(library, Some(&existing))).envs([asan_options()]);
    } else if !existing.is_empty() {
        command.env(LD_PRELOAD, existing);
    }
}

/// Whether an entry of LD_PRELOAD is flashlock's library.
pub(crate) fn is_ours(entry: &OsStr) -> bool {
    Path::new(entry).file_name() == Some(OsStr::new(FILE))
}

/// The entries of LD_PRELOAD.
pub(crate) fn entries(value: Option<&OsStr>) -> impl Iterator<Item = &OsStr> {
    let bytes = value.unwrap_or_default().as_bytes();
    let separators = |byte: &u8| matches!(byte, b' ' | b':');
    bytes.split(separators).filter(|entry| !entry.is_empty()).map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_once() {
        let library = Path::new("/lib/libflashlock_preload.so");
        assert_eq!(prepend(library, None), "/lib/libflashlock_preload.so");
        let existing = OsStr::new("/a.so /lib/libflashlock_preload.so:/b.so");
        assert_eq!(prepend(library, Some(existing)), "/lib/libflashlock_preload.so:/a.so:/b.so");
        assert_eq!(without_ours(Some(existing)), "/a.so:/b.so");
    }

    #[test]
    fn what_was_searched_is_said() {
        let error = find_among(None, Some(Path::new("/opt/fl/bin/flashlock"))).unwrap_err().to_string();
        for place in ["/opt/fl/bin/libfl", "/opt/fl/bin/../lib/flashlock/libfl", ENV_PATH] {
            assert!(error.contains(place), "{error}");
        }
        let error = find_among(Some(Path::new("/nowhere")), None).unwrap_err().to_string();
        assert!(error.contains("FLASHLOCK_PRELOAD_PATH=/nowhere does not exist"), "{error}");
    }

    #[test]
    fn paths_that_cannot_be_preloaded_are_refused() {
        for path in ["/a b/x.so", "/a:b/x.so"] {
            let error = linkable(path.into()).unwrap_err().to_string();
            assert!(error.contains("spaces or colons") && error.contains(ENV_PATH), "{error}");
        }
    }
}
