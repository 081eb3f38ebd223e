//! What flashlock can do for a program: which locks the program and its libraries use from the C library.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use flashlock_report::words::listed;

use crate::elf::{self, Elf, Image};
use crate::inspect::{Finding, Inspection, Program};
use crate::search::Libraries;

/// A kind of lock that programs use from the C library.
struct Family {
    name: &'static str,
    /// Its relevant operations: those that acquire or wait, and their opposites.
    operations: &'static [&'static str],
}

/// The first operation of each family represents it: flashlock serves the family if its library exports that operation.
const FAMILIES: &[Family] = &[
    Family {
        name: "mutexes",
        operations: &[
            "pthread_mutex_lock",
            "pthread_mutex_trylock",
            "pthread_mutex_timedlock",
            "pthread_mutex_clocklock",
            "__pthread_mutex_lock",
            "__pthread_mutex_trylock",
        ],
    },
    Family {
        name: "condition variables",
        operations: &["pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait"],
    },
    Family { name: "C11 mutexes", operations: &["mtx_lock", "mtx_trylock", "mtx_timedlock"] },
    Family { name: "C11 condition variables", operations: &["cnd_wait", "cnd_timedwait"] },
    Family {
        name: "readers-writer locks",
        operations: &["pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_rwlock_tryrdlock"],
    },
    Family { name: "spinlocks", operations: &["pthread_spin_lock", "pthread_spin_trylock"] },
    Family { name: "semaphores", operations: &["sem_wait", "sem_trywait", "sem_timedwait", "sem_clockwait"] },
    Family { name: "barriers", operations: &["pthread_barrier_wait"] },
];

/// The subject of the sentence that draws the conclusion from the other findings.
const VERDICT: &str = "in short";
/// The maximum number of libraries that are examined.
const MOST_LIBRARIES: usize = 300;

/// A program or library with its name.
struct Part {
    name: String,
    elf: Box<Elf>,
}

/// Examines a program. The conclusion comes first, then the findings.
pub(super) fn examine(program: Program, library: Option<&Path>) -> Vec<Finding> {
    if let Some(why) = program.out_of_reach() {
        let advice = match program.inspection.cuts_off() {
            true => "nor does flashlock reach the programs that it starts; see below",
            false => {
                "flashlock still reaches the programs that it starts, unless they have the same problem; see below"
            }
        };
        // No library of it has other locks either.
        return std::iter::once(Finding::problem(VERDICT, why, advice)).chain(program.inspection.findings).collect();
    }
    let Inspection { mut findings, program, .. } = program.inspection;
    let mut verdict = None;
    if let Some((path, elf)) = program {
        findings.extend(other_glibc(&elf));
        let (parts, missing) = closure(path, elf);
        if !missing.is_empty() {
            let text = format!("not found on the dynamic linker's path: {}", missing.join(", "));
            let advice = "if the program starts, it finds them elsewhere, and they were not examined";
            findings.push(Finding::warn("libraries", text, advice));
        }
        findings.push(Finding::ok("libraries", format!("{} examined besides the C library", parts.len() - 1)));
        let served = served(library);
        verdict = Some(in_short(&parts, &served));
        findings.extend(locks(&parts, &served));
        findings.extend(watched(&parts));
        findings.extend(shared(&parts));
        findings.extend(later(&parts));
    }
    verdict.into_iter().chain(findings).collect()
}

/// What flashlock can do for a program that it reaches, in a sentence.
fn in_short(parts: &[Part], served: &HashSet<String>) -> Finding {
    let used = |family: &&Family| parts.iter().any(|part| uses(part, family));
    let replaced = FAMILIES.iter().filter(used).filter(|family| served.contains(family.operations[0]));
    let names: Vec<&str> = replaced.map(|family| family.name).collect();
    if names.is_empty() {
        let advice = "flashlock changes nothing for it; if it starts other programs, look at those";
        return Finding::warn(VERDICT, no_locks(parts), advice);
    }
    Finding::ok(VERDICT, format!("flashlock replaces its {}", listed(&names)))
}

/// Whether a program or library uses such locks from the C library.
fn uses(part: &Part, family: &Family) -> bool {
    part.elf.imports.iter().any(|name| family.operations.contains(&name.as_str()))
}

