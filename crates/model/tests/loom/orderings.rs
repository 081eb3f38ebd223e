//! Ordering bugs, one at a time: each must be found. The algorithm is the production one; the machine does one
//! operation on one kind of word with a weaker ordering.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::machine::node::state;
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::malthusian::{LifoCr, Loiter, Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::{Cna, QspinCna};
use flashlock_locks::mutex::queue::{Clh, Mcs, McsTp, Qspin};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::mutex::spin::{Futex, Hbo, Tas, Ticket};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::find;
use flashlock_model::{Field, Op, Setup, Weaken};

use crate::common::Racers::Three;
use crate::common::{HASTY, sections};
use crate::culling::{self, STAYS};
use crate::forked::{NOTHING, forked_in_queueing};
use crate::{cond, evictions, flash, lifo, qspin, queues, states};

/// In a child, where more is accessed.
const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) }.in_a_child();
const OVERDUE: Setup = Setup { tunables: &HASTY, micros_step: 3, ..SETUP };
const BOUND: Depth = Preemptions(3);

const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
    Weaken { field, op, from, to }
}

macro_rules! found {
    ($($name:ident: [$($weak:expr),+], $setup:expr, $body:expr;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[$($weak),+];
            find(stringify!($name), BOUND, Setup { weaken: WEAKEN, ..$setup }, $body);
        }
    )*};
}

