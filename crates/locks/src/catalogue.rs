//! # The catalogue of locks
//!
//! The lists from which the command line, the preload's dispatch, the tests and the documentation are generated. A new lock is its
//! file, one row here, and its page. A new option is one row here, and its name in the rows of the locks that take it.

use crate::order::Order;

/// Calls `$use` with every lock:
/// `(Variant, "name", [wait => type, …], { facts })`. The waits are the values of `wait=` that the lock has, each with the
/// type that implements it; the first is its default. Among the facts are the further options that the lock takes, by their
/// [`OptionId`].
#[macro_export]
macro_rules! for_each_lock {
    ($use:path) => {
        $use! {
            (Tas, "tas", [stp => $crate::spin::Tas], {
                title: "test-and-set, polite",
                paper: "Anderson, TPDS 1990; back-off as in Malthusian Locks, section 5.1",
                source: "spin/tas.rs",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "no: waiters may be passed over without bound",
                strict: false, options: [],
                exceptions: [],
            }),
            (Futex, "futex", [park => $crate::spin::Futex], {
                title: "three-state futex lock, what glibc does",
                paper: "Drepper, Futexes Are Tricky, 2011, section 5",
                source: "spin/futex.rs",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "no: a running thread passes sleepers over without bound",
                strict: false, options: [],
                exceptions: [],
            }),
            (Ticket, "ticket", [stp => $crate::spin::Ticket], {
                title: "ticket lock with proportional back-off",
                paper: "Reed & Kanodia, CACM 1979; Mellor-Crummey & Scott, TOCS 1991, algorithm 2",
                source: "spin/ticket.rs",
                bytes: 12, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 0,
                numa_aware: false, fair: "yes: first come, first served; but timed acquisitions come after all others",
                strict: true, options: [],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to whoever comes next, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                    ("slow_motion.trylock_excludes", "a trylock must find the lock free from one instruction to the next: one that is slow may try for ever while others keep coming"),
                    ("slow_motion.timedlock_excludes", "as above: a timed acquisition draws no number"),
                    ("malloc.threads_allocate", "more threads than CPUs want one mutex all the time: each hand-over may wait for a nap, 0.1 ms, which is too slow for a check"),
                    ("malloc.libraries_come_and_go", "as above"),
                    ("cond_stress.semaphore_of_eight_threads", "as above"),
                    ("sandbox.a_hundred_wait_for_a_mutex", "as above"),
                    ("threads.specific_data_destructors_lock", "as above"),
                ],
            }),
            (Hbo, "hbo", [stp => $crate::spin::Hbo], {
                title: "test-and-set that backs off for longer from another NUMA node",
                paper: "Radovic & Hagersten, HPCA 2003",
                source: "spin/hbo.rs",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 0,
                numa_aware: true, fair: "no: a NUMA node may keep the lock without bound",
                strict: false, options: [],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "a broadcast lets its waiters go one after the other: one that is frozen holds up the rest"),
                ],
            }),
            (Clh, "clh", [stp => $crate::queue::Clh<$crate::wait::SpinThenPark>, spin => $crate::queue::Clh<$crate::wait::Spin>, park => $crate::queue::Clh<$crate::wait::Park>], {
                title: "queue lock, each waiter on the node of the one before it",
                paper: "Craig, 1993; Magnusson, Landin & Hagersten, IPPS 1994; time-outs as in Scott & Scherer, PPoPP 2001",
                source: "queue/clh.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "yes: first come, first served",
                strict: true, options: [],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to the first waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                ],
            }),
            (Mcs, "mcs", [stp => $crate::queue::Mcs<$crate::wait::SpinThenPark>, spin => $crate::queue::Mcs<$crate::wait::Spin>, park => $crate::queue::Mcs<$crate::wait::Park>], {
                title: "queue lock, each waiter on its own cache line",
                paper: "Mellor-Crummey & Scott, TOCS 1991 (K42 variant)",
                source: "queue/mcs.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "yes: first come, first served",
                strict: true, options: [],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to the first waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("slow_motion.release_at_any_point_of_a*lock", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                    ("torture.freeze-waiter", "the lock is handed to the first waiter, whether it runs or not"),
                ],
            }),
            (McsTp, "mcs-tp", [stp => $crate::queue::McsTp<$crate::wait::SpinThenPark>, spin => $crate::queue::McsTp<$crate::wait::Spin>, park => $crate::queue::McsTp<$crate::wait::Park>], {
                title: "MCS that passes over waiters which do not run",
                paper: "He, Scherer & Scott, HiPC 2005",
                source: "queue/mcs_tp.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "no: who loses his CPU loses his place",
                strict: true, options: [],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to the first waiter that slept, or ran a moment ago, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                    ("slow_motion.release_at_any_point_of_*", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                ],
            }),
            (Cna, "cna", [stp => $crate::numa::Cna<$crate::wait::SpinThenPark>, spin => $crate::numa::Cna<$crate::wait::Spin>, park => $crate::numa::Cna<$crate::wait::Park>], {
                title: "compact NUMA-aware queue lock",
                paper: "Dice & Kogan, EuroSys 2019, sections 4-6",
                source: "numa/cna.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: true, fair: "in the long run: the holder's NUMA node first, until a draw says otherwise (threshold=)",
                strict: true, options: [Threshold, Countdown, Reduction, Refresh],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to a chosen waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("slow_motion.release_at_any_point_of_*", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                    ("torture.freeze-waiter", "the lock is handed to a chosen waiter, whether it runs or not"),
                ],
            }),
            (Qspin, "qspin", [stp => $crate::queue::Qspin<$crate::wait::SpinThenPark>, spin => $crate::queue::Qspin<$crate::wait::Spin>, park => $crate::queue::Qspin<$crate::wait::Park>], {
                title: "the Linux kernel's queued spinlock, four bytes",
                paper: "Long & Zijlstra, qspinlock.c, Linux 5.6; CNA patch series v10, patch 2",
                source: "queue/qspin/mod.rs",
                bytes: 4, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "yes: first come, first served, but for one waiter who need not queue",
                strict: true, options: [],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock goes to whoever is next, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may go to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                ],
            }),
            (QspinCna, "qspin-cna", [stp => $crate::numa::QspinCna<$crate::wait::SpinThenPark>, spin => $crate::numa::QspinCna<$crate::wait::Spin>, park => $crate::numa::QspinCna<$crate::wait::Park>], {
                title: "CNA in the Linux kernel's queued spinlock, four bytes",
                paper: "Kogan & Dice, patch series v10, patches 3-5, and the replies to it, 2020",
                source: "numa/qspin_cna.rs",
                bytes: 4, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: true, fair: "bounded: waiters of other NUMA nodes are passed over for 2^flush= hand-overs or stay= microseconds",
                strict: true, options: [Flush, Stay, Incremental, Scan, Urgent],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock goes to a chosen waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may go to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                ],
            }),
            (Mcscr, "mcscr", [stp => $crate::malthusian::Mcscr<$crate::wait::SpinThenPark>, spin => $crate::malthusian::Mcscr<$crate::wait::Spin>, park => $crate::malthusian::Mcscr<$crate::wait::Park>], {
                title: "MCS that lets few threads circulate and keeps the others passive",
                paper: "Dice, Malthusian Locks, EuroSys 2017, section 4",
                source: "malthusian/mcscr.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "in the long run: the eldest passive waiter is served once in eldest= releases",
                strict: true, options: [Eldest],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to a chosen waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("slow_motion.release_at_any_point_of_*", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                    ("torture.freeze-waiter", "the lock is handed to a chosen waiter, whether it runs or not"),
                ],
            }),
            (Mcscrn, "mcscrn", [stp => $crate::malthusian::Mcscrn<$crate::wait::SpinThenPark>, spin => $crate::malthusian::Mcscrn<$crate::wait::Spin>, park => $crate::malthusian::Mcscrn<$crate::wait::Park>], {
                title: "MCSCR whose circulating threads are of one NUMA node",
                paper: "Dice, Malthusian Locks, EuroSys 2017, section 9.1",
                source: "malthusian/mcscrn.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: true, fair: "in the long run: once in eldest= releases another NUMA node has its turn",
                strict: true, options: [Eldest],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to a chosen waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                    ("slow_motion.release_at_any_point_of_*", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                ],
            }),
            (Loiter, "loiter", [stp => $crate::malthusian::Loiter<$crate::queue::Mcs<$crate::wait::SpinThenPark>, $crate::wait::SpinThenPark>, spin => $crate::malthusian::Loiter<$crate::queue::Mcs<$crate::wait::Spin>, $crate::wait::Spin>, park => $crate::malthusian::Loiter<$crate::queue::Mcs<$crate::wait::Park>, $crate::wait::Park>], {
                title: "a word to barge for, in front of MCS, whose head contends for it",
                paper: "Dice, Malthusian Locks, EuroSys 2017, appendix A.1",
                source: "malthusian/loiter.rs",
                bytes: 20, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 0,
                numa_aware: false, fair: "bounded: after bound= microseconds the one that contends is handed the lock; behind it, first come, first served",
                strict: true, options: [Bound],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to the thread that contends, once it is impatient, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                    ("slow_motion.release_at_any_point_of_*", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                ],
            }),
            (LoiterCna, "loiter-cna", [stp => $crate::malthusian::Loiter<$crate::numa::Cna<$crate::wait::SpinThenPark>, $crate::wait::SpinThenPark>, spin => $crate::malthusian::Loiter<$crate::numa::Cna<$crate::wait::Spin>, $crate::wait::Spin>, park => $crate::malthusian::Loiter<$crate::numa::Cna<$crate::wait::Park>, $crate::wait::Park>], {
                title: "a word to barge for, in front of CNA, whose head contends for it",
                paper: "Dice, Malthusian Locks, EuroSys 2017, appendix A.1",
                source: "malthusian/loiter.rs",
                bytes: 24, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 0,
                numa_aware: true, fair: "in the long run: the one that contends is handed the lock after bound= microseconds; behind it, as in CNA",
                strict: true, options: [Bound, Threshold, Countdown, Reduction, Refresh],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to the thread that contends, once it is impatient, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                    ("slow_motion.release_at_any_point_of_*", "the releaser waits for a successor that has joined the queue but not linked itself"),
                    ("slow_motion.fork_with_a_waiter_anywhere", "as above"),
                ],
            }),
            (LifoCr, "lifo-cr", [stp => $crate::malthusian::LifoCr<$crate::wait::SpinThenPark>, spin => $crate::malthusian::LifoCr<$crate::wait::Spin>, park => $crate::malthusian::LifoCr<$crate::wait::Park>], {
                title: "stack of waiters: the newest is next, and now and then the eldest",
                paper: "Dice, Malthusian Locks, EuroSys 2017, appendix A.2",
                source: "malthusian/lifo_cr.rs",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: false, fair: "in the long run: the eldest waiter is served once in eldest= releases",
                strict: true, options: [Eldest],
                exceptions: [
                    ("mutex_foreign.*", "its word does not follow glibc's protocol: code that bypasses flashlock must not touch its mutexes"),
                    ("slow_motion.*foreign*", "as above"),
                    ("signals.frozen_*", "the lock is handed to a chosen waiter, whether it runs or not"),
                    ("signals.handler_blocks_on_another_mutex_inside_a_lock", "as above: the lock may be handed to the thread whose handler waits"),
                    ("slow_motion.*stopped_anywhere_stops_nobody_else", "as above"),
                    ("torture.freeze-waiter", "as above"),
                ],
            }),
            (Shfl, "shfl", [stp => $crate::shuffle::Shfl<$crate::wait::SpinThenPark>, spin => $crate::shuffle::Shfl<$crate::wait::Spin>, park => $crate::shuffle::Shfl<$crate::wait::Park>], {
                title: "blocking ShflLock: NUMA-aware, for any number of threads",
                paper: "Kashyap et al., SOSP 2019; thesis defence, slides 33-69",
                source: "shuffle/shfl.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                numa_aware: true, fair: "bounded: after bound= microseconds the first waiter is handed the lock",
                strict: false, options: [Bound, Shuffles, Ahead],
                exceptions: [],
            }),
        }
    };
}

