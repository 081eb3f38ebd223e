//! # What the user chose: `FLASHLOCK=name[:option=value,…]`
//!
//! | option | values | default | meaning |
//! |---|---|---|---|
//! | `wait` | `spin`, `stp`, `park` (as far as the lock has them) | the lock's first | how waiters wait |
//! | `bound` | µs, 0 to 60,000,000 | 1000 | after how long the first waiter is handed the lock (`shfl`) |
//! | `shuffles` | 0 to 1,000,000 | 1024 | how many waiters may be moved before arrival order rules again (`shfl`) |
//! | `ahead` | 0 to 1000 | 1 | how many sleepers are woken before their turn (`shfl`) |
//! | `threshold` | 1 to 1,000,000,000 | 65536 | one hand-over in so many ends the preference for the holder's NUMA node (`cna`) |
//! | `draw` | `random`, `countdown` | `random` | how that hand-over is chosen: by a draw at each, or counted down by each thread (`cna`) |
//! | `reduction` | 1 to 1,000,000,000 | 1 | while nobody is aside, one hand-over in so many looks for a waiter of the holder's NUMA node (`cna`) |
//! | `refresh` | 1 to 1,000,000,000 | 1 | a thread asks for its NUMA node at one contended acquisition in so many (`cna`) |
//! | `eldest` | 1 to 1,000,000,000 | 1000 | one release in so many serves the eldest passive waiter (`mcscr`) |
//!
//! Parsing allocates nothing: it runs in the first lock call of a process, perhaps inside malloc.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_locks::catalogue::{DEFAULT, LOCKS, LockId};
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
    /// There is no such option.
    Option(&'a str),
    /// The option does not take this value: option, value, what it takes.
    Value(&'a str, &'a str, &'static str),
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
            Self::Option(name) => {
                for part in [
                    "unknown option '",
                    name,
                    "'; known are: wait bound shuffles ahead threshold draw reduction refresh eldest",
                ] {
                    say(part);
                }
            }
            Self::Value(option, value, takes) => {
                for part in ["option ", option, " does not take '", value, "', but ", takes] {
                    say(part);
                }
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
        let number = |max, takes| match value.parse::<u32>() {
            Ok(number) if number <= max => Ok(number),
            _ => Err(BadChoice::Value(key, value, takes)),
        };
        let one_or_more = || match number(1_000_000_000, "a number from 1 to 1000000000")? {
            0 => Err(BadChoice::Value(key, value, "a number from 1 to 1000000000")),
            number => Ok(number),
        };
        match key {
            "wait" => {
                let waits = choice.lock.info().waits;
                let known = waits.iter().position(|&wait| wait == value);
                choice.wait = known.ok_or(BadChoice::Wait(choice.lock, value))?;
            }
            "bound" => choice.tunables.bound_us = number(60_000_000, "microseconds from 0 to 60000000")?,
            "shuffles" => choice.tunables.max_shuffles = number(1_000_000, "a number from 0 to 1000000")?,
            "ahead" => choice.tunables.wake_ahead = number(1000, "a number from 0 to 1000")?,
            "threshold" => choice.tunables.threshold = one_or_more()?,
            "draw" => {
                choice.tunables.countdown = match value {
                    "random" => false,
                    "countdown" => true,
                    _ => return Err(BadChoice::Value(key, value, "random or countdown")),
                }
            }
            "reduction" => choice.tunables.reduction = one_or_more()?,
            "refresh" => choice.tunables.refresh = one_or_more()?,
            "eldest" => choice.tunables.eldest = one_or_more()?,
            _ => return Err(BadChoice::Option(key)),
        }
    }
    Ok(choice)
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
        let choice = parse("cna:threshold=9,draw=countdown,reduction=256,refresh=1000").unwrap().tunables;
        assert_eq!((choice.threshold, choice.countdown, choice.reduction, choice.refresh), (9, true, 256, 1000));
        assert_eq!(parse("mcscr:eldest=5").unwrap().tunables.eldest, 5);
        let say = |text| parse(text).unwrap_err().to_string();
        assert!(say("cna:draw=lots").contains("random or countdown"));
        assert!(say("cna:threshold=0").contains("from 1 to"));
        assert!(say("mcscr:eldest=1000000001").contains("from 1 to"));
    }

    #[test]
    fn bad_choices_say_what_is_right() {
        let say = |text| parse(text).unwrap_err().to_string();
        assert!(say("mcz").contains("unknown lock 'mcz'; known are: tas futex ticket mcs cna mcscr shfl"));
        assert!(say("shfl:colour=red").contains("unknown option 'colour'"));
        assert!(say("tas:wait=park").contains("it takes: stp"));
        assert!(say("shfl:bound=soon").contains("microseconds"));
        assert!(say("shfl:bound").contains("does not take ''"));
    }

    #[test]
    fn topologies() {
        assert_eq!(parse_topology("2x18x2"), Some([2, 18, 2]));
        for wrong in ["", "2", "2x18", "2x18x2x1", "0x1x1", "axbxc", "2x18x99999"] {
            assert_eq!(parse_topology(wrong), None, "{wrong}");
        }
    }
}
