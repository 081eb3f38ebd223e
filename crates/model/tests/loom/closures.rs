//! Closure locks: each request runs exactly once, alone, and the thread that made it sees the result; the orderings
//! that this rests on.

use std::sync::Arc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use flashlock_locks::closure::{CcSynch, FlatCombining, RawClosure};
use flashlock_locks::for_each_standalone_lock;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::loom::Depth::{self, Preemptions};
use flashlock_model::loom::thread;
use flashlock_model::loom::{Loomed, explore, find};
use flashlock_model::{Field, Loom, Op, Setup, Weaken};

use crate::closure_mutants::*;
use crate::common::ALL;
use crate::modelled::each;

const SETUP: Setup = Setup { polls: 1, ..Setup::new(8) };
const BOUND: Depth = Preemptions(3);

/// A lock that can be modelled.
trait Lock: RawClosure<Loom, State: Words<Loomed>> {}
impl<L: RawClosure<Loom, State: Words<Loomed>>> Lock for L {}

/// Each entry is a thread, which asks so often; no request is lost.
fn sections<L: Lock>(rounds: &'static [u32]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let lock = Arc::new(Guarded::<Loomed, L>::new());
        let (mine, others) = rounds.split_last().expect("a thread");
        let ask = |lock: &Guarded<Loomed, L>, rounds: u32| (0..rounds).for_each(|_| lock.section(0));
        let threads: Vec<_> = others
            .iter()
            .map(|&rounds| {
                let lock = lock.clone();
                thread::spawn(move || ask(&lock, rounds))
            })
            .collect();
        ask(&lock, *mine);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        lock.check(rounds.iter().sum());
    }
}

macro_rules! hold {
    ($lock:literal, $wait:ident, $type:ty) => {
        hold! { concat!($lock, ":wait=", stringify!($wait)), $type, preemptions($lock, stringify!($wait)) }
    };
    ($name:expr, $type:ty, $preemptions:expr) => {
        #[test]
        fn two_threads() {
            explore(&format!("{} 1+1", $name), ALL, SETUP, sections::<$type>(&[1, 1]));
        }

        #[test]
        fn two_threads_again() {
            let ([again, _], recycling) = ($preemptions, Setup { recycles: true, ..SETUP });
            explore(&format!("{} 2+2", $name), Preemptions(again), recycling, sections::<$type>(&[2, 2]));
        }

        #[test]
        fn three_threads() {
            let [_, three] = $preemptions;
            explore(&format!("{} 1+1+1", $name), Preemptions(three), SETUP, sections::<$type>(&[1, 1, 1]));
        }
    };
}

/// How deep two threads that come back are explored, and three threads.
fn preemptions(lock: &str, wait: &str) -> [usize; 2] {
    match (lock, wait) {
        ("flat-combining", _) => [1, 1],
        (_, "spin") => [3, 1],
        _ => [3, 2],
    }
}

macro_rules! standalone {
    ($($rows:tt)*) => { each! { of: hold, crate::modelled::closures: $($rows)* } };
}
for_each_standalone_lock!(standalone);

/// Combiners of few requests, or of few passes.
macro_rules! briefly {
    ($($name:ident: $type:ty, $preemptions:expr;)*) => {$(
        mod $name {
            use super::*;

            hold! { stringify!($name), $type, $preemptions }
        }
    )*};
}

briefly! {
    cc_synch_park_of_one: CcSynch<Park, 1>, [3, 2];
    flat_combining_spin: FlatCombining<Spin, 2, 2>, [2, 1];
    flat_combining_stp: FlatCombining<SpinThenPark, 2, 2>, [2, 1];
    flat_combining_park: FlatCombining<Park, 1, 1>, [2, 1];
}

const fn weak(field: Field, op: Op, from: Ordering, to: Ordering) -> Weaken {
    Weaken { field, op, from, to }
}

macro_rules! found {
    ($($name:ident: [$($weak:expr),+], $lock:ty, $rounds:expr;)*) => {$(
        #[test]
        fn $name() {
            const WEAKEN: &[Weaken] = &[$($weak),+];
            find(stringify!($name), BOUND, Setup { weaken: WEAKEN, ..SETUP }, sections::<$lock>(&$rounds));
        }
    )*};
}

