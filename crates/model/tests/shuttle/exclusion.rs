//! Every thread gets the lock as often as it asks, alone.

use std::any::TypeId;

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::malthusian::{LifoCr, Loiter, Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::{CBoMcs, CPtlTkt, CTktTkt, Cna, Cst, Hmcs, QspinCna};
use flashlock_locks::mutex::queue::{Clh, Mcs, McsTp, Qspin};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::mutex::spin::{Cas, Futex, Hbo, Tas, Ticket};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};

use flashlock_model::Setup;

use crate::common::{FLOWING, Load, OVERDUE, SCHEDULES, STILL, both, rounds};
use crate::modelled::{Modelled, assert_complete};
use crate::{closures, rcl, rw};

const UNTIMED: Load = Load { threads: 4, rounds: 3, nodes: 2, timed: false, hold: 0 };
const TIMED: Load = Load { timed: true, ..UNTIMED };

macro_rules! rounds {
    ($($name:ident: $lock:ty $(, $also:ident)?;)*) => {
        const MODELLED: Modelled = &[$(TypeId::of::<$lock>),*];

        $(mod $name {
            use super::*;

            #[test]
            fn time_stands_still() {
                both(
                    concat!(stringify!($name), " still"),
                    SCHEDULES,
                    Setup { $($also: true,)? ..STILL },
                    rounds::<$lock>(UNTIMED),
                );
            }

            #[test]
            fn all_waits_are_overdue() {
                both(
                    concat!(stringify!($name), " overdue"),
                    SCHEDULES,
                    Setup { $($also: true,)? ..OVERDUE },
                    rounds::<$lock>(UNTIMED),
                );
            }

            #[test]
            fn time_flows() {
                both(
                    concat!(stringify!($name), " flowing"),
                    SCHEDULES,
                    Setup { $($also: true,)? ..FLOWING },
                    rounds::<$lock>(TIMED),
                );
            }
        })*
    };
}

rounds! {
    cas: Cas, pauses;
    tas: Tas;
    futex: Futex;
    flash: Flash;
    mcs_spin: Mcs<Spin>;
    mcs_stp: Mcs<SpinThenPark>;
    mcs_park: Mcs<Park>;
    hbo: Hbo;
    clh_spin: Clh<Spin>;
    clh_stp: Clh<SpinThenPark>;
    clh_park: Clh<Park>;
    ticket: Ticket;
    cna_spin: Cna<Spin>;
    cna_stp: Cna<SpinThenPark>;
    cna_park: Cna<Park>;
    c_bo_mcs_spin: CBoMcs<Spin>;
    c_bo_mcs_stp: CBoMcs<SpinThenPark>;
    hmcs_park: Hmcs<Park>;
    cst_spin: Cst<Spin>;
    cst_stays: Cst<SpinThenPark>;
    cst_stp: Cst<SpinThenPark>, crowded;
    cst_park: Cst<Park>;
    c_tkt_tkt: CTktTkt;
    c_ptl_tkt: CPtlTkt;
    qspin_spin: Qspin<Spin>;
    qspin_stp: Qspin<SpinThenPark>;
    qspin_park: Qspin<Park>;
    qspin_cna_spin: QspinCna<Spin>;
    qspin_cna_stp: QspinCna<SpinThenPark>;
    qspin_cna_park: QspinCna<Park>;
    mcscr_spin: Mcscr<Spin>;
    mcscr_stp: Mcscr<SpinThenPark>;
    mcscr_park: Mcscr<Park>;
    mcs_tp_spin: McsTp<Spin>;
    mcs_tp_stp: McsTp<SpinThenPark>;
    mcs_tp_park: McsTp<Park>;
    mcscrn_spin: Mcscrn<Spin>;
    mcscrn_stp: Mcscrn<SpinThenPark>;
    mcscrn_park: Mcscrn<Park>;

    loiter_spin: Loiter<Mcs<Spin>, Spin>;
    loiter_stp: Loiter<Mcs<SpinThenPark>, SpinThenPark>;
    loiter_park: Loiter<Mcs<Park>, Park>;
    loiter_cna: Loiter<Cna<Park>, Park>;
    lifo_cr_spin: LifoCr<Spin>;
    lifo_cr_stp: LifoCr<SpinThenPark>;
    lifo_cr_park: LifoCr<Park>;
    shfl_only_spins: ShflSpin;
    shfl_spin: Shfl<Spin>;
    shfl_stp: Shfl<SpinThenPark>;
    shfl_park: Shfl<Park>;
}

#[test]
fn every_lock_of_the_catalogue_is_here() {
    assert_complete(&[MODELLED, closures::MODELLED, rcl::MODELLED, rw::MODELLED]);
}

/// Six threads on two NUMA nodes: in each, two of a group of CPUs and one of another.
#[test]
fn hmcs_of_three_levels() {
    const THREE: Tunables = Tunables { levels: 3, near_passes: 1, passes: 2, ..Tunables::DEFAULT };
    let load = Load { threads: 6, rounds: 2, ..UNTIMED };
    for (setup, load) in [(STILL, load), (FLOWING, Load { timed: true, ..load })] {
        let setup = Setup { tunables: &THREE, nodes: 48, ..setup };
        for totals in both("hmcs of three levels", SCHEDULES, setup, rounds::<Hmcs<Park>>(load)) {
            totals.shows(&[Event::CohortNear, Event::CohortPass, Event::CohortMove]);
        }
    }
}
