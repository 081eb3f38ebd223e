//! The contestants: glibc's mutex, flashlock's locks, and, with the map, locks that a program must be written for.

use std::path::PathBuf;

use flashlock_locks::catalogue::{DEFAULT, PRINCIPAL, STANDALONE};
use flashlock_measure::map::{RCL_ADAPTIVE, RCL_ORDINARY};
use flashlock_native::settings::{self, split_list};
use flashlock_rivals::{RIVALS, Rival};

use crate::failure::Failure;
use crate::lock_choice::{LockChoice, rw_named};
use crate::suggest::did_you_mean;

/// The name of glibc's own mutex.
pub(super) const GLIBC: &str = settings::GLIBC;
/// The name that means no rival.
const NONE: &str = "none";
/// The principal locks that are compared with the map. Rivals take part there as well, and more than a dozen lines
/// would make the picture unreadable.
const OF_MAP: [&str; 5] = ["flash", "shfl", "tas", "mcs", "cna"];

/// One of the compared locks.
#[derive(Clone, Debug)]
pub(super) enum Contestant {
    Glibc,
    Lock(LockChoice),
    /// A rival, with its library if it needs one.
    Rival(&'static Rival, Option<PathBuf>),
    /// One of flashlock's locks that a program must be written for.
    Closure(&'static str),
}

impl Contestant {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Glibc => GLIBC,
            Self::Lock(lock) => &lock.text,
            Self::Rival(rival, _) => rival.name,
            Self::Closure(name) => name,
        }
    }
}

/// The requested rivals.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivals {
    pub(super) wanted: Vec<&'static Rival>,
    /// Whether the user named them: then none may be left out.
    pub(super) are_named: bool,
}

/// The requested locks, each once. By default, the principal locks, with the default lock first.
pub(super) fn chosen_locks(lists: &[String], is_map: bool) -> Result<Vec<LockChoice>, Failure> {
    let mut names: Vec<String> = lists.iter().flat_map(|list| split_list(list)).filter(|name| name != GLIBC).collect();
    if lists.is_empty() && is_map {
        names = OF_MAP.map(str::to_owned).to_vec();
    } else if lists.is_empty() {
        names = PRINCIPAL.iter().map(|lock| lock.info().name.to_owned()).collect();
        names.sort_by_key(|name| name != DEFAULT.info().name);
    }
    let mut locks: Vec<LockChoice> = Vec::new();
    for name in &names {
        if let Some(rw) = rw_named(name) {
            return Err(Failure::usage(format_args!(
                "'{rw}' is a readers-writer lock, and --locks takes mutexes; use it with: flashlock compare --rw {rw}"
            )));
        }
        let lock = LockChoice::parse(name, "--locks")?;
        if locks.iter().all(|other| other.text != lock.text) {
            locks.push(lock);
        }
    }
    if locks.is_empty() {
        return Err(Failure::usage(
            "--locks names only glibc, with which all locks are compared anyway; name another one",
        ));
    }
    Ok(locks)
}

/// The locks that run closures.
pub(super) fn closures() -> impl Iterator<Item = &'static str> {
    let standalone = STANDALONE.iter().filter(|lock| lock.interface != "mutex").map(|lock| lock.name);
    standalone.chain([RCL_ORDINARY, RCL_ADAPTIVE])
}

/// The closure locks that `--closures` names.
pub(super) fn chosen_closures(names: &[String]) -> Result<Vec<Contestant>, Failure> {
    let named = |name: &String| {
        let found = closures().find(|known| *known == name.as_str());
        found.map(Contestant::Closure).ok_or_else(|| {
            let what = did_you_mean(name, closures())
                .unwrap_or_else(|| format!("must be one of {}", closures().collect::<Vec<_>>().join(", ")));
            Failure::usage(format_args!("--closures '{name}': {what}"))
        })
    };
    let mut chosen: Vec<Contestant> = names.iter().map(named).collect::<Result<_, _>>()?;
    let mut seen = Vec::new();
    chosen.retain(|lock| {
        let is_new = !seen.contains(&lock.name().to_owned());
        seen.push(lock.name().to_owned());
        is_new
    });
    Ok(chosen)
}

