//! MCSCRN: another NUMA node becomes home while a thread joins.

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::malthusian::Mcscrn;
use flashlock_locks::mutex::malthusian::mcscrn::FewestAtHome;
use flashlock_locks::parts::wait::{Park, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::loom::{explore, find};

use crate::common::{ALL, Racers, release_as_one_comes};
use crate::culling::{LEAVES, STAYS, TwoLists, with_culled};
use crate::culling_mutants::{DropsTheRest, ForgetsTheCulled, Mutant};

/// Which waiters are culled, by the node of each, passive ones first; and in which order they are served, whenever a
/// newcomer is.
struct Culled {
    setup: Setup,
    numa: &'static [u32],
    served: &'static [usize],
    /// What it takes to serve them so.
    shows: &'static [Event],
}

const STAY: Setup = Setup { nodes: 8, ..STAYS };
const DRAW: Setup = Setup { nodes: 8, ..LEAVES };

/// Node 1 becomes home because no other thread waits, and both of its waiters come back.
const BOTH: Culled = Culled { setup: STAY, numa: &[1, 1], served: &[0, 1], shows: &[Event::HandoffOther] };
/// Node 1 becomes home, then node 2.
const IN_TURN: Culled = Culled { numa: &[1, 2], ..BOTH };
/// A passive waiter comes back; then node 1 becomes home.
const PASSIVE: Culled = Culled { numa: &[0, 1], shows: &[Event::Reprovision, Event::HandoffOther], ..BOTH };
/// The draw makes node 1 home; it makes the passive waiter a remote one, and that waiter's node home again.
const DRAWN: Culled =
    Culled { setup: DRAW, numa: &[0, 1], served: &[1, 0], shows: &[Event::Eldest, Event::HandoffOther] };
/// The same with two waiters of node 1, the second of which is culled anew.
const DRAWN_BOTH: Culled = Culled { numa: &[0, 1, 1], served: &[1, 0, 2], ..DRAWN };

/// The holder, on node 0, finds no other thread in the main queue, or one of the node `joiner` that joins.
fn against_joiner<L: TwoLists>(secondary: &Culled, joiner: u32, racers: Racers) {
    let (mutex, asleep) = with_culled::<L>(secondary.numa);
    release_as_one_comes(&mutex, secondary.served.iter().map(|&place| asleep[place]).collect(), joiner, racers);
}

fn check<L: TwoLists>(name: &str, secondary: &'static Culled) {
    for (joiner, racers) in [(0, Racers::Two), (1, Racers::Two), (0, Racers::Three)] {
        let name = format!("mcscrn {name}, {joiner} joins");
        let totals =
            explore(&name, racers.depth(), secondary.setup, move || against_joiner::<L>(secondary, joiner, racers));
        totals.shows(secondary.shows);
    }
}

macro_rules! new_homes {
    ($($name:ident: $secondary:ident;)*) => {$(
        #[test]
        fn $name() {
            check::<Mcscrn<Park>>(concat!(stringify!($name), ", park"), &$secondary);
            check::<Mcscrn<SpinThenPark>>(concat!(stringify!($name), ", stp"), &$secondary);
        }
    )*};
}

new_homes! {
    both_of_the_new_home_come_back: BOTH;
    one_home_after_the_other: IN_TURN;
    a_passive_one_first: PASSIVE;
    home_is_drawn_anew: DRAWN;
    home_is_drawn_anew_with_two: DRAWN_BOTH;
}

#[test]
fn seeded_bugs_are_found() {
    find("mcscrn: only the first of the new home comes back", ALL, STAY, || {
        against_joiner::<Mutant<DropsTheRest<FewestAtHome>>>(&BOTH, 0, Racers::Two);
    });
    find("mcscrn: a new home forgets the other culled ones", ALL, DRAW, || {
        against_joiner::<Mutant<ForgetsTheCulled>>(&DRAWN, 0, Racers::Two);
    });
}