/// Warns of a program with its own C library, like those of Nix.
fn other_glibc(elf: &Elf) -> Option<Finding> {
    let Ok(Image::Elf(me)) = elf::read(&std::env::current_exe().ok()?) else { return None };
    let real = |elf: &Elf| Path::new(elf.interpreter.as_deref()?).canonicalize().ok();
    (real(elf)? != real(&me)?).then(|| {
        let text =
            "the program uses another glibc than this command; flashlock's library checks it when the program starts";
        Finding::warn(
            "glibc",
            text,
            "try: flashlock run --stats -- PROGRAM. If the library reports an unknown glibc or counts nothing, it is \
             not used",
        )
    })
}

/// The functions that flashlock's library exports.
fn served(library: Option<&Path>) -> HashSet<String> {
    match library.map(elf::read) {
        Some(Ok(Image::Elf(elf))) => elf.exports.into_iter().collect(),
        _ => HashSet::new(),
    }
}

/// The program and all libraries that it needs, except the C library; and the names of those that were not found.
fn closure(path: PathBuf, elf: Box<Elf>) -> (Vec<Part>, Vec<String>) {
    let libraries = Libraries::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut waiting = VecDeque::from([(path, elf)]);
    let (mut parts, mut missing) = (Vec::new(), Vec::new());
    while let Some((path, elf)) = waiting.pop_front() {
        for name in &elf.needed {
            if is_c_library(name) || seen.len() >= MOST_LIBRARIES || !seen.insert(name.clone()) {
                continue;
            }
            let candidates = libraries.candidates(name, &elf, &path);
            let found = candidates.into_iter().find_map(|file| match elf::read(&file) {
                Ok(Image::Elf(elf)) => Some((file, elf)),
                _ => None,
            });
            match found {
                Some(found) => waiting.push_back(found),
                None => missing.push(name.clone()),
            }
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        parts.push(Part { name, elf });
    }
    (parts, missing)
}

/// glibc's own parts, whose internal locks cannot be replaced.
fn is_c_library(name: &str) -> bool {
    ["libc.so", "libpthread.so", "libdl.so", "libm.so", "librt.so", "ld-linux", "libanl.so", "libutil.so"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn locks(parts: &[Part], served: &HashSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for family in FAMILIES {
        let users = parts.iter().filter(|part| uses(part, family));
        let users: Vec<&str> = users.map(|part| part.name.as_str()).collect();
        if users.is_empty() {
            continue;
        }
        let who = shorten(&users);
        if served.contains(family.operations[0]) {
            findings.push(Finding::ok(family.name, format!("replaced, in {who}")));
        } else {
            let text = format!("stay glibc's, in {who}");
            findings.push(Finding::warn(family.name, text, "flashlock does not replace these; you need do nothing"));
        }
    }
    findings
}

/// Why a program may have no pthread locks.
fn no_locks(parts: &[Part]) -> String {
    let what = "neither the program nor a library that it needs uses a lock that flashlock replaces";
    let raw = parts.iter().any(|part| part.elf.imports.iter().any(|name| name == "syscall"));
    if raw {
        format!("{what} (it makes system calls itself, perhaps for futex locks of its own, as Rust programs do)")
    } else {
        what.into()
    }
}

/// Warns of ThreadSanitizer's library. It intercepts locks in the same way, but is called after flashlock: that is,
/// never.
fn watched(parts: &[Part]) -> Option<Finding> {
    let sanitizer = parts.iter().flat_map(|part| &part.elf.needed).find(|name| name.starts_with("libtsan.so"))?;
    Some(Finding::warn(
        "sanitizer",
        format!("{sanitizer} does not see replaced locks, so it reports false races"),
        "look for races without flashlock",
    ))
}

/// Functions by which programs come to share memory. (Forked processes may share mappings, too: `system` describes what
/// holds for every program.)
const SHARERS: &[&str] = &["shm_open", "shmat"];

/// Warns that mutexes of the default kind may be in memory that processes share.
fn shared(parts: &[Part]) -> Option<Finding> {
    let imports = |part: &Part, wanted: &[&str]| part.elf.imports.iter().any(|name| wanted.contains(&name.as_str()));
    let shares = |part: &&Part| imports(part, SHARERS) && imports(part, FAMILIES[0].operations);
    let sharers: Vec<&str> = parts.iter().filter(shares).map(|part| part.name.as_str()).collect();
    if sharers.is_empty() {
        return None;
    }
    let who = shorten(&sharers);
    Some(if parts.iter().any(|part| imports(part, &["pthread_mutexattr_setpshared"])) {
        let text = format!("used by {who}; PTHREAD_PROCESS_SHARED mutexes in it stay glibc's");
        Finding::ok(super::SHARED_MEMORY, text)
    } else {
        let text = format!(
            "used by {who}, without PTHREAD_PROCESS_SHARED: if there are mutexes in it, they work only as long as \
             processes do not contend for them"
        );
        Finding::warn(
            super::SHARED_MEMORY,
            text,
            "initialise such mutexes with PTHREAD_PROCESS_SHARED, as POSIX requires",
        )
    })
}

/// Warns of libraries that are loaded later and cannot be examined.
fn later(parts: &[Part]) -> Option<Finding> {
    let loads = |part: &&Part| part.elf.imports.iter().any(|name| name == "dlopen" || name == "dlmopen");
    let loaders: Vec<&str> = parts.iter().filter(loads).map(|part| part.name.as_str()).collect();
    let text = format!(
        "{} may load more libraries at run time, which were not examined; their locks are replaced, too, except \
         with RTLD_DEEPBIND",
        shorten(&loaders)
    );
    (!loaders.is_empty()).then(|| Finding::ok("plug-ins", text))
}

/// The first few names, and the number of the others.
fn shorten(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Level;

    fn part(imports: &[&str]) -> Part {
        let imports = imports.iter().map(|&name| name.to_owned()).collect();
        Part { name: "prog".into(), elf: Box::new(Elf { imports, ..Elf::default() }) }
    }

    #[test]
    fn what_the_library_exports_is_replaced() {
        let served = HashSet::from(["pthread_mutex_lock".to_owned()]);
        let findings = locks(&[part(&["pthread_mutex_trylock", "sem_wait", "printf"])], &served);
        let shown: Vec<_> = findings.iter().map(|finding| (finding.subject.as_str(), finding.level)).collect();
        assert_eq!(shown, [("mutexes", Level::Ok), ("semaphores", Level::Warn)]);
        let used = part(&["pthread_mutex_trylock", "mtx_lock", "sem_wait"]);
        assert_eq!(in_short(&[used], &served).text, "flashlock replaces its mutexes");
    }

    #[test]
    fn a_program_without_locks_is_told() {
        let finding = in_short(&[part(&["syscall"])], &HashSet::new());
        assert!(finding.level == Level::Warn && finding.text.contains("futex"), "{finding:?}");
    }

    #[test]
    fn another_c_library_is_noticed() {
        let with = |linker: &str| Elf { interpreter: Some(linker.to_owned()), ..Elf::default() };
        assert!(other_glibc(&with("/bin/sh")).is_some());
        let Ok(Image::Elf(me)) = elf::read(&std::env::current_exe().unwrap()) else { panic!("not ELF") };
        assert!(other_glibc(&me).is_none());
    }

    #[test]
    fn a_sanitizer_that_would_be_deaf_is_noticed() {
        let with =
            |needed: &str| Part { elf: Box::new(Elf { needed: vec![needed.into()], ..Elf::default() }), ..part(&[]) };
        assert_eq!(watched(&[part(&[]), with("libtsan.so.2")]).map(|finding| finding.level), Some(Level::Warn));
        assert!(watched(&[with("libasan.so.8")]).is_none());
    }

    #[test]
    fn mutexes_in_shared_memory_are_mentioned() {
        let level = |imports: &[&str]| shared(&[part(imports)]).map(|finding| finding.level);
        assert_eq!(level(&["pthread_mutex_lock"]), None);
        assert_eq!(level(&["shm_open"]), None);
        assert_eq!(level(&["shm_open", "pthread_mutex_lock"]), Some(Level::Warn));
        assert_eq!(level(&["shmat", "pthread_mutex_lock", "pthread_mutexattr_setpshared"]), Some(Level::Ok));
    }

    #[test]
    fn plug_ins_are_mentioned() {
        assert!(later(&[part(&["dlopen"])]).is_some() && later(&[part(&[])]).is_none());
    }

    #[test]
    fn this_program_is_examined_with_its_libraries() {
        let me = || crate::inspect::program(std::env::current_exe().unwrap().as_os_str()).unwrap();
        let findings = examine(me(), None);
        assert_eq!(findings[0].subject, VERDICT);
        assert!(findings.iter().any(|finding| finding.subject == "libraries"), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.text.contains("stay glibc's")), "{findings:?}");
    }

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(shorten(&["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(shorten(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
