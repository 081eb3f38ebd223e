//! # What users may tune
//!
//! The list of options, and their values: what a lock reads of them. A new option is one row here, and its name in the
//! rows of the locks that take it. [`catalogue::options`](crate::catalogue::options) parses, shows and sets them.

use crate::machine::order::Order;

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
                "moved before arrival order rules again"),
            (Ahead, "ahead", wake_ahead = 1, 0..=1000, "sleepers", "woken before their turn"),
            (Policy, "policy", policy = 0, 0..=6, "rule", "by which waiters are put next to each other", chosen::NAMES),
            (Threshold, "threshold", threshold = 65_536, 1..=1_000_000_000, "hand-overs",
                "of which one ends the preference for the holder's NUMA node"),
            (Countdown, "countdown", countdown = 0, 0..=1, "switch,",
                "1: each thread counts down to that hand-over; 0: it is drawn at each"),
            (Reduction, "reduction", reduction = 1, 1..=1_000_000_000, "hand-overs",
                "of which one looks for a waiter of the holder's NUMA node while nobody is aside"),
            (Refresh, "refresh", refresh = 1, 1..=1_000_000_000, "contended acquisitions",
                "until a thread asks for its NUMA node again"),
            (Flush, "flush", flush = 16, 0..=31, "doublings",
                "of one hand-over, until waiters of other NUMA nodes come back (16: 65,536 hand-overs)"),
            (Stay, "stay", stay_us = 10_000, 0..=10_000_000, "microseconds",
                "until waiters of other NUMA nodes come back; 0: no limit in time"),
            (Incremental, "incremental", incremental = 0, 0..=2, "way,",
                "0: the head of the queue sets all waiters up to the next of its NUMA node aside; 1: one at most; 2: "
                "one, and more while the lock is busy"),
            (Scan, "scan", scan = 1_000_000_000, 0..=1_000_000_000, "waiters",
                "that the head of the queue looks at, at most, once the lock is free"),
            (Urgent, "urgent", urgent = 0, 0..=1, "switch,",
                "1: threads of real-time scheduling policies are never set aside"),
            (Passes, "passes", passes = 64, 0..=1_000_000_000, "hand-overs",
                "within a NUMA node, until the lock goes to another one that wants it"),
            (Levels, "levels", levels = 2, 2..=4, "levels:",
                "2: NUMA nodes and the machine; 3: below these, CPUs that share a last-level cache, or a core where a "
                "NUMA node has one such cache; 4: below these caches, cores"),
            (Near, "near", near_passes = 64, 0..=1_000_000_000, "hand-overs",
                "within such a group of CPUs, until the lock goes to another one beside it that wants it"),
            (Eldest, "eldest", eldest = 1000, 1..=1_000_000_000, "releases",
                "of which one serves the eldest passive waiter"),
            (Evict, "evict", evict = 0, 0..=1, "switch,",
                "1: a waiter that has lost its CPU when its turn comes is passed over, and queues anew; 0: it is "
                "handed the lock"),
            (Meetings, "meetings", meetings = 512, 1..=1_000_000_000, "meetings",
                "of readers, until those of a lock count apart; a writer makes up for 16"),
            (Spinners, "spinners", spinners = 8, 0..=31, "arrivals",
                "that poll at a time before they queue; one at most where CPUs are short"),
            (Writers, "writers", writers = 1024, 1..=1_000_000_000, "writers",
                "of a lock whose readers count apart, until they count together again"),
        }
    };
}

macro_rules! define_tunables {
    ($((
        $variant:ident, $name:literal, $field:ident = $default:literal, $least:literal..=$most:literal,
        $unit:literal, $($meaning:literal)+ $(, $words:expr)?
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
            /// What holds when the user says nothing.
            pub const DEFAULT: Self = Self { $($field: $default,)* cond_order: Order::FIFO, sem_order: Order::FIFO };

            /// The greatest value that each number may have.
            pub const MOST: Self = Self { $($field: $most,)* ..Self::DEFAULT };
        }
    };
}

for_each_option!(define_tunables);
