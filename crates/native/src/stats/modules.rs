//! # Modules: the program and libraries that addresses belong to
//!
//! The counts outlive the process, but its `/proc/PID/maps` does not. So a process that counts records where its
//! program and libraries are mapped. It reads `/proc/self/maps` at load time. After that it opens no files, because a
//! sandbox may kill a process that does. If a caller is in no known module, it is looked up with `_dl_find_object`,
//! which glibc has since version 2.35 and which takes no lock.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::sys;

/// Modules of all processes together.
const MODULES: usize = 16_384;
/// Modules of one process.
const OWN: usize = 512;
/// In place of an offset in the file. Marks a module known by its address range only.
const WHOLE: u64 = u64::MAX;
/// The longest path that is kept, in bytes.
const PATH: usize = 224;

/// Code that was mapped from a file.
#[repr(C)]
struct Module {
    /// One plus the process's number; 0 until the rest is written.
    process: AtomicU32,
    /// The length of the path, in bytes.
    length: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    offset: AtomicU64,
    path: [AtomicU8; PATH],
}

/// All modules, in the order in which they were seen.
#[repr(C)]
pub(super) struct Modules {
    used: AtomicU32,
    modules: [Module; MODULES],
}

/// Code that a process mapped from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The process's number, as in [`ObjectTotals`](super::ObjectTotals).
    pub process: u32,
    /// Its first address.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// Its offset in the file; [`None`] if it is all that is mapped of the file.
    pub offset: Option<u64>,
    /// The file, as the process saw it.
    pub path: Vec<u8>,
}

/// A line of `/proc/self/maps` that describes code from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    start: u64,
    end: u64,
    /// [`WHOLE`] if it is all that is mapped of the file.
    offset: u64,
    path: &'a [u8],
}

/// Address ranges of the known modules of this process.
static OWN_MODULES: [Range; OWN] = [const { Range { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; OWN];
static OWN_USED: AtomicU32 = AtomicU32::new(0);
/// glibc's `_dl_find_object`; null where there is none, or before [`Modules::prepare`].
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Addresses from `start` up to but not including `end`; empty until both are written.
struct Range {
    start: AtomicU64,
    end: AtomicU64,
}

impl Range {
    fn contains(&self, address: u64) -> bool {
        // Acquire pairs with the Release in `note`.
        address < self.end.load(Acquire) && address >= self.start.load(Relaxed)
    }
}

impl Modules {
    /// At load time: records what the calling process has mapped.
    pub(super) fn prepare(&self, process: u32) {
        read_maps(|line| self.note(process, line));
        // SAFETY: the name ends in NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        FIND_OBJECT.store(found, Relaxed);
    }

    /// Records the module of the code at this address, if it comes from a file and is not known yet.
    pub(super) fn note_code_at(&self, process: u32, address: usize) {
        if !own().any(|range| range.contains(address as u64)) {
            look_up(address, |line| self.note(process, line));
        }
    }

    fn note(&self, process: u32, line: Line<'_>) {
        if line.path.len() > PATH || own().any(|range| range.contains(line.start)) {
            return;
        }
        if let Some(range) = OWN_MODULES.get(OWN_USED.fetch_add(1, Relaxed) as usize) {
            range.start.store(line.start, Relaxed);
            range.end.store(line.end, Release);
        } else {
            OWN_USED.store(OWN as u32, Relaxed);
            return;
        }
        let Some(module) = self.modules.get(self.used.fetch_add(1, Relaxed) as usize) else {
            self.used.store(MODULES as u32, Relaxed);
            return;
        };
        for (to, &byte) in module.path.iter().zip(line.path) {
            to.store(byte, Relaxed);
        }
        module.length.store(line.path.len() as u32, Relaxed);
        module.start.store(line.start, Relaxed);
        module.end.store(line.end, Relaxed);
        module.offset.store(line.offset, Relaxed);
        // Release pairs with the Acquire in `list`.
        module.process.store(process + 1, Release);
    }

    /// All recorded modules.
    pub(super) fn list(&self) -> Vec<Mapped> {
        let mapped = |module: &Module| {
            let process = module.process.load(Acquire).checked_sub(1)?;
            let path = &module.path[..(module.length.load(Relaxed) as usize).min(PATH)];
            Some(Mapped {
                process,
                start: module.start.load(Relaxed),
                end: module.end.load(Relaxed),
                offset: Some(module.offset.load(Relaxed)).filter(|offset| *offset != WHOLE),
                path: path.iter().map(|byte| byte.load(Relaxed)).collect(),
            })
        };
        let used = (self.used.load(Relaxed) as usize).min(MODULES);
        self.modules[..used].iter().filter_map(mapped).collect()
    }
}

/// The known modules of this process.
fn own() -> impl Iterator<Item = &'static Range> {
    OWN_MODULES[..(OWN_USED.load(Relaxed) as usize).min(OWN)].iter()
}

/// Calls `f` with the module that contains the code at this address, according to the dynamic linker.
fn look_up<F: FnOnce(Line<'_>)>(address: usize, f: F) {
    /// The first fields of glibc's `struct dl_find_object`, with more room than the rest takes.
    #[repr(C)]
    struct Answer {
        flags: u64,
        start: u64,
        end: u64,
        map: *const LinkMap,
        more: [u64; 28],
    }
    /// The public part of `struct link_map`.
    #[repr(C)]
    struct LinkMap {
        moved_by: u64,
        name: *const c_char,
    }
    type FindObject = unsafe extern "C" fn(*const c_void, *mut Answer) -> i32;

    let found = FIND_OBJECT.load(Relaxed);
    if found.is_null() {
        return;
    }
    let mut answer = Answer { flags: 0, start: 0, end: 0, map: core::ptr::null(), more: [0; 28] };
    // SAFETY: glibc's function of this name has this type and writes less than an `Answer`. The map is of a module that
    // is running now, so it stays loaded, and its name is a C string.
    let path = unsafe {
        let find: FindObject = core::mem::transmute(found);
        if find(address as *const c_void, &raw mut answer) != 0 {
            return;
        }
        match answer.map.as_ref().filter(|map| !map.name.is_null()) {
            Some(map) => CStr::from_ptr(map.name).to_bytes(),
            None => return,
        }
    };
    // (The program itself has an empty name here, but was recorded at load time.)
    if path.first() == Some(&b'/') {
        f(Line { start: answer.start, end: answer.end, offset: WHOLE, path });
    }
}

/// Calls `f` with each line that describes code from a file. Does nothing if a sandbox forbids reading the file.
fn read_maps(mut f: impl FnMut(Line<'_>)) {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: the path is a C string.
    let file = unsafe {
        sys::syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, c"/proc/self/maps".as_ptr() as usize, flags, 0, 0, 0])
    };
    let Ok(file) = usize::try_from(file) else { return };
    let mut buffer = [0u8; 4096];
    let mut kept = 0;
    loop {
        let room = &mut buffer[kept..];
        // SAFETY: `room` is writable.
        let read = unsafe { sys::syscall(libc::SYS_read, [file, room.as_mut_ptr() as usize, room.len(), 0, 0, 0]) };
        let Some(read) = usize::try_from(read).ok().filter(|read| *read > 0) else { break };
        let filled = kept + read;
        let mut rest = &buffer[..filled];
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            if let Some(line) = parse(&rest[..end]) {
                f(line);
            }
            rest = &rest[end + 1..];
        }
        // A line longer than the buffer has too long a path, and the rest of it does not parse as a line.
        kept = if rest.len() == buffer.len() { 0 } else { rest.len() };
        buffer.copy_within(filled - kept..filled, 0);
    }
    // SAFETY: the descriptor is this function's.
    unsafe { sys::syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]) };
}

