//! # What the user chose: `FLASHLOCK=name[:option=value,…]`
//!
//! Which options a lock takes, their ranges and defaults say the catalogue's lists ([`LOCKS`], [`OPTIONS`]); beside those, each
//! lock takes `wait`, one of its ways of waiting, and `cond` and `sem` ([`ORDERS`]), in which order waiters of other objects
//! are called.
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

use flashlock_locks::catalogue::{ApartId, DEFAULT, Facts, LOCKS, LockId, ORDERS, OptionId, OrderInfo};
use flashlock_locks::machine::Tunables;
use flashlock_locks::order::Order;
use flashlock_locks::rw::catalogue::{RW_DEFAULT, RW_LOCKS, RwId};

use crate::umwait;

/// The environment variable that names the lock.
pub const ENV: &str = "FLASHLOCK";
/// The environment variable that names the readers-writer lock.
pub const ENV_RW: &str = "FLASHLOCK_RW";
/// The value of `wait=` that not every CPU can do.
pub const UMWAIT: &str = "umwait";
/// The environment variable that describes a machine to imagine.
pub const ENV_TOPOLOGY: &str = "FLASHLOCK_TOPOLOGY";

/// A lock and how it is to behave.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The lock.
    pub lock: LockId,
    /// The index of its waiting policy in `LockInfo::waits`.
    pub wait: usize,
    /// Everything else.
    pub tunables: Tunables,
}

impl Choice {
    /// What holds when the user says nothing.
    pub const DEFAULT: Self = Self { lock: DEFAULT, wait: 0, tunables: Tunables::DEFAULT };
}

/// A readers-writer lock and how it is to behave.
#[derive(Clone, Copy, Debug)]
pub struct RwChoice {
    /// The lock.
    pub lock: RwId,
    /// The index of its waiting policy in `RwInfo::waits`.
    pub wait: usize,
}

impl RwChoice {
    /// What holds when the user says nothing.
    pub const DEFAULT: Self = Self { lock: RW_DEFAULT, wait: 0 };
}

/// A lock that no program can be run under.
#[derive(Clone, Copy, Debug)]
pub struct ApartChoice {
    /// The lock.
    pub lock: ApartId,
    /// The index of its waiting policy in `ApartInfo::waits`.
    pub wait: usize,
}

