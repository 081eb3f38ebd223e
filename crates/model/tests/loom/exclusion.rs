//! Mutual exclusion, and that each critical section sees the ones before it.

use std::any::TypeId;

use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::malthusian::{LifoCr, Loiter, Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::{Cna, QspinCna};
use flashlock_locks::mutex::queue::{Clh, Mcs, McsTp, Qspin};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::mutex::spin::{Cas, Futex, Hbo, Tas, Ticket};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::loom::Depth::{self, Preemptions};

use crate::common::{ALL, excludes};
use crate::modelled::{Modelled, assert_complete};
use crate::{closures, cohort, rcl, rw};

/// `name: lock, preemptions with two threads that come back, preemptions with three threads;`, both [in
/// full](Depth::in_full). Then perhaps a field of [`Setup`] to set.
macro_rules! excluding {
    ($($name:ident: $lock:ty, $again:literal, $three:literal $(, $also:ident)?;)*) => {
        const MODELLED: Modelled = &[$(TypeId::of::<$lock>),*];

        $(mod $name {
            use super::*;

            const SETUP: Setup = Setup { $($also: true,)? polls: 1, ..Setup::new(4) };

            #[test]
            fn two_threads() {
                excludes::<$lock>(concat!(stringify!($name), " 1+1"), ALL, SETUP, &[1, 1]);
            }

            #[test]
            fn two_threads_again() {
                let recycling = Setup { recycles: true, ..SETUP }.in_a_child();
                excludes::<$lock>(concat!(stringify!($name), " 2+2"), Depth::in_full($again), recycling, &[2, 2]);
            }

            #[test]
            fn three_threads() {
                excludes::<$lock>(concat!(stringify!($name), " 1+1+1"), Depth::in_full($three), SETUP, &[1, 1, 1]);
            }
        })*
    };
}

excluding! {
    cas: Cas, 4, 1, pauses;
    tas: Tas, 4, 1;
    futex: Futex, 4, 3;
    flash: Flash, 2, 1;
    mcs_spin: Mcs<Spin>, 4, 2;
    mcs_stp: Mcs<SpinThenPark>, 3, 3;
    mcs_park: Mcs<Park>, 3, 3;
    hbo: Hbo, 4, 1;
    clh_spin: Clh<Spin>, 3, 1;
    clh_stp: Clh<SpinThenPark>, 3, 2;
    clh_park: Clh<Park>, 3, 3;
    ticket: Ticket, 3, 1;
    cna_spin: Cna<Spin>, 3, 1;
    cna_stp: Cna<SpinThenPark>, 3, 2;
    cna_park: Cna<Park>, 3, 3;
    qspin_spin: Qspin<Spin>, 3, 1;
    qspin_stp: Qspin<SpinThenPark>, 3, 3;
    qspin_park: Qspin<Park>, 3, 3;
    qspin_cna_spin: QspinCna<Spin>, 3, 1;
    qspin_cna_stp: QspinCna<SpinThenPark>, 3, 2;
    qspin_cna_park: QspinCna<Park>, 3, 2;
    mcscr_spin: Mcscr<Spin>, 3, 1;
    mcscr_stp: Mcscr<SpinThenPark>, 3, 2;
    mcscr_park: Mcscr<Park>, 3, 3;
    mcs_tp_spin: McsTp<Spin>, 3, 1;
    mcs_tp_stp: McsTp<SpinThenPark>, 3, 2;
    mcs_tp_park: McsTp<Park>, 3, 2;
    mcscrn_spin: Mcscrn<Spin>, 3, 1;
    mcscrn_stp: Mcscrn<SpinThenPark>, 3, 2;
    mcscrn_park: Mcscrn<Park>, 3, 3;
    loiter_spin: Loiter<Mcs<Spin>, Spin>, 2, 1;
    loiter_stp: Loiter<Mcs<SpinThenPark>, SpinThenPark>, 2, 2;
    loiter_park: Loiter<Mcs<Park>, Park>, 2, 2;
    loiter_cna: Loiter<Cna<Park>, Park>, 2, 2;
    lifo_cr_spin: LifoCr<Spin>, 3, 1;
    lifo_cr_stp: LifoCr<SpinThenPark>, 3, 2;
    lifo_cr_park: LifoCr<Park>, 3, 3;
    shfl_only_spins: ShflSpin, 3, 2;
    shfl_spin: Shfl<Spin>, 3, 2;
    shfl_stp: Shfl<SpinThenPark>, 3, 2;
    shfl_park: Shfl<Park>, 4, 3;
}

#[test]
fn every_lock_of_the_catalogue_is_here() {
    assert_complete(&[MODELLED, closures::MODELLED, cohort::MODELLED, rcl::MODELLED, rw::MODELLED]);
}

#[test]
fn loiter_grants() {
    let overdue = Setup { tunables: &crate::common::HASTY, micros_step: 3, polls: 1, ..Setup::new(4) };
    flashlock_model::loom::explore(
        "loiter, impatient",
        Preemptions(3),
        overdue,
        crate::common::sections::<Loiter<Mcs<Park>, Park>>(&[1, 1]),
    )
    .shows(&[flashlock_locks::machine::event::Event::Grant]);
}
