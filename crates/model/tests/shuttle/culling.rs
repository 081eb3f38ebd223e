//! Culled waiters: five threads on two NUMA nodes, with and without deadlines; each gets the lock as often as it asks,
//! alone.

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::{LifoCr, Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::{Cna, QspinCna};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::harness::Totals;

use crate::common::{FLOWING, Load, Lock, STILL, both, rounds};
use crate::protocols::SHORT_PREFERENCE;

/// Sections long enough for a queue to build up.
const LOAD: Load = Load { threads: 5, rounds: 3, nodes: 2, timed: false, hold: 20 };

/// Of each of the three set-ups of a lock.
const EACH: usize = 2000;

/// Draws say no; draws say yes at every second hand-off.
fn schedules<L: Lock>(name: &str, shows: &[Event], drawn: &[Event]) {
    let shown = |totals: [Totals; 2], events: &[Event]| totals[0].shows(events);
    let stays = Setup { random: Some(u32::MAX), nodes: 24, ..STILL };
    shown(both(&format!("{name} stays"), EACH, stays, rounds::<L>(LOAD)), shows);
    let leaves = Setup { tunables: &SHORT_PREFERENCE, nodes: 24, ..STILL };
    shown(both(&format!("{name} leaves"), EACH, leaves, rounds::<L>(LOAD)), drawn);
    let timed = Load { timed: true, ..LOAD };
    let flowing = Setup { tunables: &SHORT_PREFERENCE, nodes: 64, ..FLOWING };
    shown(both(&format!("{name} timed"), EACH, flowing, rounds::<L>(timed)), &[Event::TimedOut]);
}

#[test]
fn cna() {
    let shows = [Event::Alteration, Event::HandoffSame, Event::HandoffOther];
    schedules::<Cna<Spin>>("cna spin", &shows, &shows);
    schedules::<Cna<SpinThenPark>>("cna stp", &shows, &shows);
    schedules::<Cna<Park>>("cna park", &shows, &shows);
}

#[test]
fn cna_with_every_option() {
    static ALL: Tunables = Tunables { threshold: 3, countdown: 1, reduction: 2, refresh: 3, ..Tunables::DEFAULT };
    let setup = Setup { tunables: &ALL, nodes: 24, ..STILL };
    both("cna, options", EACH, setup, rounds::<Cna<Park>>(LOAD))[0].shows(&[Event::Alteration]);
}

/// The kernel's lock with CNA: its defaults, then each rule by itself, then with time-outs.
#[test]
fn qspin_cna() {
    const FLUSH: Tunables = Tunables { flush: 1, ..Tunables::DEFAULT };
    const STAY: Tunables = Tunables { stay_us: 2, ..Tunables::DEFAULT };
    const INCREMENTAL: Tunables = Tunables { incremental: 1, flush: 2, ..Tunables::DEFAULT };
    const WHILE_BUSY: Tunables = Tunables { incremental: 2, flush: 2, ..Tunables::DEFAULT };
    const SCAN: Tunables = Tunables { scan: 1, flush: 2, ..Tunables::DEFAULT };
    fn all<L: Lock>(name: &str) {
        let rules: [(&str, &'static Tunables); 6] = [
            ("defaults", &Tunables::DEFAULT),
            ("flush", &FLUSH),
            ("stay", &STAY),
            ("incremental", &INCREMENTAL),
            ("while busy", &WHILE_BUSY),
            ("scan", &SCAN),
        ];
        for (rule, tunables) in rules {
            let setup = Setup { tunables, nodes: 24, micros_step: 1, ..STILL };
            let totals = both(&format!("{name} {rule}"), EACH / 2, setup, rounds::<L>(LOAD));
            totals[0].shows(&[Event::Alteration, Event::HandoffSame, Event::HandoffOther]);
        }
        let timed = Load { timed: true, ..LOAD };
        let flowing = Setup { tunables: &FLUSH, nodes: 64, ..FLOWING };
        both(&format!("{name} timed"), EACH / 2, flowing, rounds::<L>(timed))[0].shows(&[Event::TimedOut]);
    }
    all::<QspinCna<Spin>>("qspin-cna spin");
    all::<QspinCna<SpinThenPark>>("qspin-cna stp");
    all::<QspinCna<Park>>("qspin-cna park");
}

#[test]
fn mcscr() {
    let (shows, drawn) = ([Event::Cull, Event::Reprovision], [Event::Cull, Event::Eldest]);
    schedules::<Mcscr<Spin>>("mcscr spin", &shows, &drawn);
    schedules::<Mcscr<SpinThenPark>>("mcscr stp", &shows, &drawn);
    schedules::<Mcscr<Park>>("mcscr park", &shows, &drawn);
}

#[test]
fn mcscrn() {
    let (shows, drawn) = ([Event::Alteration, Event::Cull, Event::Reprovision], [Event::Cull, Event::Eldest]);
    schedules::<Mcscrn<Spin>>("mcscrn spin", &shows, &drawn);
    schedules::<Mcscrn<SpinThenPark>>("mcscrn stp", &shows, &drawn);
    schedules::<Mcscrn<Park>>("mcscrn park", &shows, &drawn);
}

#[test]
fn lifo_cr() {
    schedules::<LifoCr<Spin>>("lifo-cr spin", &[], &[Event::Eldest]);
    schedules::<LifoCr<SpinThenPark>>("lifo-cr stp", &[], &[Event::Eldest]);
    schedules::<LifoCr<Park>>("lifo-cr park", &[], &[Event::Eldest]);
}
