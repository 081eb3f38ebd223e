//! Mutual exclusion, and that each critical section sees the ones before it.

use flashlock_locks::malthusian::Mcscr;
use flashlock_locks::numa::{Cna, QspinCna};
use flashlock_locks::queue::{Mcs, Qspin};
use flashlock_locks::shuffle::Shfl;
use flashlock_locks::spin::{Futex, Tas, Ticket};
use flashlock_locks::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::loom::Depth::Preemptions;

use crate::common::{ALL, excludes};

/// `name: lock, preemptions with two threads that come back, preemptions with three threads;`
macro_rules! excluding {
    ($($name:ident: $lock:ty, $again:literal, $three:literal;)*) => {$(
        mod $name {
            use super::*;

            const SETUP: Setup = Setup { polls: 1, ..Setup::new(4) };

            #[test]
            fn two_threads() {
                excludes::<$lock>(concat!(stringify!($name), " 1+1"), ALL, SETUP, &[1, 1]);
            }

            #[test]
            fn two_threads_again() {
                let recycling = Setup { recycles: true, ..SETUP };
                excludes::<$lock>(concat!(stringify!($name), " 2+2"), Preemptions($again), recycling, &[2, 2]);
            }

            #[test]
            fn three_threads() {
                excludes::<$lock>(concat!(stringify!($name), " 1+1+1"), Preemptions($three), SETUP, &[1, 1, 1]);
            }
        }
    )*};
}

excluding! {
    tas: Tas, 4, 1;
    futex: Futex, 4, 3;
    mcs_spin: Mcs<Spin>, 4, 2;
    mcs_stp: Mcs<SpinThenPark>, 3, 3;
    mcs_park: Mcs<Park>, 3, 3;
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
    shfl_spin: Shfl<Spin>, 3, 2;
    shfl_stp: Shfl<SpinThenPark>, 3, 2;
    shfl_park: Shfl<Park>, 4, 3;
}
