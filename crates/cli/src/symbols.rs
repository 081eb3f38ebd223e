//! The meaning of addresses in a program that has ended: which variable a lock was, and which call in the program used
//! it first.
//!
//! The processes have recorded where their code was mapped from ([`Mapped`]). Everything else is in the files: symbols,
//! and source lines if there is debug information. If a file cannot be read, or has no symbols, the address stays a
//! number.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use addr2line::gimli::{Dwarf, EndianSlice, NativeEndian, SectionId};
use addr2line::{Context, demangle_auto};
use flashlock_native::stats::{Kind, Mapped, ObjectTotals, Site};
use flashlock_report::run_stats::{Object, Place, Reason};
use object::elf;
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{
    CompressionFormat, Endianness, Object as _, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SegmentFlags,
    SymbolKind,
};

use crate::preload;

/// The smallest page size.
const PAGE: u64 = 4096;

/// The files of all processes.
pub(crate) struct Symbols {
    modules: Vec<Mapped>,
    files: HashMap<PathBuf, Option<File>>,
}

/// A program or library.
struct File {
    segments: Vec<Segment>,
    /// Functions and variables, in order of address.
    symbols: Vec<Symbol>,
    lines: Option<Lines>,
}

/// A file's debug information.
type Lines = Context<EndianSlice<'static, NativeEndian>>;

/// A part of the file that is mapped in one piece.
struct Segment {
    address: u64,
    size: u64,
    /// Its offset and its length in the file.
    file: (u64, u64),
    is_code: bool,
}

struct Symbol {
    address: u64,
    size: u64,
    is_code: bool,
    name: String,
}

/// An address in a file.
struct Spot<'a> {
    path: &'a Path,
    file: &'a File,
    address: u64,
}

impl Symbols {
    /// The symbols of processes with these mappings.
    pub(crate) fn new(modules: Vec<Mapped>) -> Self {
        Self { modules, files: HashMap::new() }
    }

    /// The objects with their names. If several processes have the same variable, it is one object.
    pub(crate) fn name(&mut self, counted: &[ObjectTotals]) -> Vec<Object> {
        let mut named: Vec<Object> = Vec::new();
        let mut variables: HashMap<(String, String, String), usize> = HashMap::new();
        for object in counted.iter().map(|totals| self.object(totals)) {
            let variable = match (&object.kind, &object.symbol, &object.module) {
                (Some(kind), Some(symbol), Some(module)) => Some((kind.clone(), symbol.clone(), module.clone())),
                _ => None,
            };
            let next = named.len();
            let at = variable.map_or(next, |variable| *variables.entry(variable).or_insert(next));
            match named.get_mut(at) {
                Some(known) => {
                    known.acquisitions += object.acquisitions;
                    known.contended += object.contended;
                    known.waited_ns += object.waited_ns;
                    known.longest_ns = known.longest_ns.max(object.longest_ns);
                    known.process = known.process.filter(|process| Some(*process) == object.process);
                }
                None => named.push(object),
            }
        }
        named.sort_by_key(|object| (u64::MAX - object.waited_ns, u64::MAX - object.acquisitions));
        named
    }

    fn object(&mut self, totals: &ObjectTotals) -> Object {
        let process = totals.process.unwrap_or_default();
        let variable = totals.address.and_then(|address| {
            let spot = self.find(process, address)?;
            Some((spot.variable()?, spot.path.to_string_lossy().into_owned()))
        });
        let (symbol, module) = variable.unzip();
        Object {
            kind: totals.kind.map(Kind::name).map(str::to_owned),
            symbol,
            module,
            address: totals.address.map(hexadecimal),
            process: totals.process,
            place: totals.site.and_then(|site| self.place(process, site)),
            acquisitions: totals.acquired,
            contended: totals.contended,
            waited_ns: totals.waited_ns,
            longest_ns: totals.longest_ns,
        }
    }

    fn place(&mut self, process: u32, site: Site) -> Option<Place> {
        // If part of flashlock is between the call and the program, the call is not the program's.
        let spot = self.find(process, site.address).filter(|spot| !preload::is_ours(spot.path.as_os_str()))?;
        let (function, source) = spot.call();
        Some(Place {
            reason: if site.of_init { Reason::Initialised } else { Reason::FirstUsed },
            function,
            source,
            module: spot.path.to_string_lossy().into_owned(),
            offset: hexadecimal(spot.address),
        })
    }

