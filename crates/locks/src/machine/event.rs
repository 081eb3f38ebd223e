//! # The event list
//!
//! All events that a lock reports. The statistics of `flashlock run --stats`, their JSON and their documentation are
//! made from this list.

/// Calls `$use` with every event: variant, name in JSON, what it counts; a long text is several literals.
#[macro_export]
macro_rules! for_each_event {
    ($use:path) => {
        $use! {
            (Acquire, "acquisitions", "mutex acquisitions, contended or not"),
            (Contended, "contended", "acquisitions that found the lock held"),
            (TimedOut, "timed_out", "timed acquisitions that gave up"),
            (Park, "parks", "times a thread went to sleep waiting for a mutex or a readers-writer lock"),
            (Wake, "wakes", "futex wake calls made for waiters of mutexes and readers-writer locks"),
            (HandoffSame, "handoffs_same_node", "queue hand-offs to a waiter on the same NUMA node"),
            (HandoffOther, "handoffs_other_node", "queue hand-offs to a waiter on another NUMA node"),
            (Given, "handoffs_to_joiners",
                "queue hand-offs to a waiter that had joined but not linked itself yet"),
            (Steal, "steals", "acquisitions by a thread that was not at the head of the queue, while others queued"),
            (Grant, "grants", "times a waiter was handed the lock because it had waited for longer than the bound"),
            (Shuffle, "shuffles", "waiters moved forward in a queue, as its policy wants"),
            (WakeAhead, "wake_aheads", "parked waiters woken before their turn"),
            (Alteration, "alterations", "times CNA moved waiters between its main and its secondary queue"),
            (Cull, "culls", "surplus waiters that an MCSCR release moved into the passive set"),
            (Reprovision, "reprovisions",
                "passive waiters (the newest each time) that an MCSCR release made active because no other thread "
                "waited"),
            (Eldest, "eldest_served",
                "times an MCSCR, MCSCRN or LIFO-CR release served the waiter that had waited for longest, for "
                "fairness"),
            (Rehome, "rehomes", "times an MCSCRN release changed the home NUMA node"),
            (Evict, "evictions",
                "waiters that a release of mcs-tp, or one under `evict=1`, evicted because they did not run; each "
                "queues anew"),
            (SideBlock, "side_blocks", "side blocks made for cohort locks"),
            (CohortPass, "cohort_passes",
                "times a cohort lock was handed over within a NUMA node together with its global lock (with more than "
                "two levels: to another group of CPUs)"),
            (CohortNear, "cohort_near_passes",
                "times `hmcs` with more than two levels was handed over within a group of CPUs, together with all "
                "levels above"),
            (CohortMove, "cohort_moves",
                "times the global lock of a cohort lock was acquired by a NUMA node that had not held it last"),
            (CohortCulling, "cohort_culls",
                "sleeping waiters that a release of `cst` culled, to be woken at the end of a turn of their NUMA node"),
            (CondWait, "cond_waits", "condition variable waits"),
            (CondSignal, "cond_signals", "condition variable signals that found a waiter"),
            (CondBroadcast, "cond_broadcasts", "broadcasts that found a waiter"),
            (CondMoved, "cond_moved", "broadcast waiters that the mutex's lock adopted, to be woken in their turn"),
            (SpinAcquire, "spin_acquisitions", "spinlock acquisitions, contended or not"),
            (SpinContended, "spin_contended", "spinlock acquisitions that found the lock held"),
            (SemAcquire, "sem_acquisitions", "semaphore waits and tries that took a permit"),
            (SemQueued, "sem_queued", "semaphore waits that found no permit, and joined the queue"),
            (SemPost, "sem_posts", "permits given to semaphores"),
            (SemWake, "sem_wakes", "queued semaphore waits that a post ended"),
            (GlibcRobust, "glibc_robust", "operations left to glibc: robust mutex"),
            (GlibcPi, "glibc_pi", "operations left to glibc: priority-inheriting mutex"),
            (GlibcPp, "glibc_pp", "operations left to glibc: priority-protected mutex"),
            (GlibcShared, "glibc_shared",
                "operations left to glibc: process-shared mutex, condition variable or readers-writer lock"),
            (GlibcUnknown, "glibc_unknown",
                "operations left to glibc: unknown kind, or a glibc whose layout is unknown"),
            (GlibcSem, "glibc_sem",
                "operations left to glibc: semaphore that is process-shared, named, or not initialised here"),
            (RobustObject, "glibc_robust_objects",
                "objects left to glibc, counted at their initialisation: robust mutexes"),
            (PiObject, "glibc_pi_objects",
                "objects left to glibc, counted at their initialisation: priority-inheriting mutexes"),
            (PpObject, "glibc_pp_objects",
                "objects left to glibc, counted at their initialisation: priority-protected mutexes"),
            (SharedObject, "glibc_shared_objects",
                "objects left to glibc, counted at their initialisation: process-shared mutexes, condition variables "
                "and readers-writer locks"),
            (SemObject, "glibc_sem_objects",
                "objects left to glibc, counted at their initialisation: process-shared and named semaphores"),
            (RwRead, "rw_reads", "readers-writer lock acquisitions for reading"),
            (RwWrite, "rw_writes", "readers-writer lock acquisitions for writing"),
            (RwContended, "rw_contended",
                "readers-writer lock acquisitions that had to wait, for a holder or for an earlier waiter"),
            (RwTimedOut, "rw_timed_out", "timed readers-writer lock acquisitions that gave up"),
            (RwPassed, "rw_passed", "readers that passed a waiting writer after the bound"),
            (RwBarred, "rw_barred",
                "times the first waiter of a readers-writer lock barred newcomers because it had waited for longer "
                "than the bound"),
            (RwDistributed, "rw_distributed", "times a cst-rw lock switched to distributed counters"),
            (RwTogether, "rw_centralised", "times a cst-rw lock returned to its central counter"),
        }
    };
}

macro_rules! define_events {
    ($(($variant:ident, $name:literal, $($doc:literal)+)),* $(,)?) => {
        /// Something that happened in a lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Event {
            $(#[doc = concat!($($doc),+)] $variant),*
        }

        impl Event {
            /// All events, in the order of their counters.
            pub const ALL: &'static [Event] = &[$(Event::$variant),*];

            /// Its name in JSON output.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$variant => $name),* }
            }

            /// What it counts.
            pub const fn describe(self) -> &'static str {
                match self { $(Event::$variant => concat!($($doc),+)),* }
            }
        }
    };
}

for_each_event!(define_events);

impl Event {
    /// For an operation left to glibc: the event that counts the objects left to it for the same reason, if these must
    /// have been initialised by a call.
    pub const fn objects(self) -> Option<Event> {
        match self {
            Self::GlibcRobust => Some(Self::RobustObject),
            Self::GlibcPi => Some(Self::PiObject),
            Self::GlibcPp => Some(Self::PpObject),
            Self::GlibcShared => Some(Self::SharedObject),
            Self::GlibcSem => Some(Self::SemObject),
            _ => None,
        }
    }
}
