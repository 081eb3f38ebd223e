//! # Options: what users may tune
//!
//! A new option is one row here, and its name in the rows of the locks that take it. Beside these, each lock takes
//! `wait=`, a choice among types.

use crate::order::Order;
use crate::policy::chosen;

/// Calls `$use` with every option that is a number, or a word out of a list, whose place there is the number:
/// `(Variant, "name", field of Tunables = default, least..=most, "unit", "meaning"[, list])`. A long meaning is several
/// literals.
#[macro_export]
macro_rules! for_each_option {
    ($use:path) => {
        $use! {
            (Bound, "bound", bound_us = 1000, 0..=10_000_000, "microseconds",
                "until the first waiter is handed the lock"),
            (Shuffles, "shuffles", max_shuffles = 1024, 0..=1_000_000, "waiters",
                "moved together, after which the order of arrival applies again"),
            (Ahead, "ahead", wake_ahead = 1, 0..=1000, "sleepers", "woken before their turn"),
            (Policy, "policy", policy = 0, 0..=6, "rule", "by which waiters are grouped in the queue", chosen::NAMES),
            (Threshold, "threshold", threshold = 65_536, 1..=1_000_000_000, "hand-offs",
                "of which about one ends the preference for the holder's NUMA node"),
            (Countdown, "countdown", countdown = 0, 0..=1, "switch",
                "(1: each thread counts down to that hand-off; 0: each hand-off draws at random)"),
            (Reduction, "reduction", reduction = 1, 1..=1_000_000_000, "hand-offs",
                "of which about one looks for a waiter of the holder's NUMA node while the secondary queue is empty"),
            (Refresh, "refresh", refresh = 1, 1..=1_000_000_000, "contended acquisitions",
                "after which a thread asks for its NUMA node again"),
            (Flush, "flush", flush = 16, 0..=31, "doublings",
                "of one hand-off: after 2^flush hand-offs the secondary queue is served (16: 65,536)"),
            (Stay, "stay", stay_us = 10_000, 0..=10_000_000, "microseconds",
                "after which the secondary queue is served (0: no limit of time)"),
            (Incremental, "incremental", incremental = 0, 0..=2, "way to cull",
                "(0: the head of the queue culls all waiters up to the next one of its NUMA node; 1: one waiter at "
                "most; 2: one waiter, and more while the lock is busy)"),
            (Scan, "scan", scan = 1_000_000_000, 0..=1_000_000_000, "waiters",
                "that the head of the queue looks at, at most, after the lock has become free"),
            (Urgent, "urgent", urgent = 0, 0..=1, "switch",
                "(1: threads with a real-time scheduling policy are never culled; 0: they are culled like others)"),
            (Passes, "passes", passes = 64, 0..=1_000_000_000, "hand-offs",
                "within a NUMA node, after which the lock goes to another node that wants it"),
            (Levels, "levels", levels = 2, 2..=4, "levels",
                "of queues (2: NUMA nodes and the machine; 3: also groups of CPUs that share a last-level cache, or "
                "cores if a NUMA node has only one such cache; 4: also cores below these caches)"),
            (Near, "near", near_passes = 64, 0..=1_000_000_000, "hand-offs",
                "within a group of CPUs (levels=), after which the lock goes to a neighbouring group that wants it"),
            (Eldest, "eldest", eldest = 1000, 1..=1_000_000_000, "releases",
                "of which about one serves the eldest passive waiter"),
            (Evict, "evict", evict = 0, 0..=1, "switch",
                "(1: a waiter that is not running when its turn comes is passed over, and queues anew; 0: it is handed "
                "the lock)"),
            (Meetings, "meetings", meetings = 512, 1..=1_000_000_000, "meetings",
                "of readers, after which a lock uses distributed counters; a writer cancels 16 of them"),
            (Spinners, "spinners", spinners = 8, 0..=31, "newcomers",
                "that may poll at a time before they queue (at most one if threads outnumber CPUs)"),
            (Writers, "writers", writers = 1024, 1..=1_000_000_000, "writers",
                "after which a lock with distributed counters returns to its central counter"),
        }
    };
}

/// What is known of an option, other than `wait=`, which is a choice among types.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Which one it is.
    pub id: OptionId,
    /// Its name, as users write it.
    pub name: &'static str,
    /// The least value it takes.
    pub least: u32,
    /// The greatest.
    pub most: u32,
    /// What it has when the user says nothing.
    pub default: u32,
    /// The words that users write for the values, from 0 on; none if they write numbers.
    pub words: &'static [&'static str],
    /// What is counted.
    pub unit: &'static str,
    /// What it means: continues the unit.
    pub meaning: &'static str,
    /// Its value in a set of tunables.
    pub get: fn(&Tunables) -> u32,
    /// Changes it there. The value is in its range.
    pub set: fn(&mut Tunables, u32),
}

