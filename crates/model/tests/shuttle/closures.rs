//! Closure locks: each request runs exactly once, alone, and the thread that made it sees the result.

use std::sync::Arc;

use flashlock_locks::closure::{CcSynch, FlatCombining, RawClosure};
use flashlock_locks::for_each_standalone_lock;
use flashlock_locks::parts::wait::{Park, SpinThenPark};
use flashlock_model::shuttle::thread;
use flashlock_model::shuttle::{By, Shuttled, find};
use flashlock_model::{Fault, Field, Setup, Shuttle};

use crate::closure_mutants::*;
use crate::common::{STILL, both};
use crate::modelled::each;

/// Sleeps end for no reason.
const RESTLESS: Setup = Setup { spurious: 10, ..STILL };

/// So many threads ask so often, with breaks in their sections.
fn rounds<L>(threads: u32, each: u32, breaks: u32) -> impl Fn() + Send + Sync + Clone + 'static
where
    L: RawClosure<Shuttle, State: Words<Shuttled> + Send + Sync>,
{
    move || {
        let lock = Arc::new(Guarded::<Shuttled, L>::new());
        let work = move |lock: &Guarded<Shuttled, L>| (0..each).for_each(|_| lock.section(breaks));
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || work(&lock))
            })
            .collect();
        work(&lock);
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        lock.check(threads * each);
    }
}

fn holds<L>(name: &str)
where
    L: RawClosure<Shuttle, State: Words<Shuttled> + Send + Sync>,
{
    both(&format!("{name} 4 x 3"), 4000, STILL, rounds::<L>(4, 3, 0));
    both(&format!("{name} 4 x 3, long"), 4000, STILL, rounds::<L>(4, 3, 3));
    both(&format!("{name} 3 x 6, restless"), 4000, RESTLESS, rounds::<L>(3, 6, 1));
}

macro_rules! hold {
    ($lock:literal, $wait:ident, $type:ty) => {
        #[test]
        fn all_are_run() {
            holds::<$type>(concat!($lock, ":wait=", stringify!($wait)));
        }
    };
}

macro_rules! standalone {
    ($($rows:tt)*) => { each! { of: hold, crate::modelled::closures: $($rows)* } };
}
for_each_standalone_lock!(standalone);

/// Combiners of few requests, or of few passes.
#[test]
fn roles_that_end_soon() {
    holds::<CcSynch<SpinThenPark, 2>>("cc-synch:wait=stp, two requests");
    holds::<CcSynch<Park, 1>>("cc-synch:wait=park, one request");
    holds::<FlatCombining<SpinThenPark, 1, 1>>("flat-combining:wait=stp, one pass");
    holds::<FlatCombining<Park, 1, 2>>("flat-combining:wait=park, one pass");
}

/// Much less than the sound locks are tried with.
fn broken<L>(name: &str, setup: Setup)
where
    L: RawClosure<Shuttle, State: Words<Shuttled> + Send + Sync>,
{
    find(name, By::Random, 5000, setup, rounds::<L>(3, 3, 1));
}

#[test]
fn bugs_are_found() {
    both("the mutants' skeleton, cc-synch", 2500, STILL, rounds::<MutantCc<SOUND>>(3, 3, 1));
    both("the mutants' skeleton, flat-combining", 2500, STILL, rounds::<MutantFlat<SOUND>>(3, 3, 1));
    broken::<MutantCc<STORES_FREE>>("cc-synch: emptied by a store", STILL);
    broken::<MutantCc<LINKS_FIRST>>("cc-synch: linked before it is written", STILL);
    broken::<MutantCc<FORGETS_ITS_OWN>>("cc-synch: who takes over forgets its own", STILL);
    broken::<MutantCc<JUST_GOES>>("cc-synch: the combiner just goes", STILL);
    broken::<MutantCc<ANSWERS_FIRST>>("cc-synch: answered before it is run", STILL);
    broken::<MutantFlat<SLEEPS_UNMARKED>>("flat-combining: sleeps without a mark", STILL);
    broken::<MutantFlat<IGNORES_MARK>>("flat-combining: released though marked", STILL);
    broken::<MutantFlat<FREES_AND_HANDS_OVER>>("flat-combining: freed and handed over", STILL);
    broken::<MutantFlat<LOSES_RECORD>>("flat-combining: a record is not linked again", STILL);
    broken::<MutantFlat<TAKES_BY_STORE>>("flat-combining: a record is taken by a store", STILL);
    let unheard = Setup { fault: Some(Fault::NoWake(Field::NodeState)), ..STILL };
    broken::<CcSynch<Park>>("cc-synch: an answer wakes nobody", unheard);
    broken::<FlatCombining<Park>>("flat-combining: an answer wakes nobody", unheard);
}
