//! Waiters that are passed over because they do not run: `mcs-tp`, and `evict=1` of MCSCR and MCSCRN; five threads,
//! with and without deadlines.

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::{Mcscr, Mcscrn};
use flashlock_locks::mutex::queue::McsTp;
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::shuttle::{By, find};

use crate::common::{FLOWING, Load, Lock, STILL, both, rounds};
use crate::evict_mutants::*;

/// With the option, and the eldest passive waiter served at every second release that finds one.
const EVICT: Tunables = Tunables { evict: 1, eldest: 2, ..Tunables::DEFAULT };
/// Sections long enough for a queue to build up.
const LOAD: Load = Load { threads: 5, rounds: 3, nodes: 2, timed: false, hold: 20 };
/// How far the clock advances when it is read: a waiter always seems not to run.
const ALWAYS: [u32; 1] = [60];
/// The same, and a small step as well: then only a waiter that polls on, and has not looked for so long, seems not to
/// run.
const SOMETIMES: [u32; 2] = [5, 60];
/// How many schedules of each load.
const SCHEDULES: usize = 600;

fn schedules<L: Lock>(name: &str, steps: &[u32], shows: &[Event]) {
    for &micros_step in steps {
        let still = Setup { tunables: &EVICT, micros_step, nodes: 24, ..STILL };
        both(&format!("{name} evicts"), SCHEDULES, still, rounds::<L>(LOAD))[0].shows(shows);
        let flowing = Setup { tunables: &EVICT, micros_step, nodes: 64, ..FLOWING };
        let timed = Load { timed: true, ..LOAD };
        both(&format!("{name} evicts, timed"), SCHEDULES, flowing, rounds::<L>(timed))[0]
            .shows(&[Event::Evict, Event::TimedOut]);
    }
}

#[test]
fn mcs_tp() {
    schedules::<McsTp<Spin>>("mcs-tp spin", &SOMETIMES, &[Event::Evict]);
    schedules::<McsTp<SpinThenPark>>("mcs-tp stp", &ALWAYS, &[Event::Evict]);
}

#[test]
fn mcscr() {
    let shows = [Event::Evict, Event::Cull, Event::Eldest];
    schedules::<Mcscr<Spin>>("mcscr spin", &SOMETIMES, &shows);
    schedules::<Mcscr<SpinThenPark>>("mcscr stp", &ALWAYS, &shows);
}

#[test]
fn mcscrn() {
    let shows = [Event::Evict, Event::Alteration, Event::Eldest];
    schedules::<Mcscrn<Spin>>("mcscrn spin", &SOMETIMES, &shows);
    schedules::<Mcscrn<SpinThenPark>>("mcscrn stp", &ALWAYS, &shows);
}

#[test]
fn protocol_bugs() {
    let still = Setup { tunables: &EVICT, micros_step: 60, nodes: 24, ..STILL };
    let flowing = Setup { nodes: 64, flow: 40, ..still };
    let timed = Load { timed: true, ..LOAD };
    both("the mutants' skeleton", 2000, still, rounds::<Evicting<EVICTS, Spin>>(LOAD))[0].shows(&[Event::Evict]);
    find("evicts a sleeper", By::Random, 3000, still, rounds::<Evicting<EVICTS_SLEEPERS, Park>>(LOAD));
    find("lets go early", By::Random, 3000, still, rounds::<Evicting<LETS_GO_EARLY, Park>>(LOAD));
    find("goes early", By::Random, 3000, still, rounds::<Evicting<GOES_EARLY, Park>>(LOAD));
    find("gives up by a store", By::Random, 20000, flowing, rounds::<Evicting<ABANDONS, Spin>>(timed));
}
