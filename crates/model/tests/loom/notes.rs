//! Queues that are joined in two steps: a release does not wait for a thread that has joined and not linked itself, but
//! leaves it a note. Here a thread joins as the lock is released, whatever else is in the queue, and finds the note.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::{Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::{CBoMcs, Cna, Cst, Hmcs};
use flashlock_locks::mutex::queue::{Mcs, McsTp};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::erased::erased;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Field, Op, Setup, Weaken};

use crate::cohort::InLine;
use crate::common::{AnyMutex, Lock, Racers, all_done, joins, sections, world};
use crate::culling::{STAYS, recall_against_joiner};

/// Crowded: no waiter polls on.
const SETUP: Setup = Setup { polls: 1, crowded: true, ..Setup::new(6) };

/// The lock is held, two threads come, one of them for a short time only, and the lock is released.
fn comes_as_one_leaves<L: Lock>() {
    comes_as_one_leaves_of(erased::<Loomed, L>);
}

fn comes_as_one_leaves_of(new: fn() -> AnyMutex) {
    let mutex = Arc::new(new());
    mutex.lock();
    let hasty = {
        let mutex = mutex.clone();
        thread::spawn(move || _ = mutex.section_until(world().deadline(0)))
    };
    let joiner = joins(&mutex, 0);
    mutex.visit();
    mutex.unlock();
    all_done(&mutex, [hasty, joiner]);
    mutex.free();
}

macro_rules! notes {
    ($($name:ident: $lock:ty;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn are_found() {
                let name = concat!(stringify!($name), " note");
                explore(name, Preemptions(3), SETUP, sections::<$lock>(&[1, 1])).shows(&[Event::Given]);
                explore(name, Preemptions(1), SETUP, sections::<$lock>(&[1, 1, 1]));
            }

            #[test]
            fn are_found_behind_who_leaves() {
                let name = concat!(stringify!($name), " note, time-out");
                explore(
                    name,
                    Preemptions(2),
                    SETUP,
                    comes_as_one_leaves::<$lock>,
                )
                .shows(&[Event::Given, Event::TimedOut]);
            }

            #[test]
            fn are_found_in_a_forked_child() {
                let name = concat!(stringify!($name), " note, child");
                explore(name, Preemptions(2), SETUP.in_a_child(), sections::<$lock>(&[1, 1])).shows(&[Event::Given]);
            }
        }
    )*};
}

notes! {
    mcs_park: Mcs<Park>;
    mcs_stp: Mcs<SpinThenPark>;
    mcs_tp_park: McsTp<Park>;
    cna_park: Cna<Park>;
    mcscr_park: Mcscr<Park>;
    mcscrn_park: Mcscrn<Park>;
    c_bo_mcs_park: InLine<CBoMcs<Park>>;
    hmcs_park: Hmcs<Park>;
    cst_park: Cst<Park>;
    cst_stp: Cst<SpinThenPark>;
}

/// There are culled waiters: they go with the lock, or get it before the joiner.
#[test]
fn those_aside_go_with_the_lock() {
    let shows = [Event::Given];
    for racers in Racers::BOTH {
        explore("cna", racers.depth(), STAYS, move || recall_against_joiner::<Cna<Park>>(racers)).shows(&shows);
        explore("mcscr", racers.depth(), STAYS, move || recall_against_joiner::<Mcscr<Park>>(racers)).shows(&shows);
        explore("mcscrn", racers.depth(), STAYS, move || recall_against_joiner::<Mcscrn<Park>>(racers)).shows(&shows);
    }
}

macro_rules! orderings {
    ($($name:ident: $field:ident, $op:ident, $from:ident => $to:ident, $body:expr;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[Weaken { field: Field::$field, op: Op::$op, from: $from, to: $to }];
            find(stringify!($name), Preemptions(3), Setup { weaken: WEAKEN, ..SETUP }, $body);
        }
    )*};
}

orderings! {
    note_in_the_lock: LockNext, Cas, Release => Relaxed, sections::<Mcs<Spin>>(&[1, 1]);
    note_in_the_lock_found: LockNext, Swap, AcqRel => Release, sections::<Mcs<Spin>>(&[1, 1]);
    note_in_a_node: NodeNext, Cas, Release => Relaxed, sections::<Mcs<Spin>>(&[1, 1, 1]);
    note_in_a_node_found: NodeNext, Swap, AcqRel => Release, sections::<Mcs<Spin>>(&[1, 1, 1]);
    note_in_a_part: BlockNext, Cas, Release => Relaxed, sections::<InLine<Hmcs<Park>>>(&[1, 1]);
    note_in_a_part_found: BlockNext, Swap, AcqRel => Release, sections::<InLine<Hmcs<Park>>>(&[1, 1]);
}
