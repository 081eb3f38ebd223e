//! Reads what a program file is, without executing it. That a file is broken is a valid answer, too.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache};

type Parsed<'data> = ElfFile64<'data, Endianness, &'data ReadCache<File>>;

/// The kind of a file.
#[derive(Debug)]
pub(crate) enum Image {
    /// A program or library for this machine.
    Elf(Box<Elf>),
    /// A program or library for another kind of machine: its bits and its architecture.
    Foreign(u32, String),
    /// A script: its interpreter, and the interpreter's argument.
    Script(String, Option<String>),
    /// It starts like ELF but cannot be parsed: the error. The kernel may still be able to run it, because it needs
    /// less of the file.
    Broken(String),
    /// It starts like ELF but the kernel cannot run it: the error.
    Unloadable(&'static str),
    /// Any other file.
    Other,
}

/// The contents of an ELF file.
#[derive(Debug, Default)]
pub(crate) struct Elf {
    /// The dynamic linker that it requests. A program without one is static.
    pub(crate) interpreter: Option<String>,
    /// The library's own name.
    pub(crate) soname: Option<String>,
    /// The libraries that it needs.
    pub(crate) needed: Vec<String>,
    /// Where to search for libraries after LD_LIBRARY_PATH, unexpanded.
    pub(crate) runpath: Option<String>,
    /// Where to search for libraries before LD_LIBRARY_PATH, unexpanded. It is ignored if there is a runpath.
    pub(crate) rpath: Option<String>,
    /// Functions and variables that it imports from libraries.
    pub(crate) imports: Vec<String>,
    /// Functions and variables that it exports.
    pub(crate) exports: Vec<String>,
    /// The newest version of glibc's symbols that it needs.
    pub(crate) glibc: Option<(u32, u32)>,
    /// Whether the Go compiler made it.
    pub(crate) is_go: bool,
}

/// The architecture of this command, as a number of ELF's.
const NATIVE: elf::Machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };

/// The error for a file that ends within its headers.
const CUT_OFF: &str = "it ends within its headers";

/// Reads a file.
pub(crate) fn read(path: &Path) -> io::Result<Image> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    file.by_ref().take(512).read_to_end(&mut head)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(Image::Other);
    }
    if head.len() < 20 {
        return Ok(Image::Unloadable(CUT_OFF));
    }
    let (class, encoding) = (head[4], head[5]);
    let machine = if encoding == 2 { [head[19], head[18]] } else { [head[18], head[19]] };
    let machine = u16::from_le_bytes(machine);
    if class != 2 || machine != NATIVE.0 {
        return Ok(Image::Foreign(if class == 1 { 32 } else { 64 }, architecture(machine)));
    }
    if let Some(what) = unloadable(&head, encoding == 2, file.metadata()?.len()) {
        return Ok(Image::Unloadable(what));
    }
    let cache = ReadCache::new(file);
    Ok(match parse(&cache) {
        Ok(elf) => Image::Elf(Box::new(elf)),
        Err(error) => Image::Broken(error.to_string()),
    })
}

/// Why the kernel cannot load a 64-bit ELF file: no complete header, no program headers, or not a program.
fn unloadable(head: &[u8], is_big_endian: bool, length: u64) -> Option<&'static str> {
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at + size)?.iter();
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if is_big_endian { bytes.fold(0, add) } else { bytes.rev().fold(0, add) })
    };
    let (Some(kind), Some(first), Some(size), Some(count)) =
        (number(16, 2), number(32, 8), number(54, 2), number(56, 2))
    else {
        return Some(CUT_OFF);
    };
    let is_program = [elf::ET_EXEC, elf::ET_DYN].iter().any(|program| u64::from(program.0) == kind);
    match first.checked_add(size * count) {
        _ if !is_program => Some("it is not linked: an object file or a core dump"),
        _ if count == 0 => Some("it has no program headers"),
        Some(end) if end <= length => None,
        _ => Some(CUT_OFF),
    }
}

fn script(line: &[u8]) -> Image {
    // The kernel ignores no other blanks: in a file with the line ends of Windows, the name ends in one.
    const BLANKS: [char; 2] = [' ', '\t'];
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let line = line.trim_matches(BLANKS);
    let (interpreter, argument) = line.split_once(BLANKS).unwrap_or((line, ""));
    let argument = argument.trim_matches(BLANKS);
    Image::Script(interpreter.to_owned(), (!argument.is_empty()).then(|| argument.to_owned()))
}

