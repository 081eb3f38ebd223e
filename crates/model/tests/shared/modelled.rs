//! Which locks the models of this program run. No lock of the catalogue may be missing.
//!
//! The lists are made by the macros that make the tests, so what is in a list has its models.

use std::any::TypeId;

use flashlock_locks::{for_each_lock, for_each_rw_lock, for_each_standalone_lock};

/// The locks of some models, by type. For `rcl`, whose sections a server runs, it is how a client waits, as in the
/// catalogue.
pub(crate) type Modelled = &'static [fn() -> TypeId];

/// No model can show that it excludes: it does not.
const EXCLUDES_NOBODY: &str = "null";

/// A lock's name, and its types: one for each way of waiting.
type Row = (&'static str, &'static [fn() -> TypeId]);

macro_rules! rows {
    ($(($variant:ident, $name:literal, $($interface:ident,)? [$($wait:ident => $type:ty),+], $facts:tt))*) => {
        &[$(($name, &[$(TypeId::of::<$type>),+])),*]
    };
}

macro_rules! mutexes {
    ($($row:tt),* $(,)?) => { const MUTEXES: &[Row] = rows!($($row)*); };
}
for_each_lock!(mutexes);

macro_rules! rw_locks {
    ($($row:tt),* $(,)?) => { const RW_LOCKS: &[Row] = rows!($($row)*); };
}
for_each_rw_lock!(rw_locks);

macro_rules! standalone {
    ($($row:tt),* $(,)?) => { const STANDALONE: &[Row] = rows!($($row)*); };
}
for_each_standalone_lock!(standalone);

/// Panics with the names of the locks of the catalogue that are in none of the lists, under any way of waiting.
pub(crate) fn assert_complete(lists: &[Modelled]) {
    let modelled: Vec<TypeId> = lists.iter().copied().flatten().map(|of| of()).collect();
    let rows = [MUTEXES, RW_LOCKS, STANDALONE].into_iter().flatten();
    let runs = |types: &[fn() -> TypeId]| types.iter().any(|of| modelled.contains(&of()));
    let missing = rows.filter(|(name, types)| *name != EXCLUDES_NOBODY && !runs(types));
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "no model of this program runs {}", missing.join(", "));
}
