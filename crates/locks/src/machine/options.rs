//! # What users may tune
//!
//! The list of options, and the values that a lock reads. A new option is one row here, and its name in the rows of the
//! locks that take it. [`catalogue::options`](crate::catalogue::options) parses, shows and sets them.

use crate::machine::order::Order;

/// Calls `$use` with every option that is a number, `(Variant, "name", field of Tunables = default, least..=most,
/// "unit", "meaning")`, or a word from a list, `(Variant, "name", field = default, in list, "unit", "meaning")`. Then
/// the number is the word's place in the list. A long meaning is several literals.
#[macro_export]
macro_rules! for_each_option {
    ($use:path) => {
        $use! {
            (Bound, "bound", bound_us = 1000, 0..=10_000_000, "microseconds",
                "until the first waiter is handed the lock"),
            (Shuffles, "shuffles", max_shuffles = 1024, 0..=1_000_000, "waiters",
                "moved together, after which the order of arrival applies again"),
            (Ahead, "ahead", wake_ahead = 1, 0..=1000, "sleepers", "woken before their turn"),
            (Policy, "policy", policy = 0, in chosen::NAMES, "rule", "by which waiters are grouped in the queue"),
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

macro_rules! define_tunables {
    ($((
        $variant:ident, $name:literal, $field:ident = $default:literal,
        $($least:literal..=$most:literal)? $(in $words:path)?, $unit:literal, $($meaning:literal)+
    )),* $(,)?) => {
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
            /// The values that apply when the user sets nothing.
            pub const DEFAULT: Self = Self { $($field: $default,)* cond_order: Order::FIFO, sem_order: Order::FIFO };

            /// The greatest value that each number may have; words have their defaults.
            pub const MOST: Self = Self { $($($field: $most,)?)* ..Self::DEFAULT };
        }
    };
}

for_each_option!(define_tunables);
