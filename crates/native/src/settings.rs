//! # Settings: what the user chose with `FLASHLOCK=name[:option=value,…]`
//!
//! This module parses the environment variables and keeps the resulting options. The catalogue's lists ([`LOCKS`],
//! [`OPTIONS`]) say which options a lock takes, with their ranges and defaults. Each lock also takes `wait`, which
//! selects one of its waiting policies, and `cond` and `sem` ([`ORDERS`]), which set the order in which waiters of
//! condition variables and semaphores are served.
//!
//! [`OPTIONS`]: flashlock_locks::catalogue::OPTIONS
//!
//! Parsing allocates nothing: it runs in the first lock call of a process, perhaps inside malloc.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_locks::catalogue::rw::{RW_DEFAULT, RW_LOCKS, RwId};
use flashlock_locks::catalogue::{DEFAULT, Facts, LOCKS, LockId, ORDERS, OptionId, OrderInfo, StandaloneId};
use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::order::Order;

use crate::umwait;

mod similar;

pub use similar::nearest;

/// The environment variable that selects the lock.
pub const ENV: &str = "FLASHLOCK";
/// The environment variable that selects the readers-writer lock.
pub const ENV_RW: &str = "FLASHLOCK_RW";
/// The value of [`ENV`] and [`ENV_RW`] that keeps the program's own locks.
pub const GLIBC: &str = "glibc";
/// The value of `wait=` that not every CPU supports.
pub const UMWAIT: &str = "umwait";
/// The environment variable that describes an imagined machine.
pub const ENV_TOPOLOGY: &str = "FLASHLOCK_TOPOLOGY";

/// A lock of a catalogue, and its settings.
#[derive(Clone, Copy, Debug)]
pub struct Choice<L = LockId> {
    /// The lock.
    pub lock: L,
    /// The index of its waiting policy in [`Facts::waits`].
    pub wait: usize,
    /// All other settings. They apply to the whole process.
    pub tunables: Tunables,
}

/// A readers-writer lock and its settings.
pub type RwChoice = Choice<RwId>;
/// A standalone lock and its settings: no program can be run under it.
pub type StandaloneChoice = Choice<StandaloneId>;

impl<L: Listed> Choice<L> {
    /// The choice when the user sets nothing, of a catalogue that has a default.
    pub const DEFAULT: Self =
        Self { lock: L::DEFAULT.expect("the catalogue has a default"), wait: 0, tunables: Tunables::DEFAULT };

    /// Checks whether this machine supports the choice. ([`parse`] does not, because a simulated machine may support
    /// it.)
    pub fn here<'a>(self) -> Result<Self, BadChoice<'a>> {
        let row: Row = self.lock.into();
        if row.facts.waits.get(self.wait) == Some(&UMWAIT) && !umwait::is_there() {
            return Err(BadChoice::Umwait(row));
        }
        Ok(self)
    }
}

/// A lock of a catalogue.
pub trait Listed: Copy + Into<Row> {
    /// What empty text means; `None` if it means nothing.
    const DEFAULT: Option<Self>;

    /// The lock with this name.
    fn named(name: &str) -> Result<Self, BadChoice<'_>>;
}

impl Listed for LockId {
    const DEFAULT: Option<Self> = Some(DEFAULT);

    fn named(name: &str) -> Result<Self, BadChoice<'_>> {
        let unusable = || StandaloneId::from_name(name).map_or(BadChoice::Lock(name), BadChoice::Standalone);
        Self::from_name(name).ok_or_else(unusable)
    }
}

impl Listed for RwId {
    const DEFAULT: Option<Self> = Some(RW_DEFAULT);

    fn named(name: &str) -> Result<Self, BadChoice<'_>> {
        Self::from_name(name).ok_or(BadChoice::RwLock(name))
    }
}

impl Listed for StandaloneId {
    const DEFAULT: Option<Self> = None;

    fn named(name: &str) -> Result<Self, BadChoice<'_>> {
        Self::from_name(name).ok_or(BadChoice::Lock(name))
    }
}