    /// The file that contains an address of a process.
    fn find(&mut self, process: u32, address: u64) -> Option<Spot<'_>> {
        let path = |mapped: &Mapped| PathBuf::from(OsStr::from_bytes(&mapped.path));
        for mapped in self.modules.iter().filter(|mapped| mapped.process == process) {
            self.files.entry(path(mapped)).or_insert_with_key(|path| File::read(path));
        }
        let files = &self.files;
        self.modules.iter().filter(|mapped| mapped.process == process).find_map(|mapped| {
            let (path, file) = files.get_key_value(&path(mapped))?;
            let file = file.as_ref()?;
            let address = address.wrapping_sub(file.moved_by(mapped)?);
            file.segments.iter().any(|segment| address.wrapping_sub(segment.address) < segment.size).then_some(Spot {
                path,
                file,
                address,
            })
        })
    }
}

impl File {
    fn read(path: &Path) -> Option<Self> {
        // Kept until the command ends.
        let cache: &'static ReadCache<fs::File> = Box::leak(Box::new(ReadCache::new(fs::File::open(path).ok()?)));
        let file = ElfFile64::<Endianness, _>::parse(cache).ok()?;
        let segments = file.segments().map(|segment| Segment {
            address: segment.address(),
            size: segment.size(),
            file: segment.file_range(),
            is_code: matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & elf::PF_X == elf::PF_X),
        });
        let symbol = |symbol: ElfSymbol64<'static, '_, Endianness, &'static ReadCache<fs::File>>| {
            let is_code = match symbol.kind() {
                SymbolKind::Text => true,
                SymbolKind::Data => false,
                _ => return None,
            };
            let name = symbol.name().ok().filter(|name| !name.is_empty())?;
            symbol.is_definition().then(|| Symbol {
                address: symbol.address(),
                size: symbol.size(),
                is_code,
                name: name.to_owned(),
            })
        };
        let mut symbols: Vec<Symbol> = file.symbols().chain(file.dynamic_symbols()).filter_map(symbol).collect();
        symbols.sort_by_key(|symbol| symbol.address);
        Some(Self { segments: segments.collect(), symbols, lines: lines(&file) })
    }

    /// The difference between the mapped addresses and the file's own.
    fn moved_by(&self, mapped: &Mapped) -> Option<u64> {
        let Some(offset) = mapped.offset else {
            // From the first page of the first segment on.
            let first = self.segments.iter().map(|segment| segment.address).min()?;
            return Some(mapped.start.wrapping_sub(first & !(PAGE - 1)));
        };
        // The kernel maps whole pages, so a mapping may start before its segment, with the end of another segment that
        // is not code.
        let in_segment = |segment: &&Segment| {
            let (begin, size) = segment.file;
            segment.is_code && offset < begin + size && begin < offset + (mapped.end - mapped.start)
        };
        let segment = self.segments.iter().find(in_segment)?;
        Some(mapped.start.wrapping_sub(offset).wrapping_sub(segment.address.wrapping_sub(segment.file.0)))
    }

    /// The innermost symbol that contains an address.
    fn symbol(&self, address: u64, is_code: bool) -> Option<&Symbol> {
        let before = &self.symbols[..self.symbols.partition_point(|symbol| symbol.address <= address)];
        let around = |symbol: &&Symbol| symbol.is_code == is_code && address - symbol.address < symbol.size.max(1);
        // A larger symbol that contains smaller ones rarely starts far away.
        before.iter().rev().take(64).find(around)
    }
}

/// A file's debug information, if it exists and is not compressed.
fn lines(file: &ElfFile64<'static, Endianness, &'static ReadCache<fs::File>>) -> Option<Lines> {
    let section = |id: SectionId| {
        let found = file.section_by_name(id.name());
        let plain = found.filter(|section| {
            section.compressed_file_range().is_ok_and(|range| range.format == CompressionFormat::None)
        });
        let data = plain.and_then(|section| section.data().ok()).unwrap_or_default();
        Ok::<_, object::Error>(EndianSlice::new(data, NativeEndian))
    };
    Context::from_dwarf(Dwarf::load(section).ok()?).ok()
}

impl Spot<'_> {
    /// The variable at this address, or of which it is a part.
    fn variable(&self) -> Option<String> {
        let symbol = self.file.symbol(self.address, false)?;
        let name = demangled(&symbol.name);
        Some(match self.address - symbol.address {
            0 => name.into_owned(),
            inside => format!("{name}+{inside:#x}"),
        })
    }

    /// The calling function, and the line of the call, which returns to this address. If the compiler has inlined a
    /// function, the function that contains it is named.
    fn call(&self) -> (Option<String>, Option<String>) {
        let call = self.address.wrapping_sub(1);
        let function = self.file.symbol(call, true).map(|symbol| demangled(&symbol.name).into_owned());
        let source = self.file.lines.as_ref().and_then(|lines| {
            let mut frames = lines.find_frames(call).skip_all_loads().ok()?;
            let mut outermost = None;
            while let Ok(Some(frame)) = frames.next() {
                outermost = frame.location.and_then(|at| Some(format!("{}:{}", at.file?, at.line?)));
            }
            outermost
        });
        (function, source)
    }
}