/// `55d0c8a00000-55d0c8a21000 r-xp 00002000 fe:01 1234   /usr/bin/prog`
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let (start, rest) = hexadecimal(line)?;
    let (end, rest) = hexadecimal(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    if *rest.get(2)? != b'x' {
        return None;
    }
    let (offset, _) = hexadecimal(rest.get(4..)?.strip_prefix(b" ")?)?;
    let path = &rest[rest.iter().position(|&byte| byte == b'/')?..];
    Some(Line { start, end, offset, path })
}

/// The hexadecimal number at the start, and the text after it.
fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(u64::from);
    let digits = text.iter().take_while(|&&byte| digit(byte).is_some()).count();
    let number = text[..digits].iter().try_fold(0, |number, &byte| Some(number << 4 | digit(byte)?))?;
    (1..=16).contains(&digits).then_some((number, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_tell_of_code() {
        let line = b"7f00-7f80 r-xp 00002000 fe:01 1234                       /usr/lib/lib with blank.so (deleted)";
        let parsed = parse(line).unwrap();
        assert_eq!((parsed.start, parsed.end, parsed.offset), (0x7f00, 0x7f80, 0x2000));
        assert_eq!(parsed.path, b"/usr/lib/lib with blank.so (deleted)");
        for other in [
            &b"7f00-7f80 r--p 00002000 fe:01 1234 /usr/lib/x.so"[..],
            b"7f00-7f80 r-xp 00000000 00:00 0 [vdso]",
            b"7f00-7f80 r-xp 00000000 00:00 0",
            b"7f00",
            b"",
            b"-",
            b"7f00-7f80 r-",
            b"11112222333344445-7f80 r-xp 00002000 fe:01 1234 /x",
        ] {
            assert_eq!(parse(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn this_program_is_found_once_and_what_is_loaded_later_is_found_too() {
        // SAFETY: all-zero atomics are valid.
        let modules = unsafe { Box::<Modules>::new_zeroed().assume_init() };
        let here = look_up::<fn(Line<'_>)> as *const () as usize;
        modules.prepare(3);
        modules.note_code_at(3, here);
        let of = |address: usize| {
            let list = modules.list();
            let around = move |mapped: &Mapped| (mapped.start..mapped.end).contains(&(address as u64));
            list.into_iter().filter(around).collect::<Vec<_>>()
        };
        let (found, me) = (of(here), std::env::current_exe().unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].process, found[0].path.as_slice()), (3, me.as_os_str().as_encoded_bytes()));
        assert!(modules.list().iter().any(|mapped| mapped.path.windows(7).any(|part| part == b"libc.so")));
        // SAFETY: a library without constructors that matter; the names end in NUL.
        let late = unsafe {
            let library = libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW);
            libc::dlsym(library, c"__dn_expand".as_ptr()) as usize
        };
        if late == 0 || FIND_OBJECT.load(Relaxed).is_null() {
            return;
        }
        assert_eq!(of(late), []);
        modules.note_code_at(3, late);
        let found = of(late);
        assert!(found.len() == 1 && found[0].path.windows(9).any(|part| part == b"libresolv"), "{found:?}");
    }
}