/// What is wrong with a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChoice<'a> {
    /// There is no such lock.
    Lock(&'a str),
    /// This is a standalone lock: no program can be run under it.
    Standalone(StandaloneId),
    /// There is no such readers-writer lock.
    RwLock(&'a str),
    /// This lock does not take this option.
    Option(Row, &'a str),
    /// The option does not accept this value.
    Value(OptionId, &'a str),
    /// This lock cannot wait that way.
    Wait(Row, &'a str),
    /// This lock has this waiting policy, but this CPU does not support it.
    Umwait(Row),
    /// The option with this name takes an order, and this value is not one.
    Order(&'static str, &'a str),
}

/// A row of a catalogue, and the orders that can be chosen with it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    facts: &'static Facts,
    orders: &'static [OrderInfo],
}

impl Row {
    /// The names of the options that it takes.
    pub fn option_names(self) -> impl Iterator<Item = &'static str> + Clone {
        let own = self.facts.options.iter().map(|option| option.info().name);
        ["wait"].into_iter().chain(own).chain(self.orders.iter().map(|order| order.name))
    }
}

/// Names are unique.
impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.facts.name == other.facts.name
    }
}

impl Eq for Row {}

impl From<LockId> for Row {
    fn from(lock: LockId) -> Self {
        Self { facts: &lock.info().facts, orders: ORDERS }
    }
}

impl From<StandaloneId> for Row {
    fn from(lock: StandaloneId) -> Self {
        Self { facts: &lock.info().facts, orders: &[] }
    }
}

impl From<RwId> for Row {
    fn from(lock: RwId) -> Self {
        Self { facts: &lock.info().facts, orders: &[] }
    }
}

impl BadChoice<'_> {
    /// Says what is wrong, which values are accepted, and which of them the user may have meant. `others` are the names
    /// that are accepted besides those of the catalogue. Calls `say` with one piece at a time; does not allocate.
    pub fn explain(&self, others: &[&str], say: &mut dyn FnMut(&str)) {
        match *self {
            Self::Lock(GLIBC) | Self::RwLock(GLIBC) if others.contains(&GLIBC) => say("glibc's locks have no options"),
            Self::Lock(name) if RwId::from_name(name).is_some() => {
                say_all(say, ["'", name, "' is a readers-writer lock; use it with ", ENV_RW, "=", name]);
            }
            Self::RwLock(name) if LockId::from_name(name).is_some() => {
                say_all(say, ["'", name, "' is a lock for mutexes; use it with ", ENV, "=", name]);
            }
            Self::Lock(name) => {
                say_all(say, ["unknown lock '", name, "'"]);
                say_known(say, name, "known locks", LOCKS.iter().map(|lock| lock.name).chain(others.iter().copied()));
            }
            Self::Standalone(lock) => {
                for part in
                    ["lock ", lock.info().name, " cannot replace the locks of a program: ", lock.info().why_standalone]
                {
                    say(part);
                }
            }
            Self::RwLock(name) => {
                say_all(say, ["unknown readers-writer lock '", name, "'"]);
                let known = RW_LOCKS.iter().map(|lock| lock.name).chain(others.iter().copied());
                say_known(say, name, "known locks", known);
            }
            Self::Option(lock, name) => {
                say_all(say, ["lock ", lock.facts.name, " has no option '", name, "'"]);
                say_known(say, name, "its options", lock.option_names());
            }
            Self::Value(option, value) => {
                let option = option.info();
                say_all(say, ["option ", option.name]);
                if option.words.is_empty() {
                    say_all(say, [" must be ", decimal(option.least, &mut [0; 10])]);
                    say_all(say, [" to ", decimal(option.most, &mut [0; 10])]);
                    say_all(say, [" (", option.unit, "), not '", value, "'"]);
                } else {
                    say_all(say, [" cannot be '", value, "'"]);
                    say_known(say, value, "choose one of", option.words.iter().copied());
                }
            }
            Self::Order(option, value) => {
                say_all(say, ["option ", option, " cannot be '", value, "'; choose ", Order::SYNTAX]);
            }
            Self::Wait(Row { facts: Facts { name, waits: [only], .. }, .. }, _) => {
                say_all(say, ["lock ", name, " has only wait=", only]);
            }
            Self::Wait(lock, value) => {
                say_all(say, ["lock ", lock.facts.name, " has no wait='", value, "'"]);
                say_known(say, value, "choose one of", lock.facts.waits.iter().copied());
            }
            Self::Umwait(lock) => {
                say_all(
                    say,
                    ["lock ", lock.facts.name, " cannot use wait=umwait: this CPU lacks the instruction (WAITPKG)"],
                );
                say("; use wait=stp, which polls instead");
            }
        }
    }
}

impl fmt::Display for BadChoice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.explain(&[], &mut |part| result = result.and_then(|()| f.write_str(part)));
        result
    }
}

impl core::error::Error for BadChoice<'_> {}

