//! Waiters that are passed over because they do not run: `mcs-tp`, and `evict=1` of MCSCR and MCSCRN; five threads, with and without deadlines.

use flashlock_locks::event::Event;
use flashlock_locks::machine::Tunables;
use flashlock_locks::malthusian::{Mcscr, Mcscrn};
use flashlock_locks::queue::McsTp;
use flashlock_locks::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::shuttle::{By, find};

use crate::common::{FLOWING, Load, Lock, STILL, both, rounds};
use crate::evict_mutants::*;

/// With the option, and the eldest passive waiter served at every second release that finds one.
const EVICT: Tunables = Tunables { evict: 1, eldest: 2, ..Tunables::DEFAULT };
/// Sections long enough for a queue to build up.
const LOAD: Load = Load { threads: 5, rounds: 3, nodes: 2, timed: false, hold: 20 };
/// A waiter seems not to run if the clock was read so often since he last looked: sometimes, and always.
const STEPS: [u32; 2] = [5, 60];

fn schedules<L: Lock>(name: &str, shows: &[Event]) {
    for micros_step in STEPS {
        let still = Setup { tunables: &EVICT, micros_step, nodes: 24, ..STILL };
        both(&format!("{name} evicts"), 3000, still, rounds::<L>(LOAD))[0].shows(shows);
        let flowing = Setup { tunables: &EVICT, micros_step, nodes: 64, ..FLOWING };
        let timed = Load { timed: true, ..LOAD };
        both(&format!("{name} evicts, timed"), 3000, flowing, rounds::<L>(timed))[0]
            .shows(&[Event::Evict, Event::TimedOut]);
    }
}

#[test]
fn mcs_tp() {
    schedules::<McsTp<Spin>>("mcs-tp spin", &[Event::Evict]);
    schedules::<McsTp<SpinThenPark>>("mcs-tp stp", &[Event::Evict]);
    schedules::<McsTp<Park>>("mcs-tp park", &[Event::Evict]);
}

#[test]
fn mcscr() {
    let shows = [Event::Evict, Event::Cull, Event::Eldest];
    schedules::<Mcscr<Spin>>("mcscr spin", &shows);
    schedules::<Mcscr<SpinThenPark>>("mcscr stp", &shows);
    schedules::<Mcscr<Park>>("mcscr park", &shows);
}

#[test]
fn mcscrn() {
    let shows = [Event::Evict, Event::Alteration, Event::Eldest];
    schedules::<Mcscrn<Spin>>("mcscrn spin", &shows);
    schedules::<Mcscrn<SpinThenPark>>("mcscrn stp", &shows);
}

#[test]
fn protocol_bugs() {
    let still = Setup { tunables: &EVICT, micros_step: 60, nodes: 24, ..STILL };
    let flowing = Setup { nodes: 64, flow: 40, ..still };
    let timed = Load { timed: true, ..LOAD };
    both("the mutants' skeleton", 2000, still, rounds::<Evicting<EVICTS, Spin>>(LOAD))[0].shows(&[Event::Evict]);
    find("evicts a sleeper", By::Random, 3000, still, rounds::<Evicting<EVICTS_SLEEPERS, Park>>(LOAD));
    find("lets go early", By::Random, 3000, still, rounds::<Evicting<LETS_GO_EARLY, Spin>>(LOAD));
    find("goes early", By::Random, 3000, still, rounds::<Evicting<GOES_EARLY, Spin>>(LOAD));
    find("takes it for its turn", By::Random, 3000, still, rounds::<Evicting<TAKES_IT, Spin>>(LOAD));
    find("gives up by a store", By::Random, 20000, flowing, rounds::<Evicting<ABANDONS, Spin>>(timed));
}