/// Calls `$use` with every option that is a number:
/// `(Variant, "name", field of Tunables = default, least..=most, "unit", "meaning")`.
#[macro_export]
macro_rules! for_each_option {
    ($use:path) => {
        $use! {
            (Bound, "bound", bound_us = 1000, 0..=10_000_000, "microseconds", "until the first waiter is handed the lock"),
            (Shuffles, "shuffles", max_shuffles = 1024, 0..=1_000_000, "waiters", "moved before arrival order rules again"),
            (Ahead, "ahead", wake_ahead = 1, 0..=1000, "sleepers", "woken before their turn"),
            (Threshold, "threshold", threshold = 65_536, 1..=1_000_000_000, "hand-overs", "of which one ends the preference for the holder's NUMA node"),
            (Countdown, "countdown", countdown = 0, 0..=1, "switch,", "1: each thread counts down to that hand-over; 0: it is drawn at each"),
            (Reduction, "reduction", reduction = 1, 1..=1_000_000_000, "hand-overs", "of which one looks for a waiter of the holder's NUMA node while nobody is aside"),
            (Refresh, "refresh", refresh = 1, 1..=1_000_000_000, "contended acquisitions", "until a thread asks for its NUMA node again"),
            (Flush, "flush", flush = 16, 0..=31, "doublings", "of one hand-over, until waiters of other NUMA nodes come back (16: 65,536 hand-overs)"),
            (Stay, "stay", stay_us = 10_000, 0..=10_000_000, "microseconds", "until waiters of other NUMA nodes come back; 0: no limit in time"),
            (Incremental, "incremental", incremental = 0, 0..=1, "switch,", "1: the head of the queue sets one waiter aside at most; 0: all up to the next of its NUMA node"),
            (Scan, "scan", scan = 1_000_000_000, 0..=1_000_000_000, "waiters", "that the head of the queue looks at, at most, once the lock is free"),
            (Urgent, "urgent", urgent = 0, 0..=1, "switch,", "1: threads of real-time scheduling policies are never set aside"),
            (Eldest, "eldest", eldest = 1000, 1..=1_000_000_000, "releases", "of which one serves the eldest passive waiter"),
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
    /// What is counted.
    pub unit: &'static str,
    /// What it means: continues the unit.
    pub meaning: &'static str,
    /// Its value in a set of tunables.
    pub get: fn(&Tunables) -> u32,
    /// Changes it there. The value is in its range.
    pub set: fn(&mut Tunables, u32),
}

macro_rules! define_options {
    ($(($variant:ident, $name:literal, $field:ident = $default:literal, $least:literal..=$most:literal, $unit:literal, $meaning:literal)),* $(,)?) => {
        /// Names an option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OptionId {
            $(#[doc = concat!("`", $name, "=`: ", $unit, " ", $meaning)] $variant),*
        }

        /// All options, in the order in which they are shown.
        pub const OPTIONS: &[OptionInfo] = &[$(OptionInfo {
            id: OptionId::$variant, name: $name, least: $least, most: $most, default: $default,
            unit: $unit, meaning: $meaning,
            get: |tunables| tunables.$field, set: |tunables, value| tunables.$field = value,
        }),*];

        /// What a user may tune, by `FLASHLOCK=name:option=value`. Read once, constant afterwards.
        #[derive(Clone, Copy, Debug)]
        pub struct Tunables {
            $(#[doc = concat!($unit, " ", $meaning, " (`", $name, "=`)")] pub $field: u32,)*
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

/// Waits and bounds are compared in microseconds that wrap at 2^32: up to `BOUND_FACTOR` times the bound must be told from a time
/// not yet come, so be less than half of that.
const BOUND_FACTOR: u64 = 200;
const _: () = assert!(OPTIONS[OptionId::Bound as usize].most as u64 * BOUND_FACTOR <= 1 << 31);

impl OptionId {
    /// What is known of it.
    pub fn info(self) -> &'static OptionInfo {
        &OPTIONS[self as usize]
    }
}

/// The lock used when the user names none.
pub const DEFAULT: LockId = LockId::Shfl;

/// The locks that users are told to consider, and those that these are measured by: what is compared when the user names none. The
/// further ones are the family's other members, made of the same parts.
pub const PRINCIPAL: &[LockId] =
    &[LockId::Tas, LockId::Futex, LockId::Ticket, LockId::Mcs, LockId::Cna, LockId::Mcscr, LockId::Shfl];

/// A check of the project's own conformance or torture suite to which a lock gives another answer than glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The check, as the suite names it (`torture.` before a torture scenario); `*` stands for anything.
    pub check: &'static str,
    /// Why this lock cannot do it.
    pub reason: &'static str,
}

/// What is known of a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockInfo {
    /// Which one it is.
    pub id: LockId,
    /// Its name, as users write it.
    pub name: &'static str,
    /// What it is, in a line.
    pub title: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// The file of this crate, below `src`, that begins with what there is to know of it.
    pub source: &'static str,
    /// Bytes of state in the lock.
    pub bytes: u32,
    /// Bytes per waiting thread (not per lock).
    pub bytes_per_waiter: u32,
    /// Atomic read-modify-writes in an uncontended acquisition.
    pub atomics_lock: u32,
    /// Atomic read-modify-writes in an uncontended release.
    pub atomics_unlock: u32,
    /// Whether it prefers hand-offs within a NUMA node.
    pub numa_aware: bool,
    /// How fair it is.
    pub fair: &'static str,
    /// Whether it hands over strictly, also to a waiter that is not running.
    pub strict: bool,
    /// The values of `wait=` it takes; the first is its default.
    pub waits: &'static [&'static str],
    /// The other options that it takes.
    pub options: &'static [OptionId],
    /// What it cannot do that glibc's mutex can.
    pub exceptions: &'static [Exception],
}

macro_rules! define_catalogue {
    ($(($variant:ident, $name:literal, [$($wait:ident => $type:ty),+], {
        title: $title:literal, paper: $paper:literal, source: $source:literal, bytes: $bytes:literal, bytes_per_waiter: $waiter:literal,
        atomics_lock: $al:literal, atomics_unlock: $au:literal, numa_aware: $numa:literal, fair: $fair:literal,
        strict: $strict:literal, options: [$($option:ident),* $(,)?],
        exceptions: [$(($check:literal, $reason:literal)),* $(,)?] $(,)?
    })),* $(,)?) => {
        /// Names a lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LockId {
            $(#[doc = $title] $variant),*
        }

        /// All locks, in the order in which they are shown.
        pub const LOCKS: &[LockInfo] = &[$(LockInfo {
            id: LockId::$variant, name: $name, title: $title, paper: $paper, source: $source, bytes: $bytes, bytes_per_waiter: $waiter,
            atomics_lock: $al, atomics_unlock: $au, numa_aware: $numa, fair: $fair, strict: $strict,
            waits: &[$(stringify!($wait)),+],
            options: &[$(OptionId::$option),*],
            exceptions: &[$(Exception { check: $check, reason: $reason }),*],
        }),*];
    };
}

for_each_lock!(define_catalogue);

impl LockInfo {
    /// The option of that name, if the lock takes it.
    pub fn option(&self, name: &str) -> Option<&'static OptionInfo> {
        self.options.iter().map(|option| option.info()).find(|option| option.name == name)
    }
}

impl LockId {
    /// Whether it is one of [`PRINCIPAL`].
    pub fn is_principal(self) -> bool {
        PRINCIPAL.contains(&self)
    }

    /// What is known of it.
    pub fn info(self) -> &'static LockInfo {
        &LOCKS[self as usize]
    }

    /// The lock of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        LOCKS.iter().find(|lock| lock.name == name).map(|lock| lock.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_index_the_list_and_names_are_found() {
        for lock in LOCKS {
            assert_eq!(lock.id.info().name, lock.name);
            assert_eq!(LockId::from_name(lock.name), Some(lock.id));
        }
        assert_eq!(LockId::from_name("no-such-lock"), None);
    }

    #[test]
    fn options_are_a_table_of_the_tunables() {
        for (index, option) in OPTIONS.iter().enumerate() {
            assert_eq!((option.id as usize, option.name), (index, option.id.info().name));
            assert!((option.least..=option.most).contains(&option.default), "{}", option.name);
            let mut tunables = Tunables::DEFAULT;
            assert_eq!((option.get)(&tunables), option.default);
            (option.set)(&mut tunables, option.most);
            for other in OPTIONS {
                let expected = if other.id == option.id { other.most } else { other.default };
                assert_eq!((other.get)(&tunables), expected, "{} after {}", other.name, option.name);
            }
            assert!(LOCKS.iter().any(|lock| lock.options.contains(&option.id)), "no lock takes {}", option.name);
        }
        assert!(LockId::Tas.info().option("bound").is_none() && LockId::Shfl.info().option("bound").is_some());
    }

    #[test]
    fn the_default_lock_can_do_everything() {
        assert!(DEFAULT.info().exceptions.is_empty() && DEFAULT.is_principal());
    }
}