/// Parses `name[:option=value,…]`. Empty text means the catalogue's default. Options that the text does not name are
/// as in `tunables`.
pub fn parse<L: Listed>(text: &str, tunables: Tunables) -> Result<Choice<L>, BadChoice<'_>> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let lock = match L::DEFAULT {
        Some(default) if text.is_empty() => default,
        _ => L::named(name)?,
    };
    let mut choice = Choice { lock, wait: 0, tunables };
    choice.wait = parse_options(lock.into(), options, &mut choice.tunables)?;
    Ok(choice)
}

/// Parses the options of a lock. Returns the index of its waiting policy; numbers go into `tunables`.
fn parse_options<'a>(row: Row, options: &'a str, tunables: &mut Tunables) -> Result<usize, BadChoice<'a>> {
    let mut chosen = 0;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if key == "wait" {
            let known = row.facts.waits.iter().position(|&wait| wait == value);
            chosen = known.ok_or(BadChoice::Wait(row, value))?;
            continue;
        }
        if let Some(order) = row.orders.iter().find(|order| order.name == key) {
            (order.set)(tunables, Order::parse(value).ok_or(BadChoice::Order(order.name, value))?);
            continue;
        }
        let option = row.facts.option(key).ok_or(BadChoice::Option(row, key))?;
        (option.set)(tunables, option.parse(value).ok_or(BadChoice::Value(option.id, value))?);
    }
    Ok(chosen)
}

/// Splits a comma-separated list of locks: `shfl:bound=100,ahead=2,mcs` is two locks. A piece with an equals sign after
/// a comma is another option of the lock before it.
pub fn split_list(text: &str) -> Vec<String> {
    let mut locks: Vec<String> = Vec::new();
    for piece in text.split(',') {
        let is_option = piece.split_once('=').is_some_and(|(name, _)| !name.contains(':'));
        match locks.last_mut() {
            Some(last) if is_option && last.contains(':') => {
                last.push(',');
                last.push_str(piece);
            }
            _ => locks.push(piece.to_owned()),
        }
    }
    locks
}

/// Says each part in turn.
fn say_all<const N: usize>(say: &mut dyn FnMut(&str), parts: [&str; N]) {
    parts.into_iter().for_each(say);
}

/// Says which known word `word` resembles, if it resembles one, and then all of them.
fn say_known<'a>(say: &mut dyn FnMut(&str), word: &str, what: &str, known: impl Iterator<Item = &'a str> + Clone) {
    if let Some(meant) = nearest(word, known.clone()) {
        say_all(say, [" (did you mean '", meant, "'?)"]);
    }
    say_all(say, ["; ", what, ":"]);
    known.for_each(|word| say_all(say, [" ", word]));
}

/// A number in decimal, without allocating.
pub(crate) fn decimal(mut number: u32, room: &mut [u8; 10]) -> &str {
    let mut begin = room.len();
    loop {
        begin -= 1;
        room[begin] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            // Digits are valid UTF-8.
            return core::str::from_utf8(&room[begin..]).unwrap_or_default();
        }
    }
}

/// Parses `NODESxCORESxSMT`: three numbers, each from 1 to 4096.
pub fn parse_topology(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split('x').map(|part| part.parse().ok().filter(|number| (1..=4096).contains(number)));
    let topology = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(topology)
}

const UNSET: u32 = 0;
const SETTING: u32 = 1;
const SET: u32 = 2;

/// The user's tunables. Written once, by the thread that moves `STAGE` to `SETTING`; read only at `SET`.
struct Chosen(UnsafeCell<Tunables>);
// SAFETY: see `Chosen`.
unsafe impl Sync for Chosen {}

static CHOSEN: Chosen = Chosen(UnsafeCell::new(Tunables::DEFAULT));
static STAGE: AtomicU32 = AtomicU32::new(UNSET);

/// The user's tunables; the defaults until they are set.
#[inline]
pub fn tunables() -> &'static Tunables {
    if STAGE.load(Acquire) == SET {
        // SAFETY: never written after `SET`, which the load above acquired.
        unsafe { &*CHOSEN.0.get() }
    } else {
        &Tunables::DEFAULT
    }
}

/// Sets the tunables. Only the first call has an effect; returns whether this was the first.
pub fn set_tunables(tunables: Tunables) -> bool {
    let first = STAGE.compare_exchange(UNSET, SETTING, Relaxed, Relaxed).is_ok();
    if first {
        // SAFETY: only one caller moves the stage, and no thread reads before `SET`.
        unsafe { *CHOSEN.0.get() = tunables };
        STAGE.store(SET, Release);
    }
    first
}

#[cfg(test)]
mod tests;
