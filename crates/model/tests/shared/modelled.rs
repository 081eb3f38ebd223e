//! Which locks the models of this program run: every lock of the catalogue, with each of its ways of waiting.
//!
//! [`each!`] makes tests of each from the catalogue's rows, so that a new lock needs no more than its row. What it
//! leaves out must be in another list of models, or in [`NOT_MODELLED`]; otherwise [`assert_complete`] names it.

use std::any::TypeId;

use flashlock_locks::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};

/// The locks of some models, by type. For `rcl`, whose sections a server runs, it is how a client waits, as in the
/// catalogue.
pub(crate) type Modelled = Vec<TypeId>;

/// What no model runs: the lock, its way of waiting (`*`: any), and why.
const NOT_MODELLED: &[(&str, &str, &str)] = &[
    ("*", "umwait", "no model knows what a CPU at rest is: it would be `stp`"),
    ("null", "*", "it excludes nobody, so no model can show that it does"),
];

/// `each!(MODULE: MAKE, FILTER: ROWS)` makes, in the module `MODULE::Variant::wait` for each lock and way of waiting in
/// these rows of the catalogue, what `MAKE! { "name", wait, type }` says. `FILTER! { Variant { facts }, ITEMS }` says
/// which locks they are; for a standalone lock, its interface follows the variant. `MODULE::modelled` lists the types.
macro_rules! each {
    ($module:ident: $make:ident, $filter:path: $((
        $variant:ident, $name:literal, $($interface:ident,)? [$($wait:ident => $type:ty),+], $facts:tt
    )),* $(,)?) => {
        pub(crate) mod $module {
            $($filter! { $variant $($interface)? $facts,
                #[allow(non_snake_case)]
                mod $variant {
                    $($crate::modelled::unless_alike! { $wait,
                        mod $wait {
                            use super::super::super::*;

                            $make! { $name, $wait, $type }
                        }
                    })+
                }
            })*

            #[allow(dead_code, clippy::vec_init_then_push)] // Rows may be left out.
            pub(crate) fn modelled() -> $crate::modelled::Modelled {
                let mut types = Vec::new();
                $($filter! { $variant $($interface)? $facts,
                    $($crate::modelled::unless_alike! { $wait, types.push(std::any::TypeId::of::<$type>()); })+
                })*
                types
            }
        }
    };
}
pub(crate) use each;

/// What follows, unless no model can tell this way of waiting from another one.
macro_rules! unless_alike {
    (umwait, $($what:tt)*) => {};
    ($wait:ident, $($what:tt)*) => { $($what)* };
}
pub(crate) use unless_alike;

/// Every lock.
macro_rules! all {
    ($variant:ident $facts:tt, $($what:tt)*) => { $($what)* };
}
pub(crate) use all;

/// The standalone mutexes.
macro_rules! standalone_mutexes {
    (Null mutex $facts:tt, $($what:tt)*) => {};
    ($variant:ident mutex $facts:tt, $($what:tt)*) => { $($what)* };
    ($variant:ident $other:ident $facts:tt, $($what:tt)*) => {};
}
pub(crate) use standalone_mutexes;

/// The closure locks.
macro_rules! closures {
    ($variant:ident closure $facts:tt, $($what:tt)*) => { $($what)* };
    ($variant:ident $other:ident $facts:tt, $($what:tt)*) => {};
}
pub(crate) use closures;

/// The locks whose sections a server runs.
macro_rules! served {
    ($variant:ident served $facts:tt, $($what:tt)*) => { $($what)* };
    ($variant:ident $other:ident $facts:tt, $($what:tt)*) => {};
}
pub(crate) use served;

/// A lock's name, and its types, each with the way of waiting.
pub(crate) type Row = (&'static str, &'static [(&'static str, fn() -> TypeId)]);

macro_rules! rows {
    ($(($variant:ident, $name:literal, $($interface:ident,)? [$($wait:ident => $type:ty),+], $facts:tt))*) => {
        &[$(($name, &[$((stringify!($wait), TypeId::of::<$type>)),+])),*]
    };
}

macro_rules! mutexes {
    ($($row:tt),* $(,)?) => { pub(crate) const MUTEXES: &[Row] = rows!($($row)*); };
}
for_each_lock!(mutexes);

macro_rules! rw_locks {
    ($($row:tt),* $(,)?) => { pub(crate) const RW_LOCKS: &[Row] = rows!($($row)*); };
}
for_each_rw_lock!(rw_locks);

macro_rules! standalone {
    ($($row:tt),* $(,)?) => { pub(crate) const STANDALONE: &[Row] = rows!($($row)*); };
}
for_each_standalone_lock!(standalone);

/// Panics with the names of the locks of these kinds that are in none of the lists, each with its way of waiting.
pub(crate) fn assert_complete(kinds: &[&[Row]], lists: &[Modelled]) {
    let faults = faults(kinds, &lists.concat());
    assert!(faults.is_empty(), "{}", faults.join("; "));
}

/// What is in no list, and no exception; and what is an exception, and in a list all the same.
fn faults(kinds: &[&[Row]], modelled: &[TypeId]) -> Vec<String> {
    let why_not = |name: &str, wait: &str| {
        let is = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        NOT_MODELLED.iter().find(|(lock, way, _)| is(lock, name) && is(way, wait)).map(|(_, _, why)| why)
    };
    let mut faults = Vec::new();
    for (name, waits) in kinds.iter().copied().flatten() {
        for (wait, of) in *waits {
            match (modelled.contains(&of()), why_not(name, wait)) {
                (false, None) => faults.push(format!("no model of this program runs {name}:wait={wait}")),
                (true, Some(why)) => faults.push(format!("{name}:wait={wait} has a model, although {why}")),
                _ => {}
            }
        }
    }
    faults
}

#[test]
fn what_no_model_runs_is_named() {
    let (name, waits) = MUTEXES[0];
    let (wait, first) = waits[0];
    let types = |keep: &dyn Fn(&str, TypeId) -> bool| -> Vec<TypeId> {
        let all = MUTEXES.iter().flat_map(|(_, waits)| *waits);
        all.filter(|(wait, of)| keep(wait, of())).map(|(_, of)| of()).collect()
    };
    let modelled = types(&|wait, _| wait != "umwait");
    assert_eq!(faults(&[MUTEXES], &modelled), Vec::<String>::new());
    let modelled = types(&|wait, of| wait != "umwait" && of != first());
    assert_eq!(faults(&[MUTEXES], &modelled), [format!("no model of this program runs {name}:wait={wait}")]);
    assert!(faults(&[MUTEXES], &types(&|_, _| true))[0].contains(":wait=umwait has a model, although"));
}
