//! The list of mutexes.

/// Calls `$use` with every lock: `(Variant, "name", [wait => type, …], { facts })`. The waits are the values of `wait=`
/// that the lock has, each with the type that implements it; the first is its default. The first fact is what the lock
/// makes of NUMA nodes ([`Numa`](crate::catalogue::Numa)), so that macros can tell locks apart by it. Others are what
/// it claims ([`Claim`](crate::catalogue::Claim)), the further options that it takes, by their
/// [`OptionId`](crate::catalogue::OptionId), and what it cannot do, by the names of groups of
/// [`exceptions`](crate::catalogue::exceptions). A long `paper` or `fair` is several literals.
#[macro_export]
macro_rules! for_each_lock {
    ($use:path) => {
        $use! {
            (Tas, "tas", [stp => $crate::mutex::spin::Tas], {
                numa: Unaware, title: "test-and-set with back-off",
                paper: "Anderson, TPDS 1990; back-off as in Malthusian Locks, section 5.1",
                source: "mutex/spin/tas.rs",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                fair: "no: waiters may be passed over without bound",
                strict: false, claims: [], options: [],
                exceptions: [SLEEPS_ON_WORD],
            }),
            (Futex, "futex", [park => $crate::mutex::spin::Futex], {
                numa: Unaware, title: "three-state futex lock: the algorithm of glibc's mutex",
                paper: "Drepper, Futexes Are Tricky, 2011, section 5",
                source: "mutex/spin/futex.rs",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                fair: "no: a running thread passes sleepers over without bound",
                strict: false, claims: [], options: [],
                exceptions: [SLEEPS_ON_WORD],
            }),
            (Ticket, "ticket", [spin => $crate::mutex::spin::Ticket], {
                numa: Unaware, title: "ticket lock with proportional back-off",
                paper: "Reed & Kanodia, CACM 1979; Mellor-Crummey & Scott, TOCS 1991, algorithm 2",
                source: "mutex/spin/ticket.rs",
                bytes: 12, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 0,
                fair: "yes: first come, first served; timed acquisitions come after all others",
                strict: true, claims: [InOrder, Serves], options: [],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, POLLS],
            }),
            (Hbo, "hbo", [spin => $crate::mutex::spin::Hbo], {
                numa: Prefers, title: "test-and-set with longer back-off on other NUMA nodes",
                paper: "Radovic & Hagersten, HPCA 2003",
                source: "mutex/spin/hbo.rs",
                bytes: 4, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 0,
                fair: "no: one NUMA node may keep the lock without bound",
                strict: false, claims: [Local], options: [],
                exceptions: [FOREIGN_CODE, ONE_BY_ONE, POLLS],
            }),
            (Clh, "clh", [
                stp => $crate::mutex::queue::Clh<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::queue::Clh<$crate::parts::wait::Spin>,
                park => $crate::mutex::queue::Clh<$crate::parts::wait::Park>,
                umwait => $crate::mutex::queue::Clh<$crate::parts::wait::Umwait>
            ], {
                numa: Unaware, title: "queue lock: each waiter watches its predecessor's queue node",
                paper: "Craig, 1993; Magnusson, Landin & Hagersten, IPPS 1994; time-outs as in Scott & Scherer, PPoPP "
                       "2001",
                source: "mutex/queue/clh.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "yes: first come, first served",
                strict: true, claims: [InOrder, Serves], options: [],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (Mcs, "mcs", [
                stp => $crate::mutex::queue::Mcs<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::queue::Mcs<$crate::parts::wait::Spin>,
                park => $crate::mutex::queue::Mcs<$crate::parts::wait::Park>,
                umwait => $crate::mutex::queue::Mcs<$crate::parts::wait::Umwait>
            ], {
                numa: Unaware, title: "queue lock: each waiter watches its own cache line",
                paper: "Mellor-Crummey & Scott, TOCS 1991",
                source: "mutex/queue/mcs.rs",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "yes: first come, first served",
                strict: true, claims: [InOrder, Serves], options: [],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (McsTp, "mcs-tp", [
                stp => $crate::mutex::queue::McsTp<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::queue::McsTp<$crate::parts::wait::Spin>,
                park => $crate::mutex::queue::McsTp<$crate::parts::wait::Park>,
                umwait => $crate::mutex::queue::McsTp<$crate::parts::wait::Umwait>
            ], {
                numa: Unaware, title: "MCS that passes over waiters that lose their CPU",
                paper: "He, Scherer & Scott, HiPC 2005",
                source: "mutex/queue/mcs_tp.rs",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "no: a preempted waiter loses its place",
                strict: true, claims: [], options: [],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (Cna, "cna", [
                stp => $crate::mutex::numa::Cna<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::numa::Cna<$crate::parts::wait::Spin>,
                park => $crate::mutex::numa::Cna<$crate::parts::wait::Park>,
                umwait => $crate::mutex::numa::Cna<$crate::parts::wait::Umwait>
            ], {
                numa: Prefers, title: "compact NUMA-aware queue lock",
                paper: "Dice & Kogan, EuroSys 2019, sections 4-6",
                source: "mutex/numa/cna.rs",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: waiters of the holder's NUMA node go first, except once in threshold= "
                      "hand-offs",
                strict: true, claims: [Serves, Local], options: [Threshold, Countdown, Reduction, Refresh],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (CBoMcs, "c-bo-mcs", [
                stp => $crate::mutex::numa::CBoMcs<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::numa::CBoMcs<$crate::parts::wait::Spin>,
                park => $crate::mutex::numa::CBoMcs<$crate::parts::wait::Park>,
                umwait => $crate::mutex::numa::CBoMcs<$crate::parts::wait::Umwait>
            ], {
                numa: LockEach, title: "cohort lock: MCS on each NUMA node, back-off lock above",
                paper: "Dice, Marathe & Shavit, Lock Cohorting, PPoPP 2012 and TOPC 2015",
                source: "mutex/numa/cohort/mod.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "no: one NUMA node may take the lock again and again, without bound",
                strict: true, claims: [Local], options: [Passes],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, SLEEPS_ON_WORD],
            }),
            (CTktTkt, "c-tkt-tkt", [spin => $crate::mutex::numa::CTktTkt], {
                numa: LockEach, title: "cohort lock: ticket lock on each NUMA node, ticket lock above",
                paper: "Dice, Marathe & Shavit, Lock Cohorting, PPoPP 2012 and TOPC 2015",
                source: "mutex/numa/cohort/mod.rs",
                bytes: 20, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 0,
                fair: "in the long run: after passes= hand-offs, the lock goes to another NUMA node; timed "
                      "acquisitions come after all others",
                strict: true, claims: [Serves, Local], options: [Passes],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, POLLS],
            }),
            (CPtlTkt, "c-ptl-tkt", [spin => $crate::mutex::numa::CPtlTkt], {
                numa: LockEach, title: "cohort lock: as c-tkt-tkt, partitioned ticket lock above",
                paper: "Dice, Marathe & Shavit, Lock Cohorting, PPoPP 2012 and TOPC 2015; Dice, SPAA 2011",
                source: "mutex/numa/cohort/mod.rs",
                bytes: 20, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: after passes= hand-offs, the lock goes to another NUMA node; timed "
                      "acquisitions come after all others",
                strict: true, claims: [Serves, Local], options: [Passes],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, POLLS],
            }),
            (Hmcs, "hmcs", [
                stp => $crate::mutex::numa::Hmcs<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::numa::Hmcs<$crate::parts::wait::Spin>,
                park => $crate::mutex::numa::Hmcs<$crate::parts::wait::Park>,
                umwait => $crate::mutex::numa::Hmcs<$crate::parts::wait::Umwait>
            ], {
                numa: LockEach, title: "hierarchical MCS: a queue for each NUMA node, one above them",
                paper: "Chabbi, Fagan & Mellor-Crummey, PPoPP 2015",
                source: "mutex/numa/hmcs.rs",
                bytes: 20, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: after passes= hand-offs, the lock goes to the next NUMA node",
                strict: true, claims: [Serves, Local], options: [Passes, Levels, Near],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (Cst, "cst", [
                stp => $crate::mutex::numa::Cst<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::numa::Cst<$crate::parts::wait::Spin>,
                park => $crate::mutex::numa::Cst<$crate::parts::wait::Park>,
                umwait => $crate::mutex::numa::Cst<$crate::parts::wait::Umwait>
            ], {
                numa: LockEach, title: "a queue for each NUMA node, one above; sleepers are culled",
                paper: "Kashyap, Min & Kim, USENIX ATC 2017",
                source: "mutex/numa/cst.rs",
                bytes: 20, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: after passes= hand-offs, the lock goes to the next NUMA node; each node's turn "
                      "ends with its eldest sleeper",
                strict: true, claims: [Serves, Local], options: [Passes],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (Qspin, "qspin", [
                stp => $crate::mutex::queue::Qspin<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::queue::Qspin<$crate::parts::wait::Spin>,
                park => $crate::mutex::queue::Qspin<$crate::parts::wait::Park>,
                umwait => $crate::mutex::queue::Qspin<$crate::parts::wait::Umwait>
            ], {
                numa: Unaware, title: "the Linux kernel's queued spinlock, in four bytes",
                paper: "Long & Zijlstra, qspinlock.c, Linux 5.6; CNA patch series v10, patch 2",
                source: "mutex/queue/qspin/mod.rs",
                bytes: 4, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "yes: first come, first served, except for one waiter that need not queue",
                strict: true, claims: [InOrder, Serves], options: [],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, SLEEPS_ON_WORD],
            }),
            (QspinCna, "qspin-cna", [
                stp => $crate::mutex::numa::QspinCna<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::numa::QspinCna<$crate::parts::wait::Spin>,
                park => $crate::mutex::numa::QspinCna<$crate::parts::wait::Park>,
                umwait => $crate::mutex::numa::QspinCna<$crate::parts::wait::Umwait>
            ], {
                numa: Prefers, title: "CNA in the Linux kernel's queued spinlock, in four bytes",
                paper: "Kogan & Dice, patch series v10, patches 3-5, and the replies to it, 2020",
                source: "mutex/numa/qspin_cna.rs",
                bytes: 4, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "bounded: waiters of other NUMA nodes are passed over for 2^flush hand-offs or stay= "
                      "microseconds at most",
                strict: true, claims: [Serves, Bounded, Local],
                options: [Flush, Stay, Incremental, Scan, Reduction, Urgent],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, SLEEPS_ON_WORD],
            }),
            (Mcscr, "mcscr", [
                stp => $crate::mutex::malthusian::Mcscr<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::malthusian::Mcscr<$crate::parts::wait::Spin>,
                park => $crate::mutex::malthusian::Mcscr<$crate::parts::wait::Park>,
                umwait => $crate::mutex::malthusian::Mcscr<$crate::parts::wait::Umwait>
            ], {
                numa: Unaware, title: "MCS with concurrency restriction: few threads circulate",
                paper: "Dice, Malthusian Locks, EuroSys 2017, section 4",
                source: "mutex/malthusian/mcscr.rs",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: the eldest passive waiter is served about once in eldest= releases",
                strict: true, claims: [Serves, Restricts], options: [Eldest, Evict],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (Mcscrn, "mcscrn", [
                stp => $crate::mutex::malthusian::Mcscrn<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::malthusian::Mcscrn<$crate::parts::wait::Spin>,
                park => $crate::mutex::malthusian::Mcscrn<$crate::parts::wait::Park>,
                umwait => $crate::mutex::malthusian::Mcscrn<$crate::parts::wait::Umwait>
            ], {
                numa: Prefers, title: "MCSCR whose circulating threads run on one NUMA node",
                paper: "Dice, Malthusian Locks, EuroSys 2017, section 9.1",
                source: "mutex/malthusian/mcscrn.rs",
                bytes: 8, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: about once in eldest= releases, another NUMA node has its turn",
                strict: true, claims: [Serves, Local, Restricts], options: [Eldest, Evict],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (Loiter, "loiter", [
                stp => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::queue::Mcs<$crate::parts::wait::SpinThenPark>, $crate::parts::wait::SpinThenPark
                >,
                spin => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::queue::Mcs<$crate::parts::wait::Spin>, $crate::parts::wait::Spin
                >,
                park => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::queue::Mcs<$crate::parts::wait::Park>, $crate::parts::wait::Park
                >,
                umwait => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::queue::Mcs<$crate::parts::wait::Umwait>, $crate::parts::wait::Umwait
                >
            ], {
                numa: Unaware, title: "newcomers may take the free lock; others queue in MCS",
                paper: "Dice, Malthusian Locks, EuroSys 2017, appendix A.1",
                source: "mutex/malthusian/loiter.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "bounded: after bound= microseconds the standby thread is handed the lock; the threads behind it "
                      "are served first come, first served",
                strict: true, claims: [Serves, Bounded, Twice, Restricts], options: [Bound, Spinners],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (LoiterCna, "loiter-cna", [
                stp => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::numa::Cna<$crate::parts::wait::SpinThenPark>, $crate::parts::wait::SpinThenPark
                >,
                spin => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::numa::Cna<$crate::parts::wait::Spin>, $crate::parts::wait::Spin
                >,
                park => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::numa::Cna<$crate::parts::wait::Park>, $crate::parts::wait::Park
                >,
                umwait => $crate::mutex::malthusian::Loiter<
                    $crate::mutex::numa::Cna<$crate::parts::wait::Umwait>, $crate::parts::wait::Umwait
                >
            ], {
                numa: Prefers, title: "newcomers may take the free lock; others queue in CNA",
                paper: "Dice, Malthusian Locks, EuroSys 2017, appendix A.1",
                source: "mutex/malthusian/loiter.rs",
                bytes: 16, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: after bound= microseconds the standby thread is handed the lock; the threads "
                      "behind it are served as in CNA",
                strict: true, claims: [Serves, Restricts],
                options: [Bound, Spinners, Threshold, Countdown, Reduction, Refresh],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (LifoCr, "lifo-cr", [
                stp => $crate::mutex::malthusian::LifoCr<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::malthusian::LifoCr<$crate::parts::wait::Spin>,
                park => $crate::mutex::malthusian::LifoCr<$crate::parts::wait::Park>,
                umwait => $crate::mutex::malthusian::LifoCr<$crate::parts::wait::Umwait>
            ], {
                numa: Unaware, title: "stack of waiters: serves the newest, sometimes the eldest",
                paper: "Dice, Malthusian Locks, EuroSys 2017, appendix A.2",
                source: "mutex/malthusian/lifo_cr.rs",
                bytes: 4, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "in the long run: the eldest waiter is served about once in eldest= releases",
                strict: true, claims: [Serves, Restricts], options: [Eldest],
                exceptions: [FOREIGN_CODE, NOT_RUNNING],
            }),
            (ShflSpin, "shfl-spin", [spin => $crate::mutex::shuffle::ShflSpin], {
                numa: Prefers, title: "non-blocking ShflLock: NUMA-aware, one store to release",
                paper: "Kashyap et al., SOSP 2019; thesis defence, slides 41-57",
                source: "mutex/shuffle/spin.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 0,
                fair: "bounded: after bound= microseconds the first waiter contends alone",
                strict: true, claims: [Serves, Bounded, Local], options: [Bound, Shuffles, Policy],
                exceptions: [FOREIGN_CODE, NOT_RUNNING, POLLS],
            }),
            (Shfl, "shfl", [
                stp => $crate::mutex::shuffle::Shfl<$crate::parts::wait::SpinThenPark>,
                spin => $crate::mutex::shuffle::Shfl<$crate::parts::wait::Spin>,
                park => $crate::mutex::shuffle::Shfl<$crate::parts::wait::Park>,
                umwait => $crate::mutex::shuffle::Shfl<$crate::parts::wait::Umwait>
            ], {
                numa: Prefers, title: "blocking ShflLock: NUMA-aware, for any number of threads",
                paper: "Kashyap et al., SOSP 2019; thesis defence, slides 33-69",
                source: "mutex/shuffle/shfl.rs",
                bytes: 12, bytes_per_waiter: 128, atomics_lock: 1, atomics_unlock: 1,
                fair: "bounded: after bound= microseconds the first waiter is handed the lock",
                strict: false, claims: [Serves, Bounded, Local], options: [Bound, Shuffles, Ahead, Policy],
                exceptions: [],
            }),
            (Flash, "flash", [stp => $crate::mutex::flash::Flash], {
                numa: Unaware, title: "running threads may take it; one waiter contends, others sleep",
                paper: "this project; parts after Dice, Malthusian Locks, EuroSys 2017",
                source: "mutex/flash/mod.rs",
                bytes: 16, bytes_per_waiter: 0, atomics_lock: 1, atomics_unlock: 1,
                fair: "bounded: after bound= microseconds the first waiter is handed the lock",
                strict: false, claims: [Serves, Bounded, Twice], options: [Bound],
                exceptions: [],
            }),
        }
    };
}
