//! Finds files: programs in PATH, and libraries as the dynamic linker finds them.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::Elf;
use crate::screen::reason;

/// Why there is no program with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoProgram {
    /// The file does not exist.
    Missing,
    /// The path is a directory.
    Directory(PathBuf),
    /// The file is not executable for this process.
    NotExecutable(PathBuf),
    /// The file is neither a program nor a directory, but a pipe or the like.
    NoFile(PathBuf),
    /// The way to the file is barred, for this reason.
    Unreachable(String),
}

/// The program that a shell would run by this name.
pub(crate) fn program(name: &OsStr) -> Result<PathBuf, NoProgram> {
    if name.as_bytes().contains(&b'/') {
        return executable(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = NoProgram::Missing;
    for directory in std::env::split_paths(&path) {
        match executable(directory.join(name)) {
            Ok(found) => return Ok(found),
            Err(why @ NoProgram::NotExecutable(_)) if refused == NoProgram::Missing => refused = why,
            Err(_) => {}
        }
    }
    Err(refused)
}

/// The file, if this process may execute it.
pub(crate) fn executable(file: PathBuf) -> Result<PathBuf, NoProgram> {
    let data = match fs::metadata(&file) {
        Ok(data) => data,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(NoProgram::Missing),
        Err(error) => return Err(NoProgram::Unreachable(reason(&error))),
    };
    if data.is_dir() {
        return Err(NoProgram::Directory(file));
    }
    if !data.is_file() {
        return Err(NoProgram::NoFile(file));
    }
    let may = CString::new(file.as_os_str().as_bytes()).is_ok_and(|path| {
        // SAFETY: the path is a C string.
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
    });
    if may { Ok(file) } else { Err(NoProgram::NotExecutable(file)) }
}

/// Finds libraries.
pub(crate) struct Libraries {
    /// The directories of LD_LIBRARY_PATH.
    environment: Vec<PathBuf>,
    /// The cache that `ldconfig` wrote.
    cache: HashMap<String, Vec<PathBuf>>,
}

/// The directories that the dynamic linker searches last, on several distributions.
const DEFAULTS: &[&str] = &[
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib",
    "/usr/lib",
];

impl Libraries {
    /// Searches like this system's dynamic linker in the current environment.
    pub(crate) fn new() -> Self {
        let environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Self {
            environment: std::env::split_paths(&environment).filter(|path| !path.as_os_str().is_empty()).collect(),
            cache: fs::read("/etc/ld.so.cache").map(|bytes| parse_cache(&bytes)).unwrap_or_default(),
        }
    }

    /// The possible paths of a library that `elf`, at `path`, needs; the most likely one first. A file there may be for
    /// another machine.
    pub(crate) fn candidates(&self, name: &str, elf: &Elf, path: &Path) -> Vec<PathBuf> {
        if name.contains('/') {
            return vec![PathBuf::from(name)];
        }
        let rpath = elf.rpath.as_deref().filter(|_| elf.runpath.is_none());
        let before = expand(rpath, path);
        let after = expand(elf.runpath.as_deref(), path);
        let directories = before.into_iter().chain(self.environment.iter().cloned()).chain(after);
        let cached = self.cache.get(name).cloned().unwrap_or_default();
        let defaults = DEFAULTS.iter().map(|directory| Path::new(directory).join(name));
        let all = directories.map(|directory| directory.join(name)).chain(cached).chain(defaults);
        all.filter(|file| file.is_file()).collect()
    }
}

/// A runpath's directories. `$ORIGIN` is the file's directory; paths with other variables are left out.
fn expand(runpath: Option<&str>, file: &Path) -> Vec<PathBuf> {
    let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let expanded = runpath.unwrap_or_default().split(':').filter(|entry| !entry.is_empty());
    expanded
        .map(|entry| entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
        .filter(|entry| !entry.contains('$'))
        .map(PathBuf::from)
        .collect()
}

/// Reads `ld.so.cache` in the format that glibc has written since 2.2: a header of 48 bytes, entries of 24 bytes whose
/// second and third words are the offsets of the library's name and path, and the texts. An older format may precede
/// it.
fn parse_cache(bytes: &[u8]) -> HashMap<String, Vec<PathBuf>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    let mut found: HashMap<String, Vec<PathBuf>> = HashMap::new();
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else { return found };
    let cache = &bytes[start..];
    let word = |at: usize| Some(u32::from_ne_bytes(cache.get(at..at + 4)?.try_into().ok()?) as usize);
    let text = |at: usize| cache.get(at..)?.split(|&byte| byte == 0).next();
    for index in 0..word(20).unwrap_or(0) {
        let entry = 48 + index * 24;
        let texts = || Some((text(word(entry + 4)?)?, text(word(entry + 8)?)?));
        let Some((name, path)) = texts() else { break };
        let name = String::from_utf8_lossy(name).into_owned();
        found.entry(name).or_default().push(PathBuf::from(OsStr::from_bytes(path)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_does() {
        assert!(program(OsStr::new("sh")).is_ok_and(|path| path.is_absolute()));
        assert_eq!(program(OsStr::new("/bin/sh")), Ok("/bin/sh".into()));
        assert_eq!(program(OsStr::new("no-such-program-here")), Err(NoProgram::Missing));
        assert_eq!(program(OsStr::new("/no/such/program")), Err(NoProgram::Missing));
        assert_eq!(program(OsStr::new("/")), Err(NoProgram::Directory("/".into())));
        assert_eq!(program(OsStr::new("/dev/null")), Err(NoProgram::NoFile("/dev/null".into())));
    }

    #[test]
    fn the_c_library_is_found() {
        let found = Libraries::new().candidates("libc.so.6", &Elf::default(), Path::new("/bin/sh"));
        assert!(!found.is_empty());
    }

    #[test]
    fn origins_are_expanded() {
        let expanded = expand(Some("$ORIGIN/../lib:${ORIGIN}:/x:$LIB/y:"), Path::new("/opt/bin/prog"));
        assert_eq!(expanded, ["/opt/bin/../lib", "/opt/bin", "/x"].map(PathBuf::from));
    }

    #[test]
    fn a_cache_of_one_entry_and_caches_of_nonsense() {
        let mut cache = b"glibc-ld.so.cache1.1".to_vec();
        cache.extend(1u32.to_ne_bytes());
        cache.resize(48, 0);
        for word in [0x303, 72u32, 80] {
            cache.extend(word.to_ne_bytes());
        }
        cache.resize(72, 0);
        cache.extend(b"libx.so\0/lib/libx.so\0");
        assert_eq!(parse_cache(&cache).get("libx.so"), Some(&vec![PathBuf::from("/lib/libx.so")]));
        for end in 0..cache.len() {
            parse_cache(&cache[..end]);
        }
        cache[20..24].fill(0xff);
        parse_cache(&cache);
    }
}