macro_rules! words {
    () => {
        &[]
    };
    ($words:expr) => {{ $words }};
}

macro_rules! define_options {
    ($((
        $variant:ident, $name:literal, $field:ident = $default:literal, $least:literal..=$most:literal,
        $unit:literal, $($meaning:literal)+ $(, $words:expr)?
    )),* $(,)?) => {
        /// Names an option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OptionId {
            $(#[doc = concat!("`", $name, "=`: ", $unit, " ", $($meaning),+)] $variant),*
        }

        /// All options, in the order in which they are shown.
        pub const OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            id: OptionId::$variant, name: $name, least: $least, most: $most, default: $default,
            words: words!($($words)?), unit: $unit, meaning: concat!($($meaning),+),
            get: |tunables| tunables.$field, set: |tunables, value| tunables.$field = value,
        }),*];

        /// What a user may tune, by `FLASHLOCK=name:option=value`. Read once, constant afterwards.
        #[derive(Clone, Copy, Debug)]
        pub struct Tunables {
            $(#[doc = concat!($unit, " ", $($meaning,)+ " (`", $name, "=`)")] pub $field: u32,)*
            /// In which order waiters on condition variables are called (`cond=`).
            pub cond_order: Order,
            /// In which order waiters for semaphores are called (`sem=`).
            pub sem_order: Order,
        }

        impl Tunables {
            /// What holds when the user says nothing.
            pub const DEFAULT: Self = Self { $($field: $default,)* cond_order: Order::FIFO, sem_order: Order::FIFO };
        }
    };
}

for_each_option!(define_options);

/// What is known of an option that every lock takes, for it is not about mutexes: an [`Order`].
#[derive(Clone, Copy, Debug)]
pub struct OrderInfo {
    /// Its name, as users write it.
    pub name: &'static str,
    /// Who is called in that order.
    pub meaning: &'static str,
    /// Its value in a set of tunables.
    pub get: fn(&Tunables) -> Order,
    /// Changes it there.
    pub set: fn(&mut Tunables, Order),
}

/// The options that every lock takes.
pub const ORDERS: &[OrderInfo] = &[
    OrderInfo {
        name: "cond",
        meaning: "waiters on condition variables",
        get: |tunables| tunables.cond_order,
        set: |tunables, order| tunables.cond_order = order,
    },
    OrderInfo {
        name: "sem",
        meaning: "waiters for semaphores",
        get: |tunables| tunables.sem_order,
        set: |tunables, order| tunables.sem_order = order,
    },
];

impl OrderInfo {
    /// The option of that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        ORDERS.iter().find(|order| order.name == name)
    }
}

/// Waits and bounds are compared in microseconds that wrap at 2^32: up to `BOUND_FACTOR` times the bound must be told
/// from a time not yet come, so be less than half of that.
const BOUND_FACTOR: u64 = 200;
const _: () = assert!(OPTIONS[OptionId::Bound as usize].most as u64 * BOUND_FACTOR <= 1 << 31);

impl OptionInfo {
    /// The value that a user wrote, if the option takes it.
    pub fn parse(&self, text: &str) -> Option<u32> {
        match self.words {
            [] => text.parse().ok().filter(|number| (self.least..=self.most).contains(number)),
            words => words.iter().position(|word| *word == text).map(|place| place as u32),
        }
    }

    /// The word that users write for a value, if they do not write the number.
    pub fn word(&self, value: u32) -> Option<&'static str> {
        self.words.get(value as usize).copied()
    }
}

impl OptionId {
    /// What is known of it.
    pub const fn info(self) -> &'static OptionInfo {
        &OPTIONS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_or_words() {
        let [bound, policy] = [OptionId::Bound, OptionId::Policy].map(OptionId::info);
        assert_eq!((bound.parse("7"), bound.parse("seven"), bound.parse("10000001")), (Some(7), None, None));
        assert_eq!((policy.parse("numa"), policy.parse("none"), policy.parse("1")), (Some(0), Some(6), None));
        assert_eq!((policy.word(0), policy.word(7), bound.word(0)), (Some("numa"), None, None));
    }

    #[test]
    fn options_are_a_table_of_the_tunables() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert_eq!((option.id as usize, option.name), (index, option.id.info().name));
            assert!((option.least..=option.most).contains(&option.default), "{}", option.name);
            let mut tunables = Tunables::DEFAULT;
            assert_eq!((option.get)(&tunables), option.default);
            assert!(option.words.is_empty() || (option.least, option.most as usize + 1) == (0, option.words.len()));
            (option.set)(&mut tunables, option.most);
            for other in OPTIONS {
                let expected = if other.id == option.id { other.most } else { other.default };
                assert_eq!((other.get)(&tunables), expected, "{} after {}", other.name, option.name);
            }
        }
    }
}
