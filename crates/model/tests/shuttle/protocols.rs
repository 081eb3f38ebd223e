//! Protocol bugs, one at a time: each must be found.

use flashlock_locks::machine::Tunables;
use flashlock_locks::mutex::malthusian::mcscrn::FewestAtHome;
use flashlock_locks::mutex::queue::Qspin;
use flashlock_locks::mutex::shuffle::Shfl;
use flashlock_locks::mutex::spin::Futex;
use flashlock_locks::parts::wait::Park;
use flashlock_model::shuttle::{By, find};
use flashlock_model::{Fault, Field, Setup};

use crate::common::{FLOWING, Load, Lock, OVERDUE, STILL, both, rounds};
use crate::compact_mutants::*;
use crate::cond::producers_and_consumers;
use crate::culling_mutants::*;
use crate::evict_mutants::{EVICTS_SLEEPERS, MutantTp};
use crate::lifetime::last_frees;
use crate::mutants::*;
use crate::qspin_mutants::{DropsElsewhere, ForgetsThem, InheritsNothing, MutantQspin};

/// CNA leaves its node at every second hand-off, MCSCR serves the eldest as often.
pub(crate) const SHORT_PREFERENCE: Tunables = Tunables { threshold: 2, eldest: 2, ..Tunables::DEFAULT };
const LOAD: Load = Load { threads: 3, rounds: 2, nodes: 1, timed: false, hold: 0 };
/// Much less than the sound locks are tried with.
const SCHEDULES: usize = 5000;

/// A bug that shows in plain rounds: as a deadlock, or as two in one section.
fn broken<L: Lock>(name: &str, setup: Setup) {
    find(name, By::Random, SCHEDULES, setup, rounds::<L>(LOAD));
}

/// A bug that shows when waiters give up.
fn broken_when_timed<L: Lock>(name: &str) {
    let load = Load { timed: true, ..LOAD };
    find(name, By::Random, SCHEDULES, Setup { spurious: 0, ..FLOWING }, rounds::<L>(load));
}

#[test]
fn futex() {
    broken::<MutantFutex<WakesNobody>>("release wakes nobody", STILL);
    broken::<MutantFutex<Forgets>>("who slept acquires with 1", STILL);
    broken::<MutantFutex<StoresItsTurn>>("acquires by a store", STILL);
    broken::<Futex>("sleeps without a look at the word", Setup { fault: Some(Fault::ParkBlindly), ..STILL });
    find("release looks back", By::Random, SCHEDULES, STILL, last_frees::<MutantFutex<LooksBack>>);
}

#[test]
fn mcs() {
    both("the mutants' skeleton", SCHEDULES / 2, STILL, rounds::<MutantMcs<SOUND>>(LOAD));
    both(
        "the mutants' skeleton, timed",
        SCHEDULES / 2,
        FLOWING,
        rounds::<MutantMcs<SOUND>>(Load { timed: true, ..LOAD }),
    );
    broken::<MutantMcs<CLEARS_LATE>>("next cleared late", STILL);
    broken::<MutantMcs<DOES_NOT_AWAIT>>("no wait for the link", STILL);
    broken::<MutantMcs<LETS_SLEEP>>("lets the successor sleep", STILL);
    broken_when_timed::<MutantMcs<ABANDONS_BY_STORE>>("abandons by a store");
    broken_when_timed::<MutantMcs<GRANTS_ABANDONED>>("hands over to the abandoned");
}

/// What can go wrong when a broadcast moves waiters.
#[test]
fn adoption() {
    let body = || producers_and_consumers::<MutantFutex<MovedForgets>>(false, true);
    find("the moved are forgotten", By::Random, SCHEDULES, STILL, body);
}

#[test]
fn cna() {
    // Enough threads on two nodes, long enough in the section, for waiters to be culled.
    let load = Load { threads: 5, rounds: 2, nodes: 2, timed: false, hold: 20 };
    let stays = Setup { random: Some(u32::MAX), ..STILL };
    fn broken_culling<L: Lock>(name: &str, setup: Setup, load: Load) {
        find(name, By::Random, SCHEDULES, setup, rounds::<L>(load));
    }
    both("the mutants' skeleton", SCHEDULES / 10, stays, rounds::<MutantCulling<KEEPS>>(load));
    broken_culling::<MutantCulling<FREES>>("frees with culled waiters", stays, load);
    broken_culling::<MutantCulling<WAKES_NONE>>("wakes nobody culled", stays, load);
    broken_culling::<Mutant<DropsTheRest>>("other culled ones forgotten", stays, load);
    broken_culling::<MutantCulling<CULLS_UNLINKED>>("unlinked culled", stays, load);
}

/// MCSCRN; LIFO-CR's stack; MCS-TP, where no waiter has run for a long time; HBO.
#[test]
fn compact() {
    let load = Load { threads: 5, rounds: 2, nodes: 2, timed: false, hold: 20 };
    fn broken_long<L: Lock>(name: &str, setup: Setup, load: Load) {
        find(name, By::Random, SCHEDULES, setup, rounds::<L>(load));
    }
    let stays = Setup { random: Some(u32::MAX), ..STILL };
    broken_long::<Mutant<DropsTheRest<FewestAtHome>>>("mcscrn: only the first comes back", stays, load);
    let drawn = Setup { tunables: &SHORT_PREFERENCE, ..STILL };
    broken_long::<Mutant<ForgetsTheCulled>>("mcscrn: a new home forgets the other culled ones", drawn, load);
    both("the mutants' skeleton, lifo-cr", SCHEDULES / 10, stays, rounds::<MutantLifo<()>>(load));
    broken_long::<MutantLifo<PopsByStore>>("lifo-cr: pops by a store", stays, load);
    broken_long::<MutantLifo<TakesTheSecond>>("lifo-cr: takes the second, forgets the first", stays, load);
    broken_long::<MutantLifo<LosesThoseBetween>>("lifo-cr: those above the eldest are lost", stays, load);
    broken::<MutantTp<EVICTS_SLEEPERS>>("mcs-tp: passes over who may fall asleep", STILL);
    broken::<HboByStore>("hbo: acquires by a store", STILL);
}

#[test]
fn qspin() {
    let unheard = |field| Setup { fault: Some(Fault::NoWake(field)), ..STILL };
    broken::<Qspin<Park>>("qspin: a release wakes nobody", unheard(Field::LockWord));
    broken::<Qspin<Park>>("qspin: a new head is not woken", unheard(Field::NodeState));
    let load = Load { threads: 5, rounds: 2, nodes: 2, timed: false, hold: 20 };
    fn broken_cna<L: Lock>(name: &str, load: Load) {
        find(name, By::Random, SCHEDULES, STILL, rounds::<L>(load));
    }
    broken_cna::<MutantQspin<DropsElsewhere>>("qspin-cna: the others elsewhere are forgotten", load);
    broken_cna::<MutantQspin<ForgetsThem>>("qspin-cna: the secondary queue is not handed on", load);
    // Shorter sections, more often: threads come while the front is being left.
    let busy = Load { rounds: 4, hold: 5, ..load };
    broken_cna::<MutantQspin<InheritsNothing>>("qspin-cna: the heir looks at nothing", busy);
}

#[test]
fn shfl() {
    broken::<MutantShfl<ForgetsTheMoved>>("the moved are forgotten", STILL);
    let lost = Setup { fault: Some(Fault::NoWake(Field::LockWord)), ..OVERDUE };
    broken::<Shfl<Park>>("a grant wakes nobody", lost);
}