found! {
    cc_tail_release: [weak(Field::LockTail, Op::Cas, Release, Relaxed)], CcSynch<Spin>, [1, 1];
    cc_tail_swap_acquire: [weak(Field::LockTail, Op::Swap, AcqRel, Release)], CcSynch<Spin>, [1, 1];
    cc_next_store: [weak(Field::NodeNext, Op::Store, Release, Relaxed)], CcSynch<Spin>, [1, 1];
    cc_next_load: [weak(Field::NodeNext, Op::Load, Acquire, Relaxed)], CcSynch<Spin>, [1, 1];
    cc_answer_store: [weak(Field::NodeState, Op::Store, Release, Relaxed)], CcSynch<Spin>, [1, 1];
    cc_answer_swap: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], CcSynch<Park>, [1, 1];
    cc_answer_load: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], CcSynch<Spin>, [1, 1];
    flat_release: [weak(Field::LockWord, Op::Cas, Release, Relaxed)], FlatCombining<Spin>, [1, 1];
    flat_hold: [weak(Field::LockWord, Op::Cas, Acquire, Relaxed)], FlatCombining<Spin>, [1, 1];
    flat_publish: [weak(Field::NodeState, Op::Store, Release, Relaxed)], FlatCombining<Park>, [3, 2];
    flat_answer_swap: [weak(Field::NodeState, Op::Swap, AcqRel, Acquire)], FlatCombining<Park>, [1, 1];
    flat_answer_load: [weak(Field::NodeState, Op::Load, Acquire, Relaxed)], FlatCombining<Spin>, [2, 2];
    flat_push: [weak(Field::LockHead, Op::Cas, Release, Relaxed)], FlatCombining<Park>, [1, 1, 1];
    flat_list: [weak(Field::LockHead, Op::Load, Acquire, Relaxed)], FlatCombining<Park>, [1, 1, 1];
    flat_take: [weak(Field::NodeState, Op::Cas, Acquire, Relaxed)], FlatCombining<Park>, [2, 2];
    flat_mark: [weak(Field::LockWord, Op::Swap, AcqRel, Acquire)], FlatCombining<Park>, [1, 1];
    flat_unmark: [weak(Field::LockWord, Op::Swap, Acquire, Relaxed)], FlatCombining<Park>, [1, 1];
    flat_mark_holds: [weak(Field::LockWord, Op::Swap, AcqRel, Release)], FlatCombining<Park>, [1, 1];
}

#[test]
fn bugs_are_found() {
    explore("the mutants' skeleton, cc-synch", BOUND, SETUP, sections::<MutantCc<SOUND>>(&[1, 1]));
    explore("the mutants' skeleton, flat-combining", BOUND, SETUP, sections::<MutantFlat<SOUND>>(&[1, 1]));
    find("cc-synch: emptied by a store", BOUND, SETUP, sections::<MutantCc<STORES_FREE>>(&[1, 1]));
    find("cc-synch: linked before it is written", BOUND, SETUP, sections::<MutantCc<LINKS_FIRST>>(&[1, 1]));
    find("cc-synch: who takes over forgets its own", BOUND, SETUP, sections::<MutantCc<FORGETS_ITS_OWN>>(&[1, 1]));
    find("cc-synch: the combiner just goes", BOUND, SETUP, sections::<MutantCc<JUST_GOES>>(&[1, 1, 1]));
    find("cc-synch: answered before it is run", BOUND, SETUP, sections::<MutantCc<ANSWERS_FIRST>>(&[1, 1]));
    find("flat-combining: sleeps without a mark", BOUND, SETUP, sections::<MutantFlat<SLEEPS_UNMARKED>>(&[1, 1]));
    find("flat-combining: released though marked", BOUND, SETUP, sections::<MutantFlat<IGNORES_MARK>>(&[1, 1]));
    find(
        "flat-combining: freed and handed over",
        Preemptions(2),
        SETUP,
        sections::<MutantFlat<FREES_AND_HANDS_OVER>>(&[1, 1, 1]),
    );
}