found! {
    tas_unlock: [weak(Field::LockWord, Op::Swap, Release, Relaxed)], SETUP, sections::<Tas>(&[1, 1]);
    tas_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Tas>(&[1, 1]);

    futex_unlock: [weak(Field::LockWord, Op::Swap, Release, Relaxed)], SETUP, sections::<Futex>(&[1, 1]);
    futex_lock_fast: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Futex>(&[1, 1]);
    futex_lock_slow: [weak(Field::LockWord, Op::Swap, Acquire, Relaxed)], SETUP, sections::<Futex>(&[1, 1]);

    flash_unlock: [weak(Field::LockWord, Op::Swap, Release, Relaxed)], SETUP, sections::<Flash>(&[1, 1]);
    flash_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Flash>(&[1, 1]);
    flash_grant: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], flash::OVERDUE, flash::released_to_a_head::<Flash>;
    flash_granted: [weak(Field::LockTail, Op::Cas, Acquire, Relaxed)],
        flash::OVERDUE, flash::released_to_a_head::<Flash>;
    flash_call: [weak(Field::LockNext, Op::Add, AcqRel, Acquire)], flash::SETUP, flash::passed_to_a_sleeper::<Flash>;
    flash_called: [weak(Field::LockNext, Op::Load, Acquire, Relaxed)],
        flash::SETUP, flash::passed_to_a_sleeper::<Flash>;

    mcs_unlock: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], SETUP, sections::<Mcs<Spin>>(&[1, 1]);
    mcs_lock_fast: [weak(Field::LockTail, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Mcs<Spin>>(&[1, 1]);
    mcs_enqueue_acquire: [weak(Field::LockTail, Op::Swap, AcqRel, Release)], SETUP, sections::<Mcs<Spin>>(&[1, 1]);
    mcs_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], SETUP, sections::<Mcs<Spin>>(&[1, 1]);
    mcs_turn: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, sections::<Mcs<Spin>>(&[1, 1]);

    hbo_unlock: [weak(Field::LockWord, Op::Store, Release, Relaxed)], SETUP, sections::<Hbo>(&[1, 1]);
    hbo_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Hbo>(&[1, 1]);

    clh_unlock: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], SETUP, sections::<Clh<Spin>>(&[1, 1]);
    clh_join_acquire: [weak(Field::LockTail, Op::Swap, AcqRel, Release)], SETUP, sections::<Clh<Spin>>(&[1, 1]);
    clh_join_release: [weak(Field::LockTail, Op::Swap, AcqRel, Acquire)],
        Setup { recycles: true, ..SETUP }, sections::<Clh<Park>>(&[2, 2]);
    clh_tell: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], SETUP, sections::<Clh<Spin>>(&[1, 1]);
    clh_told: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, sections::<Clh<Spin>>(&[1, 1]);
    clh_abandon: [weak(Field::NodeState, Op::SwapTo(state::ABANDONED), AcqRel, Acquire)],
        SETUP, queues::leaves_as_another_joins::<Clh<Spin>>;

    mcs_tp_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], SETUP, sections::<McsTp<Spin>>(&[1, 1]);
    mcs_tp_turn: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, sections::<McsTp<Spin>>(&[1, 1]);
    mcs_tp_evicted: [weak(Field::NodeState, Op::SwapTo(state::EVICTED), Release, Relaxed)],
        queues::STALE, || queues::passed_over::<McsTp<Park>>(2);
    mcscr_evicted: [weak(Field::NodeState, Op::SwapTo(state::EVICTED), Release, Relaxed)],
        evictions::LEAPING, || queues::passed_over::<Mcscr<Park>>(2);
    mcscrn_unlock: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], SETUP, sections::<Mcscrn<Spin>>(&[1, 1]);
    mcscrn_lock: [weak(Field::LockTail, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Mcscrn<Spin>>(&[1, 1]);
    mcscrn_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], SETUP, sections::<Mcscrn<Spin>>(&[1, 1]);
    mcscrn_turn: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, sections::<Mcscrn<Spin>>(&[1, 1]);

    loiter_unlock: [weak(Field::LockWord, Op::Cas, Release, Relaxed)],
        SETUP, sections::<Loiter<Mcs<Park>, Park>>(&[1, 1]);
    loiter_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)],
        SETUP, sections::<Loiter<Mcs<Park>, Park>>(&[1, 1]);
    loiter_grant: [weak(Field::LockWord, Op::Cas, Release, Relaxed)],
        OVERDUE, sections::<Loiter<Mcs<Park>, Park>>(&[1, 1]);

    lifo_unlock: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], SETUP, sections::<LifoCr<Spin>>(&[1, 1]);
    lifo_lock: [weak(Field::LockTail, Op::Cas, Acquire, Relaxed)], SETUP, sections::<LifoCr<Spin>>(&[1, 1]);
    lifo_push: [weak(Field::LockTail, Op::CasToNode, Release, Relaxed)], STAYS, lifo::pushed_as_the_stack_is_popped;
    lifo_pop: [weak(Field::LockTail, Op::Load, Acquire, Relaxed)], STAYS, lifo::pushed_as_the_stack_is_popped;
    lifo_pop_failed: [weak(Field::LockTail, Op::CasFailed, Acquire, Relaxed)],
        STAYS, lifo::pushed_as_the_stack_is_popped;
    lifo_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], SETUP, sections::<LifoCr<Spin>>(&[1, 1]);
    lifo_adopt: [weak(Field::LockTail, Op::Cas, AcqRel, Release)], STAYS, lifo::adopted_as_the_lock_is_used;
    lifo_turn: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, sections::<LifoCr<Spin>>(&[1, 1]);

    ticket_unlock: [weak(Field::TicketServing, Op::Store, Release, Relaxed)], SETUP, sections::<Ticket>(&[1, 1]);
    ticket_lock: [weak(Field::TicketServing, Op::Load, Acquire, Relaxed)], SETUP, sections::<Ticket>(&[1, 1]);

    cna_unlock: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], SETUP, sections::<Cna<Spin>>(&[1, 1]);
    cna_lock_fast: [weak(Field::LockTail, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Cna<Spin>>(&[1, 1]);
    cna_enqueue_acquire: [weak(Field::LockTail, Op::Swap, AcqRel, Release)], SETUP, sections::<Cna<Spin>>(&[1, 1]);
    cna_enqueue_release: [weak(Field::LockTail, Op::Swap, AcqRel, Acquire)],
        STAYS.in_a_child(), || culling::choice_against_joiner::<Cna<SpinThenPark>>(Three);
    cna_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], SETUP, sections::<Cna<Spin>>(&[1, 1]);
    cna_turn: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, sections::<Cna<Spin>>(&[1, 1]);
    cna_recall: [weak(Field::LockTail, Op::Cas, Release, Relaxed)],
        STAYS, || culling::recall_against_joiner::<Cna<SpinThenPark>>(Three);
    mcscr_grant: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)],
        STAYS, || culling::recall_against_joiner::<Mcscr<SpinThenPark>>(Three);

    qspin_unlock: [weak(Field::LockWord, Op::Add, Release, Relaxed)], SETUP, sections::<Qspin<Spin>>(&[1, 1]);
    qspin_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Qspin<Spin>>(&[1, 1]);
    qspin_close: [weak(Field::LockWord, Op::Cas, AcqRel, Release)], SETUP, sections::<Qspin<Park>>(&[1, 1, 1]);
    qspin_join_acquire: [weak(Field::LockWord, Op::Swap, AcqRel, Release)], qspin::SETUP.in_a_child(), qspin::two_join;
    qspin_join_release: [weak(Field::LockWord, Op::Swap, AcqRel, Acquire)], qspin::SETUP.in_a_child(), qspin::two_join;
    qspin_vacant: [weak(Field::LockWord, Op::Load, Acquire, Relaxed)],
        qspin::SETUP.in_a_child(), qspin::tried_as_somebody_queues;
    qspin_link_acquire: [weak(Field::NodeNext, Op::Swap, AcqRel, Release)],
        qspin::SETUP, qspin::left_to_joiner::<QspinCna<SpinThenPark>>;
    qspin_cna_tell: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)],
        qspin::SETUP, qspin::front_goes_on::<QspinCna<SpinThenPark>>;
    qspin_cna_told: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)],
        qspin::SETUP, qspin::front_goes_on::<QspinCna<SpinThenPark>>;

    shfl_spin_unlock: [weak(Field::LockWord, Op::Store, Release, Relaxed)], SETUP, sections::<ShflSpin>(&[1, 1]);
    shfl_spin_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<ShflSpin>(&[1, 1]);

    shfl_unlock: [weak(Field::LockWord, Op::Swap, Release, Relaxed)], SETUP, sections::<Shfl<Park>>(&[1, 1]);
    shfl_lock: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], SETUP, sections::<Shfl<SpinThenPark>>(&[1, 1]);
    shfl_doze_wins: [weak(Field::LockWord, Op::Swap, AcqRel, Release)], SETUP, sections::<Shfl<Park>>(&[1, 1]);
    shfl_grant_release: [weak(Field::LockHead, Op::Cas, AcqRel, Acquire)],
        OVERDUE, states::grant_against_doze::<Shfl<SpinThenPark>>;
    shfl_grant_acquire: [weak(Field::LockHead, Op::Cas, AcqRel, Release)], OVERDUE, sections::<Shfl<Spin>>(&[1, 1]);
    shfl_promise: [weak(Field::LockWord, Op::Swap, AcqRel, Relaxed)], OVERDUE, states::grant_against_doze::<Shfl<Park>>;
    shfl_enqueue: [weak(Field::LockTail, Op::Swap, AcqRel, Acquire)], SETUP, sections::<Shfl<Park>>(&[1, 1, 1]);

    mcs_enqueue_release: [weak(Field::LockTail, Op::Swap, AcqRel, Acquire)], SETUP, sections::<Mcs<Park>>(&[1, 1, 1]);
    mcs_tail_load: [weak(Field::LockTail, Op::Load, Acquire, Relaxed)], SETUP, sections::<Mcs<Park>>(&[1, 1, 1]);
    mcs_abandon: [weak(Field::NodeState, Op::CasFailed, Acquire, Relaxed)], SETUP, crate::common::timed::<Mcs<Park>>();
    shfl_enqueue_acquire: [weak(Field::LockTail, Op::Swap, AcqRel, Release)], SETUP, sections::<Shfl<Park>>(&[1, 1, 1]);

    shfl_role_given: [
        weak(Field::NodeBatch, Op::And, Release, Relaxed),
        weak(Field::NodeBatch, Op::Or, Release, Relaxed)
    ],
        Setup { nodes: 7, ..SETUP }, crate::walks::hand_over;
    shfl_role_taken: [
        weak(Field::NodeBatch, Op::Load, Acquire, Relaxed),
        weak(Field::NodeBatch, Op::Cas, Acquire, Relaxed)
    ],
        Setup { nodes: 7, ..SETUP }, crate::walks::hand_over;

    cond_unlock: [weak(Field::CondLock, Op::Swap, Release, Relaxed)],
        SETUP, || cond::signal_against_deadline::<Futex>(false);
    cond_lock: [weak(Field::CondLock, Op::Cas, Acquire, Relaxed)],
        SETUP, || cond::signal_against_deadline::<Futex>(false);
    cond_settled: [weak(Field::CondEpoch, Op::Store, Release, Relaxed)], SETUP, || forked_in_queueing(NOTHING);
    cond_settles: [weak(Field::CondEpoch, Op::Load, Acquire, Relaxed)], SETUP, || forked_in_queueing(NOTHING);
    cond_tell: [weak(Field::NodeState, Op::Store, Release, Relaxed)], SETUP, || cond::destroy::<Futex>(true, false);
    cond_told: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], SETUP, || cond::destroy::<Futex>(true, false);
}
