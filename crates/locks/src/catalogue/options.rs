//! # Options: what users may tune
//!
//! The rows are in [`machine::options`](crate::machine::options); here is what parses, shows and sets them. Beside
//! these options, each lock takes `wait=`, a choice among types.

use crate::for_each_option;
use crate::machine::Tunables;
use crate::machine::order::Order;
use crate::parts::policy::chosen;

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
    ($words:path) => {
        $words
    };
}

/// The least and the greatest value: a range of numbers, or the places in a list of words.
macro_rules! range {
    ($least:literal..=$most:literal) => {
        ($least, $most)
    };
    (in $words:path) => {
        (0, $words.len() as u32 - 1)
    };
}

macro_rules! define_options {
    ($((
        $variant:ident, $name:literal, $field:ident = $default:literal,
        $($least:literal..=$most:literal)? $(in $words:path)?, $unit:literal, $($meaning:literal)+
    )),* $(,)?) => {
        /// Names an option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OptionId {
            $(#[doc = concat!("`", $name, "=`: ", $unit, " ", $($meaning),+)] $variant),*
        }

        /// All options, in the order in which they are shown.
        pub const OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            id: OptionId::$variant, name: $name, default: $default,
            least: range!($($least..=$most)? $(in $words)?).0, most: range!($($least..=$most)? $(in $words)?).1,
            words: words!($($words)?), unit: $unit, meaning: concat!($($meaning),+),
            get: |tunables| tunables.$field, set: |tunables, value| tunables.$field = value,
        }),*];
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
    use crate::parts::policy::PolicyId;

    #[test]
    fn values_are_numbers_or_words() {
        let [bound, policy] = [OptionId::Bound, OptionId::Policy].map(OptionId::info);
        assert_eq!((bound.parse("7"), bound.parse("seven"), bound.parse("10000001")), (Some(7), None, None));
        let none = PolicyId::Untouched as u32;
        assert_eq!((policy.parse("numa"), policy.parse("none"), policy.parse("1")), (Some(0), Some(none), None));
        assert_eq!((policy.word(none), policy.word(policy.most + 1), bound.word(0)), (Some("none"), None, None));
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
