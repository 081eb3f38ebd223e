//! Checks the system and the environment in which programs are started.

use std::ffi::OsStr;
use std::path::Path;

use flashlock_native::stats::{self, Block};
use flashlock_native::topology::Topology;
use flashlock_native::{numa, settings, umwait};
use flashlock_report::machine;

use crate::elf::{self, Image};
use crate::inspect::Finding;
use crate::lock_choice::{RwUnder, Under, imagined_topology};
use crate::{preload, screen, topology};

/// All findings except those about locks.
pub(super) fn examine(library: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![kernel(), glibc(), nodes()];
    if let Some(library) = library {
        findings.push(Finding::ok("preload", library.display().to_string()));
    }
    findings.push(counters());
    findings.push(rest());
    findings.push(shared_memory());
    findings.extend(secure_mode());
    findings.extend(preloads(std::env::var_os(preload::LD_PRELOAD).as_deref(), library));
    findings.extend(variables());
    findings
}

fn kernel() -> Finding {
    match Topology::read().kernel {
        Some(release) => Finding::ok("kernel", format!("Linux {release}")),
        None => Finding::warn("kernel", "unknown, because /proc cannot be read", "mount /proc if something else fails"),
    }
}

fn glibc() -> Finding {
    match machine::glibc() {
        Some(version) => Finding::ok("glibc", version),
        None => Finding::warn("glibc", "unknown version", "see below whether the locks work"),
    }
}

fn nodes() -> Finding {
    match imagined_topology() {
        Err(failure) => Finding::problem("NUMA", failure.to_string(), "'run' refuses to start with this value"),
        Ok(Some(topology)) => Finding::warn(
            "NUMA",
            format!("FLASHLOCK_TOPOLOGY makes the locks assume {} NUMA nodes", topology[0]),
            "unset it, except for tests",
        ),
        Ok(None) => {
            numa::prepare(None);
            Finding::ok("NUMA", topology::seen_nodes())
        }
    }
}

fn counters() -> Finding {
    match Block::create() {
        Ok(_) => Finding::ok("statistics", "shared counters can be created"),
        Err(error) => Finding::warn(
            "statistics",
            format!("shared counters cannot be created: {}", screen::reason(&error)),
            "allow memfd_create, or run without --stats",
        ),
    }
}

/// Whether waiters can rest.
fn rest() -> Finding {
    let text = match umwait::is_there() {
        true => "this CPU has it: with wait=umwait, waiters rest instead of polling",
        false => "this CPU lacks it (WAITPKG), so wait=umwait is refused",
    };
    Finding::ok(settings::UMWAIT, text)
}

/// Explains mutexes in memory that several processes map. It holds for every lock and every program.
fn shared_memory() -> Finding {
    Finding::ok(
        super::SHARED_MEMORY,
        "PTHREAD_PROCESS_SHARED mutexes stay glibc's. A mutex of the default kind in memory that several processes \
         share works only without contention between them; with it, the mutex may fail to exclude, or hang",
    )
}

/// Warns if privileges of this process keep the dynamic linker from preloading.
fn secure_mode() -> Option<Finding> {
    // SAFETY: reads the process's own auxiliary vector.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    secure.then(|| {
        Finding::problem(
            "privileges",
            "this command has privileges from its file, so the dynamic linker ignores LD_PRELOAD",
            "install flashlock without setuid, setgid and file capabilities",
        )
    })
}

fn preloads(value: Option<&OsStr>, library: Option<&Path>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in preload::entries(value) {
        let shown = entry.display();
        if preload::is_ours(entry) {
            if library.is_none_or(|library| library.as_os_str() != entry) {
                let text = format!("{shown} is another flashlock library than this command's");
                findings.push(Finding::warn("LD_PRELOAD", text, "unset LD_PRELOAD; 'run' puts its own library first"));
            } else {
                findings
                    .push(Finding::ok("LD_PRELOAD", "it contains flashlock already, so programs started here use it"));
            }
        } else if replaces_locks(Path::new(entry)) {
            let text = format!("{shown} replaces pthread_mutex_lock, too");
            findings.push(Finding::warn("LD_PRELOAD", text, "flashlock takes precedence; use only one of the two"));
        } else {
            findings.push(Finding::ok("LD_PRELOAD", format!("{shown} is kept, after flashlock's library")));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("LD_PRELOAD", "not set"));
    }
    findings
}

fn replaces_locks(library: &Path) -> bool {
    let Ok(Image::Elf(elf)) = elf::read(library) else { return false };
    elf.exports.iter().any(|name| name == "pthread_mutex_lock")
}

fn variables() -> Vec<Finding> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut findings = Vec::new();
    if set(settings::ENV).is_some() {
        findings.push(match Under::inherited() {
            Ok(lock) => {
                let text = lock.as_ref().map_or("", Under::text);
                Finding::ok(settings::ENV, format!("{text}: the lock, unless --lock is given"))
            }
            Err(failure) => Finding::problem(settings::ENV, failure.to_string(), "correct or unset it"),
        });
    }
    if set(settings::ENV_RW).is_some() {
        findings.push(match RwUnder::inherited() {
            Ok(lock) => {
                let text = lock.as_ref().map_or("", RwUnder::text);
                Finding::ok(settings::ENV_RW, format!("{text}: the readers-writer lock, unless --rw is given"))
            }
            Err(failure) => Finding::problem(settings::ENV_RW, failure.to_string(), "correct or unset it"),
        });
    }
    if set(stats::ENV).is_some() {
        findings.push(Finding::ok(stats::ENV, "set, because this runs under flashlock run --stats"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Level;

    #[test]
    fn preloads_are_judged() {
        let ours = Path::new("/x/libflashlock_preload.so");
        let judge = |value: &str| preloads(Some(OsStr::new(value)), Some(ours))[0].clone();
        assert_eq!(preloads(None, None)[0].text, "not set");
        assert_eq!(judge("/x/libflashlock_preload.so").level, Level::Ok);
        assert_eq!(judge("/y/libflashlock_preload.so").level, Level::Warn);
        assert_eq!(judge("/y/libjemalloc.so").level, Level::Ok);
        let libc = flashlock_measure::pthread::provider("pthread_mutex_lock").unwrap();
        assert!(judge(&libc).text.contains("pthread_mutex_lock, too"));
    }

    #[test]
    fn this_system_can_be_examined() {
        let findings = examine(None);
        assert!(findings.iter().any(|finding| finding.subject == "kernel"));
        let shared = findings.iter().find(|finding| finding.subject == crate::doctor::SHARED_MEMORY);
        assert!(shared.is_some_and(|finding| finding.text.contains("only without contention")));
    }
}
