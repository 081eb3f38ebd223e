//! Waiters that are passed over because they do not run: `mcs-tp`, and `evict=1` of MCSCR and MCSCRN.

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::{Mcscr, Mcscrn};
use flashlock_locks::mutex::queue::McsTp;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::harness::Totals;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::{explore, find};

use crate::common::{Racers, sections, timed};
use crate::culling::{STAYS, choice_against_joiner, recall_against_joiner};
use crate::evict_mutants::*;

/// The option is on.
const EVICT: Tunables = Tunables { evict: 1, ..Tunables::DEFAULT };
/// The clock leaps: a waiter that is awake seems not to run when its turn comes.
pub(crate) const LEAPING: Setup = Setup { polls: 1, micros_step: 60, tunables: &EVICT, ..STAYS };
/// It goes on more slowly: a waiter seems not to run only if it has not looked since another thread did.
const GOING: Setup = Setup { micros_step: 30, ..LEAPING };

macro_rules! evicting {
    ($($name:ident: $lock:ty, $two:literal, $three:literal;)*) => {$(
        mod $name {
            use super::*;

            fn check(what: &str, bound: usize, setup: Setup, body: impl Fn() + Send + Sync + 'static) -> Totals {
                explore(&format!("{} {what}", stringify!($name)), Preemptions(bound), setup, body)
            }

            #[test]
            fn two_threads() {
                check("evicted 1+1", $two, LEAPING, sections::<$lock>(&[1, 1])).shows(&[Event::Evict]);
                let recycling = Setup { recycles: true, ..LEAPING };
                check("evicted 2+2", $two, recycling, sections::<$lock>(&[2, 2])).shows(&[Event::Evict]);
            }

            #[test]
            fn three_threads() {
                for setup in [LEAPING, GOING] {
                    check("evicted 1+1+1", $three, setup, sections::<$lock>(&[1, 1, 1])).shows(&[Event::Evict]);
                }
            }

            #[test]
            fn against_a_deadline() {
                check("evicted 1+timed", $two, LEAPING, timed::<$lock>()).shows(&[Event::Evict, Event::TimedOut]);
            }
        }
    )*};
}

evicting! {
    mcs_tp_spin: McsTp<Spin>, 2, 1;
    mcs_tp_stp: McsTp<SpinThenPark>, 2, 2;
    mcs_tp_park: McsTp<Park>, 2, 2;
    mcscr_spin: Mcscr<Spin>, 2, 1;
    mcscr_stp: Mcscr<SpinThenPark>, 2, 2;
    mcscr_park: Mcscr<Park>, 2, 2;
    mcscrn_spin: Mcscrn<Spin>, 2, 1;
    mcscrn_stp: Mcscrn<SpinThenPark>, 2, 2;
}

/// A thread sleeps, culled or in the main queue, while a joiner is passed over: the lock goes to the sleeper.
#[test]
fn a_joiner_is_evicted_and_a_sleeper_woken() {
    let depth = Racers::Three.depth();
    let recall = || recall_against_joiner::<Mcscr<SpinThenPark>>(Racers::Three);
    explore("evicted, recall", depth, LEAPING, recall).shows(&[Event::Evict, Event::Wake]);
    let choice = || choice_against_joiner::<Mcscr<SpinThenPark>>(Racers::Three);
    explore("evicted, choice", depth, LEAPING, choice).shows(&[Event::Evict, Event::Cull, Event::Reprovision]);
}

#[test]
fn protocol_bugs() {
    let bound = Preemptions(1);
    explore("the mutants' skeleton", bound, LEAPING, sections::<Evicting<EVICTS, Spin>>(&[1, 1, 1]));
    find("evicts a sleeper", bound, LEAPING, sections::<Evicting<EVICTS_SLEEPERS, Park>>(&[1, 1]));
    // Found by a waiter that is evicted, and queues anew, while its node still holds the lock.
    let bound = Preemptions(2);
    find("lets go early", bound, LEAPING, sections::<Evicting<LETS_GO_EARLY, Park>>(&[1, 1, 1]));
    find("goes early", bound, LEAPING, sections::<Evicting<GOES_EARLY, Park>>(&[1, 1, 1]));
    find("gives up by a store", bound, LEAPING, timed::<Evicting<ABANDONS, Spin>>());
}