/// The rivals that `--rivals` names; all rivals without it.
pub(super) fn chosen_rivals(names: &[String]) -> Result<Rivals, Failure> {
    if names.is_empty() {
        return Ok(Rivals { wanted: RIVALS.iter().collect(), are_named: false });
    }
    let named = |name: &String| {
        Rival::named(name).ok_or_else(|| {
            let known = || RIVALS.iter().map(|rival| rival.name);
            let what = did_you_mean(name, known().chain([NONE]))
                .or_else(|| alike(name))
                .unwrap_or_else(|| format!("must be one of {}, or {NONE}", known().collect::<Vec<_>>().join(", ")));
            Failure::usage(format_args!("--rivals '{name}': {what}"))
        })
    };
    let mut wanted = names.iter().filter(|name| *name != NONE).map(named).collect::<Result<Vec<_>, _>>()?;
    wanted.sort_by_key(|rival| RIVALS.iter().position(|other| other.name == rival.name));
    wanted.dedup_by_key(|rival| rival.name);
    Ok(Rivals { wanted, are_named: true })
}

/// The rivals with the same letters, such as `parking_lot-0.13` for `parkinglot`: `did you mean 'NAME' or 'NAME'?`
fn alike(name: &str) -> Option<String> {
    let letters = |name: &str| name.chars().filter(|c| c.is_alphabetic()).collect::<String>().to_lowercase();
    let same = RIVALS.iter().filter(|rival| letters(rival.name) == letters(name));
    let same: Vec<String> = same.map(|rival| format!("'{}'", rival.name)).collect();
    (!same.is_empty()).then(|| format!("did you mean {}?", same.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_the_principal_locks_are_compared_the_default_first() {
        let names =
            |is_map| chosen_locks(&[], is_map).map(|all| all.into_iter().map(|lock| lock.text).collect::<Vec<_>>());
        let (of_program, of_map) = (names(false).unwrap(), names(true).unwrap());
        assert_eq!((of_program.len(), of_program[0].as_str()), (PRINCIPAL.len(), DEFAULT.info().name));
        assert_eq!(of_map[0], DEFAULT.info().name);
        assert!(of_map.iter().all(|name| of_program.contains(name)), "{of_map:?}");
    }

    #[test]
    fn a_list_keeps_its_order_and_glibc_is_always_there() {
        let texts = |list: &str| {
            let locks = chosen_locks(&[list.to_owned()], false);
            locks.map(|locks| locks.into_iter().map(|lock| lock.text).collect::<Vec<_>>())
        };
        assert_eq!(texts("tas,glibc,shfl:bound=5,ahead=0,tas").unwrap(), ["tas", "shfl:bound=5,ahead=0"]);
        assert!(texts("glibc").unwrap_err().to_string().contains("name another"));
        assert!(texts("mcs,cst-rw").unwrap_err().to_string().ends_with("use it with: flashlock compare --rw cst-rw"));
        assert!(texts("tas,mcz").unwrap_err().to_string().contains("unknown lock 'mcz'; did you mean 'mcs'?"));
    }

    #[test]
    fn closure_locks_are_named() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen_closures(&names).map(|all| all.iter().map(|lock| lock.name().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["rcl", "cc-synch", "rcl"]).unwrap(), ["rcl", "cc-synch"]);
        assert!(of(&[]).unwrap().is_empty());
        assert!(of(&["rcll"]).unwrap_err().to_string().contains("did you mean 'rcl'?"));
        assert!(of(&["null"]).unwrap_err().to_string().contains("must be one of flat-combining, cc-synch, rcl"));
    }

    #[test]
    fn rivals_are_named_or_none_or_all() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen_rivals(&names).map(|rivals| rivals.wanted.iter().map(|rival| rival.name).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap().len(), RIVALS.len());
        assert_eq!(of(&["tbb", "std", "tbb"]).unwrap(), ["std", "tbb"]);
        assert!(of(&["none"]).unwrap().is_empty());
        let both = "did you mean 'parking_lot-0.12' or 'parking_lot-0.13'?";
        assert!(of(&["parkinglot"]).unwrap_err().to_string().contains(both));
        assert!(of(&["tbbb"]).unwrap_err().to_string().contains("did you mean 'tbb'?"));
        assert!(of(&["clh"]).unwrap_err().to_string().contains("must be one of std, parking_lot-0.12"));
    }
}