/// What is wrong with a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChoice<'a> {
    /// There is no such lock.
    Lock(&'a str),
    /// This lock is for no program.
    Apart(ApartId),
    /// There is no such readers-writer lock.
    RwLock(&'a str),
    /// This lock takes no such option.
    Option(Row, &'a str),
    /// The option does not take this value.
    Value(OptionId, &'a str),
    /// This lock cannot wait that way.
    Wait(Row, &'a str),
    /// This lock could wait so on another CPU.
    Umwait(Row),
    /// The option of this name takes an order, and this is none.
    Order(&'static str, &'a str),
}

/// A row of a catalogue, and the orders that can be chosen with it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    facts: &'static Facts,
    orders: &'static [OrderInfo],
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

impl From<ApartId> for Row {
    fn from(lock: ApartId) -> Self {
        Self { facts: &lock.info().facts, orders: &[] }
    }
}

impl From<RwId> for Row {
    fn from(lock: RwId) -> Self {
        Self { facts: &lock.info().facts, orders: &[] }
    }
}

impl BadChoice<'_> {
    /// Says what is wrong and what would be right, in pieces, without allocating.
    pub fn explain(&self, say: &mut dyn FnMut(&str)) {
        match *self {
            Self::Lock(name) => {
                say_all(say, ["unknown lock '", name, "'; known are:"]);
                say_each(say, LOCKS.iter().map(|lock| lock.name));
            }
            Self::Apart(lock) => {
                for part in ["no program can be run under lock ", lock.info().name, ": ", lock.info().apart] {
                    say(part);
                }
            }
            Self::RwLock(name) => {
                say_all(say, ["unknown readers-writer lock '", name, "'; known are:"]);
                say_each(say, RW_LOCKS.iter().map(|lock| lock.name));
            }
            Self::Option(lock, name) => {
                say_all(say, ["lock ", lock.facts.name, " takes no option '", name, "'; it takes: wait"]);
                let own = lock.facts.options.iter().map(|option| option.info().name);
                say_each(say, own.chain(lock.orders.iter().map(|order| order.name)));
            }
            Self::Value(option, value) => {
                let option = option.info();
                say_all(say, ["option ", option.name, " does not take '", value, "'"]);
                if option.words.is_empty() {
                    say_all(say, [", but ", option.unit, " from ", decimal(option.least, &mut [0; 10])]);
                    say_all(say, [" to ", decimal(option.most, &mut [0; 10])]);
                } else {
                    say("; it takes:");
                    say_each(say, option.words.iter().copied());
                }
            }
            Self::Order(option, value) => {
                say_all(say, ["option ", option, " does not take '", value, "', but ", Order::SYNTAX]);
            }
            Self::Wait(lock, value) => {
                say_all(say, ["lock ", lock.facts.name, " does not take wait='", value, "'; it takes:"]);
                say_each(say, lock.facts.waits.iter().copied());
            }
            Self::Umwait(lock) => {
                say_all(
                    say,
                    ["lock ", lock.facts.name, " cannot wait by umwait here: this CPU does not have it (WAITPKG)"],
                );
                say("; wait=stp is the same, but polls");
            }
        }
    }
}

impl fmt::Display for BadChoice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut result = Ok(());
        self.explain(&mut |part| result = result.and_then(|()| f.write_str(part)));
        result
    }
}

impl core::error::Error for BadChoice<'_> {}

/// Reads `name[:option=value,…]`. An empty text is the default.
pub fn parse(text: &str) -> Result<Choice, BadChoice<'_>> {
    let mut choice = Choice::DEFAULT;
    if text.is_empty() {
        return Ok(choice);
    }
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let unusable = || ApartId::from_name(name).map_or(BadChoice::Lock(name), BadChoice::Apart);
    choice.lock = LockId::from_name(name).ok_or_else(unusable)?;
    choice.wait = parse_options(choice.lock.into(), options, &mut choice.tunables)?;
    Ok(choice)
}

/// The same of a lock that no program can be run under; `None` if it is not the name of one.
pub fn parse_apart(text: &str) -> Option<Result<ApartChoice, BadChoice<'_>>> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let lock = ApartId::from_name(name)?;
    let wait = parse_options(lock.into(), options, &mut Tunables::DEFAULT.clone());
    Some(wait.map(|wait| ApartChoice { lock, wait }))
}

/// The same of a readers-writer lock. Its options are the process's, and go into `tunables`.
pub fn parse_rw<'a>(text: &'a str, tunables: &mut Tunables) -> Result<RwChoice, BadChoice<'a>> {
    let mut choice = RwChoice::DEFAULT;
    if text.is_empty() {
        return Ok(choice);
    }
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    choice.lock = RwId::from_name(name).ok_or(BadChoice::RwLock(name))?;
    let mut changed = *tunables;
    choice.wait = parse_options(choice.lock.into(), options, &mut changed)?;
    *tunables = changed;
    Ok(choice)
}

/// Whether this computer can do what was chosen. (To read a choice is something else: a simulated computer may be able to.)
pub fn check_here(row: Row, wait: usize) -> Result<(), BadChoice<'static>> {
    if row.facts.waits.get(wait) == Some(&UMWAIT) && !umwait::is_there() {
        return Err(BadChoice::Umwait(row));
    }
    Ok(())
}

/// [`parse`], if this computer can do that.
pub fn parse_here(text: &str) -> Result<Choice, BadChoice<'_>> {
    let choice = parse(text)?;
    check_here(choice.lock.into(), choice.wait).map(|()| choice)
}