/// A symbol's name as it is in the source. A name that is not mangled stays: as a mangled one, the variable `t` of a C
/// program would be `unsigned short`.
fn demangled(symbol: &str) -> Cow<'_, str> {
    let is_mangled = ["_Z", "_R"].iter().any(|start| symbol.starts_with(start));
    if is_mangled { demangle_auto(symbol.into(), None) } else { symbol.into() }
}

fn hexadecimal(number: u64) -> String {
    format!("{number:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    static A_VARIABLE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);

    /// The mappings of this program's code, as a counting process records them.
    fn modules() -> Vec<Mapped> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mapped = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-')?;
            (words[1].contains('x') && words.get(5)?.starts_with('/')).then(|| Mapped {
                process: 4,
                start: hex(start),
                end: hex(end),
                offset: Some(hex(words[2])),
                path: words[5].as_bytes().to_owned(),
            })
        };
        maps.lines().filter_map(mapped).collect()
    }

    fn totals(address: u64, site: u64, process: u32) -> ObjectTotals {
        ObjectTotals {
            process: Some(process),
            kind: Some(Kind::Mutex),
            address: Some(address),
            site: Some(Site { address: site, of_init: true }),
            acquired: 3,
            contended: 2,
            waited_ns: 1,
            longest_ns: 1,
        }
    }

    #[test]
    fn variables_and_calls_have_names() {
        let variable = std::ptr::from_ref(&A_VARIABLE) as u64;
        let code = modules as *const () as u64 + 1;
        let mut symbols = Symbols::new(modules());
        let object = symbols.object(&totals(variable + 4, code, 4));
        assert!(object.symbol.as_ref().is_some_and(|name| name.ends_with("A_VARIABLE+0x4")), "{object:?}");
        let place = object.place.unwrap();
        assert!(place.function.as_ref().is_some_and(|name| name.ends_with("tests::modules")), "{place:?}");
        // This program has no line tables: `tests/stats.rs` has one that has.
        assert_eq!(place.reason, Reason::Initialised);
        let me = std::env::current_exe().unwrap();
        assert_eq!((object.module.as_deref(), place.module.as_str()), (me.to_str(), me.to_str().unwrap()));
    }

    #[test]
    fn names_of_c_stay() {
        for name in ["t", "m", "rw", "queue_lock", "i", "_lock"] {
            assert_eq!(demangled(name), name);
        }
        assert_eq!(demangled("_ZN4pool4lockE"), "pool::lock");
        assert_eq!(demangled("_RNvC4pool4lock"), "pool::lock");
    }

    #[test]
    fn what_is_in_no_file_stays_a_number() {
        let on_the_heap = Box::new(1_u64);
        let address = std::ptr::from_ref(&*on_the_heap) as u64;
        let mut symbols = Symbols::new(modules());
        let object = symbols.object(&totals(address, address, 4));
        assert_eq!((object.symbol, object.place, object.address), (None, None, Some(format!("{address:#x}"))));
        // Nothing is known of another process.
        let code = modules as *const () as u64;
        assert_eq!(symbols.object(&totals(code, code, 5)).place, None);
        let gone = Mapped { process: 4, start: 0x1000, end: 0x2000, offset: Some(0), path: b"/no/such/file".to_vec() };
        assert_eq!(Symbols::new(vec![gone]).object(&totals(0x1010, 0x1010, 4)).place, None);
    }

    #[test]
    fn a_variable_that_several_processes_have_is_one() {
        let variable = std::ptr::from_ref(&A_VARIABLE) as u64;
        let of_other = modules().into_iter().map(|mapped| Mapped { process: 5, ..mapped });
        let mut symbols = Symbols::new(modules().into_iter().chain(of_other).collect());
        let counted = [totals(variable, 0, 4), totals(8, 0, 4), totals(variable, 0, 5), totals(8, 0, 5)];
        let named = symbols.name(&counted);
        assert_eq!(named.len(), 3, "{named:?}");
        assert_eq!((named[0].acquisitions, named[0].waited_ns, named[0].process), (6, 2, None));
    }
}
