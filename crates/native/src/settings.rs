//! # What the user chose: `FLASHLOCK=name[:option=value,…]`
//!
//! Which options a lock takes, their ranges and defaults say the catalogue's lists ([`LOCKS`], [`OPTIONS`]); beside those, each lock
//! takes `wait`, one of its ways of waiting.
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

use flashlock_locks::catalogue::{DEFAULT, LOCKS, LockId, OptionId};
use flashlock_locks::machine::Tunables;

/// The environment variable that names the lock.
pub const ENV: &str = "FLASHLOCK";
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

/// What is wrong with a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChoice<'a> {
    /// There is no such lock.
    Lock(&'a str),
    /// This lock takes no such option.
    Option(LockId, &'a str),
    /// The option does not take this value.
    Value(OptionId, &'a str),
    /// This lock cannot wait that way.
    Wait(LockId, &'a str),
}

impl BadChoice<'_> {
    /// Says what is wrong and what would be right, in pieces, without allocating.
    pub fn explain(&self, say: &mut dyn FnMut(&str)) {
        match *self {
            Self::Lock(name) => {
                for part in ["unknown lock '", name, "'; known are:"] {
                    say(part);
                }
                for lock in LOCKS {
                    say(" ");
                    say(lock.name);
                }
            }
            Self::Option(lock, name) => {
                for part in ["lock ", lock.info().name, " takes no option '", name, "'; it takes: wait"] {
                    say(part);
                }
                for option in lock.info().options {
                    say(" ");
                    say(option.info().name);
                }
            }
            Self::Value(option, value) => {
                let option = option.info();
                for part in ["option ", option.name, " does not take '", value, "', but ", option.unit, " from "] {
                    say(part);
                }
                say(decimal(option.least, &mut [0; 10]));
                say(" to ");
                say(decimal(option.most, &mut [0; 10]));
            }
            Self::Wait(lock, value) => {
                for part in ["lock ", lock.info().name, " does not take wait='", value, "'; it takes:"] {
                    say(part);
                }
                for wait in lock.info().waits {
                    say(" ");
                    say(wait);
                }
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
    choice.lock = LockId::from_name(name).ok_or(BadChoice::Lock(name))?;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let lock = choice.lock;
        if key == "wait" {
            let known = lock.info().waits.iter().position(|&wait| wait == value);
            choice.wait = known.ok_or(BadChoice::Wait(lock, value))?;
            continue;
        }
        let option = lock.info().option(key).ok_or(BadChoice::Option(lock, key))?;
        let number = value.parse().ok().filter(|number| (option.least..=option.most).contains(number));
        (option.set)(&mut choice.tunables, number.ok_or(BadChoice::Value(option.id, value))?);
    }
    Ok(choice)
}

/// Several locks in one text, with commas between: `shfl:bound=100,ahead=2,mcs` are two. What follows a comma and has an equals
/// sign is another option of the lock before it.
pub fn split_list(text: &str) -> Vec<String> {
    let mut locks: Vec<String> = Vec::new();
    for piece in text.split(',') {
        let is_option = piece.contains('=') && !piece.contains(':');
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

/// A number in decimal, without allocating.
fn decimal(mut number: u32, room: &mut [u8; 10]) -> &str {
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
    use flashlock_locks::catalogue::OPTIONS;

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
    fn bad_choices_say_what_is_right() {
        let say = |text| parse(text).unwrap_err().to_string();
        assert!(
            say("mcz").contains("unknown lock 'mcz'; known are: tas futex ticket mcs cna qspin qspin-cna mcscr shfl")
        );
        assert_eq!(say("shfl:colour=red"), "lock shfl takes no option 'colour'; it takes: wait bound shuffles ahead");
        assert!(say("tas:wait=park").contains("it takes: stp"));
        assert_eq!(say("shfl:bound=soon"), "option bound does not take 'soon', but microseconds from 0 to 10000000");
        assert!(say("shfl:bound").contains("does not take ''"));
    }

    #[test]
    fn a_lock_takes_the_options_of_its_row_and_no_others() {
        for lock in LOCKS {
            for option in OPTIONS {
                for value in [option.least, option.most] {
                    let text = format!("{}:{}={value}", lock.name, option.name);
                    match parse(&text) {
                        Ok(choice) => assert_eq!((option.get)(&choice.tunables), value, "{text}"),
                        Err(error) => assert_eq!(error, BadChoice::Option(lock.id, option.name), "{text}"),
                    }
                    assert_eq!(parse(&text).is_ok(), lock.options.contains(&option.id), "{text}");
                }
            }
        }
        assert_eq!(parse("tas:bound=5").unwrap_err().to_string(), "lock tas takes no option 'bound'; it takes: wait");
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        for option in OPTIONS {
            let lock = LOCKS.iter().find(|lock| lock.options.contains(&option.id)).unwrap();
            for value in [u64::from(option.most) + 1, u64::from(u32::MAX) + 1] {
                let text = format!("{}:{}={value}", lock.name, option.name);
                assert!(matches!(parse(&text), Err(BadChoice::Value(found, _)) if found == option.id), "{text}");
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