/// [`parse_rw`], if this computer can do that.
pub fn parse_rw_here<'a>(text: &'a str, tunables: &mut Tunables) -> Result<RwChoice, BadChoice<'a>> {
    let mut changed = *tunables;
    let choice = parse_rw(text, &mut changed)?;
    check_here(choice.lock.into(), choice.wait)?;
    *tunables = changed;
    Ok(choice)
}

/// The options of a lock: the index of its waiting policy, and numbers in `tunables`.
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

/// Several locks in one text, with commas between: `shfl:bound=100,ahead=2,mcs` are two. What follows a comma and has an equals
/// sign is another option of the lock before it.
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

/// One part after the other.
fn say_all<const N: usize>(say: &mut dyn FnMut(&str), parts: [&str; N]) {
    parts.into_iter().for_each(say);
}

/// A list, in which each stands after a space.
fn say_each<'a>(say: &mut dyn FnMut(&str), words: impl Iterator<Item = &'a str>) {
    words.for_each(|word| say_all(say, [" ", word]));
}

/// A number in decimal, without allocating.
pub(crate) fn decimal(mut number: u32, room: &mut [u8; 10]) -> &str {
    let mut begin = room.len();
    loop {
        begin -= 1;
        room[begin] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            // Digits are UTF-8.
            return core::str::from_utf8(&room[begin..]).unwrap_or_default();
        }
    }
}

/// Reads `NODESxCORESxSMT`: the three numbers, each from 1 to 4096.
pub fn parse_topology(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split('x').map(|part| part.parse().ok().filter(|number| (1..=4096).contains(number)));
    let topology = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(topology)
}

const UNSET: u32 = 0;
const SETTING: u32 = 1;
const SET: u32 = 2;

/// What the user tuned. Written once, by whoever moves `STAGE` to `SETTING`; read only at `SET`.
struct Chosen(UnsafeCell<Tunables>);
// SAFETY: see `Chosen`.
unsafe impl Sync for Chosen {}

static CHOSEN: Chosen = Chosen(UnsafeCell::new(Tunables::DEFAULT));
static STAGE: AtomicU32 = AtomicU32::new(UNSET);

/// What the user tuned; the defaults until that is known.
#[inline]
pub fn tunables() -> &'static Tunables {
    if STAGE.load(Acquire) == SET {
        // SAFETY: never written again after `SET`, which we have acquired.
        unsafe { &*CHOSEN.0.get() }
    } else {
        &Tunables::DEFAULT
    }
}

