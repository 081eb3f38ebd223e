//! Where files are: programs in PATH, and libraries as the dynamic linker finds them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::elf::Elf;

/// The program that a shell would run by this name.
pub(crate) fn program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return path.is_file().then_some(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| is_executable(file))
}

/// Whether somebody may execute the file.
pub(crate) fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Finds libraries.
pub(crate) struct Libraries {
    /// LD_LIBRARY_PATH.
    environment: Vec<PathBuf>,
    /// What `ldconfig` wrote down.
    cache: HashMap<String, Vec<PathBuf>>,
}

/// Where the dynamic linker looks at last, over several distributions.
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
    /// As the dynamic linker of this system would, started from here.
    pub(crate) fn new() -> Self {
        let environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Self {
            environment: std::env::split_paths(&environment).filter(|path| !path.as_os_str().is_empty()).collect(),
            cache: fs::read("/etc/ld.so.cache").map(|bytes| parse_cache(&bytes)).unwrap_or_default(),
        }
    }

    /// The places where a library may be that `elf`, which is at `path`, needs; the first is the likeliest. What is there
    /// may be for another machine.
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

/// A runpath's directories. `$ORIGIN` is where the file is; a path with another variable is left out.
fn expand(runpath: Option<&str>, file: &Path) -> Vec<PathBuf> {
    let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let expanded = runpath.unwrap_or_default().split(':').filter(|entry| !entry.is_empty());
    expanded
        .map(|entry| entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
        .filter(|entry| !entry.contains('$'))
        .map(PathBuf::from)
        .collect()
}

/// Reads `ld.so.cache` in the format that glibc has written since 2.2: a header of 48 bytes, entries of 24 bytes whose second
/// and third words are the offsets of the library's name and path, and the texts. An older format may precede it.
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
        assert!(program(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(program(OsStr::new("/bin/sh")), Some("/bin/sh".into()));
        assert_eq!(program(OsStr::new("no-such-program-here")), None);
        assert_eq!(program(OsStr::new("/no/such/program")), None);
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