fn architecture(machine: u16) -> String {
    let name = match elf::Machine(machine) {
        elf::EM_386 => "i386",
        elf::EM_X86_64 => "x86-64",
        elf::EM_ARM => "ARM",
        elf::EM_AARCH64 => "AArch64",
        elf::EM_RISCV => "RISC-V",
        elf::EM_PPC64 => "PowerPC 64",
        elf::EM_S390 => "S/390",
        _ => return format!("machine {machine}"),
    };
    name.to_owned()
}

fn parse(cache: &ReadCache<File>) -> object::Result<Elf> {
    let file = Parsed::parse(cache)?;
    let endian = file.endian();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = Elf { glibc: glibc_needed(&file)?, ..Elf::default() };
    for header in file.elf_program_headers() {
        if let Some(path) = header.interpreter(endian, cache)? {
            found.interpreter = Some(text(path));
        }
    }
    let dynamic = file.elf_dynamic_table()?;
    for entry in dynamic.dynamics().iter().take_while(|entry| entry.tag(endian) != elf::DT_NULL) {
        if !entry.is_string(endian) {
            continue;
        }
        let value = text(entry.string(endian, *dynamic.strings())?);
        match entry.tag(endian) {
            elf::DT_NEEDED => found.needed.push(value),
            elf::DT_SONAME => found.soname = Some(value),
            elf::DT_RUNPATH => found.runpath = Some(value),
            elf::DT_RPATH => found.rpath = Some(value),
            _ => {}
        }
    }
    for symbol in file.dynamic_symbols() {
        let names = if symbol.is_undefined() { &mut found.imports } else { &mut found.exports };
        names.push(text(symbol.name_bytes()?));
    }
    found.is_go = file.sections().any(|section| matches!(section.name(), Ok(".gopclntab" | ".note.go.buildid")));
    Ok(found)
}

/// The highest `GLIBC_x.y` among the versions that the file needs.
fn glibc_needed(file: &Parsed<'_>) -> object::Result<Option<(u32, u32)>> {
    let (endian, sections, data) = (file.endian(), file.elf_section_table(), file.data());
    let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? else { return Ok(None) };
    let strings = sections.strings(endian, data, link)?;
    let mut newest = None;
    while let Some((_, mut versions)) = needs.next()? {
        while let Some(version) = versions.next()? {
            newest = newest.max(glibc_version(version.name(endian, strings)?));
        }
    }
    Ok(newest)
}

fn glibc_version(name: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    let (major, rest) = text.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_dynamic_and_imports_the_mutex() {
        let Image::Elf(elf) = read(&std::env::current_exe().unwrap()).unwrap() else { panic!("not ELF") };
        assert!(elf.interpreter.is_some() && !elf.is_go);
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", elf.needed);
        assert!(elf.imports.iter().any(|name| name == "pthread_mutex_lock"));
        assert!(elf.glibc >= Some((2, 2)));
    }

    #[test]
    fn scripts_name_their_interpreter() {
        for (line, interpreter, argument) in [
            (" /usr/bin/env python3 -u\nx", "/usr/bin/env", Some("python3 -u")),
            ("/bin/sh\n", "/bin/sh", None),
            ("/bin/sh\r\n", "/bin/sh\r", None),
            ("", "", None),
        ] {
            let Image::Script(found, rest) = script(line.as_bytes()) else { panic!("not a script") };
            assert_eq!((found.as_str(), rest.as_deref()), (interpreter, argument));
        }
    }

    #[test]
    fn broken_files_are_an_answer() {
        let path = std::env::temp_dir().join(format!("flashlock-elf-{}", std::process::id()));
        let mut elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        elf.truncate(1000);
        for (content, expected) in [
            (elf.clone(), "Broken"),
            (b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec(), "Foreign(32, \"i386\")"),
            (elf[..100].to_vec(), "Unloadable(\"it ends within"),
            ([&elf[..16], &[1, 0], &elf[18..]].concat(), "Unloadable(\"it is not linked"),
            ([&elf[..56], &[0, 0], &elf[58..]].concat(), "Unloadable(\"it has no program headers"),
            (b"\x7fELF".to_vec(), "Unloadable(\"it ends within"),
            (b"hello".to_vec(), "Other"),
        ] {
            std::fs::write(&path, content).unwrap();
            let image = format!("{:?}", read(&path).unwrap());
            assert!(image.starts_with(expected), "{image}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn versions() {
        assert_eq!(glibc_version(b"GLIBC_2.34"), Some((2, 34)));
        assert_eq!(glibc_version(b"GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!((glibc_version(b"GLIBC_PRIVATE"), glibc_version(b"GLIBCXX_3.4")), (None, None));
    }
}