/// Makes tunables hold. Whether this call was the first, which alone counts.
pub fn set_tunables(tunables: Tunables) -> bool {
    let first = STAGE.compare_exchange(UNSET, SETTING, Relaxed, Relaxed).is_ok();
    if first {
        // SAFETY: only one caller moves the stage, and nobody reads before `SET`.
        unsafe { *CHOSEN.0.get() = tunables };
        STAGE.store(SET, Release);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashlock_locks::catalogue::{APART, OPTIONS};

    #[test]
    fn good_choices() {
        assert_eq!(parse("").unwrap().lock, DEFAULT);
        let choice = parse("mcs:wait=park").unwrap();
        assert_eq!((choice.lock.info().name, choice.lock.info().waits[choice.wait]), ("mcs", "park"));
        let choice = parse("shfl:bound=50,shuffles=0,ahead=3").unwrap().tunables;
        assert_eq!((choice.bound_us, choice.max_shuffles, choice.wake_ahead), (50, 0, 3));
    }

    #[test]
    fn options_of_the_two_list_locks() {
        let choice = parse("cna:threshold=9,countdown=1,reduction=256,refresh=1000").unwrap().tunables;
        assert_eq!((choice.threshold, choice.countdown, choice.reduction, choice.refresh), (9, 1, 256, 1000));
        assert_eq!(parse("mcscr:eldest=5").unwrap().tunables.eldest, 5);
        let say = |text| parse(text).unwrap_err().to_string();
        assert!(say("cna:countdown=lots").contains("from 0 to 1"));
        assert!(say("cna:threshold=0").contains("from 1 to"));
        assert!(say("mcscr:eldest=1000000001").contains("from 1 to"));
    }

    #[test]
    fn readers_writer_locks_are_chosen_apart() {
        let mut tunables = Tunables::DEFAULT;
        assert_eq!(parse_rw("", &mut tunables).unwrap().lock, RW_DEFAULT);
        for lock in RW_LOCKS {
            assert_eq!(parse_rw(lock.name, &mut tunables).unwrap().lock, lock.id);
        }
        let choice = parse_rw("shfl-rw:wait=park,bound=7", &mut tunables).unwrap();
        assert_eq!((choice.lock.info().waits[choice.wait], tunables.bound_us), ("park", 7));
        let mut say = |text| parse_rw(text, &mut tunables).unwrap_err().to_string();
        assert_eq!(say("mcs"), "unknown readers-writer lock 'mcs'; known are: futex-rw cst-rw shfl-rw");
        assert_eq!(say("futex-rw:bound=5"), "lock futex-rw takes no option 'bound'; it takes: wait");
        assert!(say("shfl-rw:bound=6,wait=sit").contains("does not take wait='sit'; it takes: stp spin park"));
        assert_eq!(tunables.bound_us, 7, "a bad choice changes nothing");
    }

    #[test]
    fn bad_choices_say_what_is_right() {
        let say = |text| parse(text).unwrap_err().to_string();
        let names: Vec<_> = LOCKS.iter().map(|lock| lock.name).collect();
        assert_eq!(say("mcz"), format!("unknown lock 'mcz'; known are: {}", names.join(" ")));
        assert_eq!(
            say("shfl:colour=red"),
            "lock shfl takes no option 'colour'; it takes: wait bound shuffles ahead policy cond sem"
        );
        assert_eq!(
            say("shfl:policy=fair"),
            "option policy does not take 'fair'; it takes: numa llc levels ahead cr priority none"
        );
        assert!(say("shfl:policy=0").contains("does not take '0'"));
        assert!(say("tas:wait=park").contains("it takes: stp"));
        assert_eq!(say("shfl:bound=soon"), "option bound does not take 'soon', but microseconds from 0 to 10000000");
        assert!(say("shfl:bound").contains("does not take ''"));
    }

    #[test]
    fn what_this_cpu_cannot_do_is_refused_here_alone() {
        for lock in LOCKS {
            let text = format!("{}:wait=umwait", lock.name);
            let queues = lock.waits.contains(&"spin") && lock.waits.contains(&"stp");
            assert_eq!(parse(&text).is_ok(), queues, "{text}");
            let why = format!("lock {} cannot wait by umwait here: this CPU does not have it (WAITPKG)", lock.name);
            match parse_here(&text) {
                Ok(_) => assert!(queues && umwait::is_there(), "{text}"),
                Err(error) if queues => assert!(!umwait::is_there() && error.to_string().starts_with(&why), "{error}"),
                Err(error) => assert!(error.to_string().contains("does not take wait='umwait'"), "{error}"),
            }
        }
    }

    #[test]
    fn locks_that_are_for_no_program_are_refused_as_such() {
        for lock in APART {
            let said = parse(lock.name).unwrap_err().to_string();
            assert_eq!(said, format!("no program can be run under lock {}: {}", lock.name, lock.apart));
            assert_eq!(parse_apart(lock.name).unwrap().unwrap().lock, lock.id);
        }
        let choice = parse_apart("cc-synch:wait=park").unwrap().unwrap();
        assert_eq!(choice.lock.info().waits[choice.wait], "park");
        let bad = parse_apart("cc-synch:bound=1").unwrap().unwrap_err();
        assert_eq!(bad.to_string(), "lock cc-synch takes no option 'bound'; it takes: wait");
        assert!(parse_apart("mcs").is_none());
    }

    #[test]
    fn a_lock_takes_the_options_of_its_row_and_no_others() {
        for lock in LOCKS {
            for option in OPTIONS {
                for value in [option.least, option.most] {
                    let written = option.word(value).map_or_else(|| value.to_string(), str::to_owned);
                    let text = format!("{}:{}={written}", lock.name, option.name);
                    match parse(&text) {
                        Ok(choice) => assert_eq!((option.get)(&choice.tunables), value, "{text}"),
                        Err(error) => assert_eq!(error, BadChoice::Option(lock.id.into(), option.name), "{text}"),
                    }
                    assert_eq!(parse(&text).is_ok(), lock.options.contains(&option.id), "{text}");
                }
            }
        }
        assert_eq!(
            parse("tas:bound=5").unwrap_err().to_string(),
            "lock tas takes no option 'bound'; it takes: wait cond sem"
        );
    }

    #[test]
    fn every_lock_takes_the_orders() {
        for lock in LOCKS {
            for order in ORDERS {
                let text = format!("{}:{}=lifo:1/50", lock.name, order.name);
                let tunables = parse(&text).unwrap().tunables;
                assert_eq!((order.get)(&tunables), Order::lifo(50), "{text}");
                let others = ORDERS.iter().filter(|other| other.name != order.name);
                assert!(others.map(|other| (other.get)(&tunables)).all(|other| other == Order::FIFO), "{text}");
            }
        }
        let tunables = parse("shfl:cond=lifo:1/1000,bound=7,sem=lifo").unwrap().tunables;
        assert_eq!(
            (tunables.cond_order, tunables.sem_order, tunables.bound_us),
            (Order::lifo(1000), Order::lifo(1000), 7)
        );
        assert!(parse("tas:cond=stack").unwrap_err().to_string().contains("does not take 'stack', but fifo, lifo"));
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        for option in OPTIONS {
            let mutex = LOCKS.iter().find(|lock| lock.options.contains(&option.id)).map(|lock| lock.name);
            let rw = RW_LOCKS.iter().find(|lock| lock.options.contains(&option.id)).map(|lock| lock.name);
            assert!(mutex.or(rw).is_some(), "no lock takes {}", option.name);
            for value in [u64::from(option.most) + 1, u64::from(u32::MAX) + 1] {
                let of = |name| format!("{name}:{}={value}", option.name);
                if let Some(text) = mutex.map(of) {
                    assert!(matches!(parse(&text), Err(BadChoice::Value(found, _)) if found == option.id), "{text}");
                }
                if let Some(text) = rw.map(of) {
                    let parsed = parse_rw(&text, &mut Tunables::DEFAULT.clone()).err();
                    assert!(matches!(parsed, Some(BadChoice::Value(found, _)) if found == option.id), "{text}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_written() {
        for number in [0, 7, 10, 60_000_000, u32::MAX] {
            assert_eq!(decimal(number, &mut [0; 10]), number.to_string());
        }
    }

    #[test]
    fn lists_of_locks_with_options() {
        assert_eq!(
            split_list("shfl:bound=100,ahead=2,mcs,tas:wait=stp"),
            ["shfl:bound=100,ahead=2", "mcs", "tas:wait=stp"]
        );
        assert_eq!(split_list("mcs,wait=park"), ["mcs", "wait=park"]);
        assert_eq!(
            split_list("shfl:bound=1,cond=lifo:1/1000,mcs:sem=lifo:0,tas"),
            ["shfl:bound=1,cond=lifo:1/1000", "mcs:sem=lifo:0", "tas"]
        );
        assert_eq!(split_list(""), [""]);
    }

    #[test]
    fn topologies() {
        assert_eq!(parse_topology("2x18x2"), Some([2, 18, 2]));
        for wrong in ["", "2", "2x18", "2x18x2x1", "0x1x1", "axbxc", "2x18x99999"] {
            assert_eq!(parse_topology(wrong), None, "{wrong}");
        }
    }
}
