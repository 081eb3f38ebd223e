//! A deadline that passes while the lock is handed over.

use flashlock_locks::event::Event;
use flashlock_locks::malthusian::Mcscr;
use flashlock_locks::numa::{Cna, QspinCna};
use flashlock_locks::queue::{Mcs, Qspin};
use flashlock_locks::shuffle::Shfl;
use flashlock_locks::spin::{Futex, Tas, Ticket};
use flashlock_locks::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::explore;

use crate::common::{HASTY, timed};

macro_rules! timing_out {
    ($($name:ident: $lock:ty, $bound:literal;)*) => {$(
        #[test]
        fn $name() {
            let setup = Setup { polls: 1, ..Setup::new(4) };
            let name = concat!(stringify!($name), " 1+timed");
            explore(name, Preemptions($bound), setup, timed::<$lock>()).shows(&[Event::TimedOut]);
            let overdue = Setup { tunables: &HASTY, micros_step: 3, ..setup };
            let name = concat!(stringify!($name), " 1+timed, overdue");
            explore(name, Preemptions($bound), overdue, timed::<$lock>()).shows(&[Event::TimedOut]);
            let setup = Setup { patience: 1, ..setup };
            let name = concat!(stringify!($name), " 1+timed, impatient");
            explore(name, Preemptions($bound), setup, timed::<$lock>()).shows(&[Event::TimedOut]);
        }
    )*};
}

timing_out! {
    tas: Tas, 3;
    futex: Futex, 3;
    mcs_spin: Mcs<Spin>, 3;
    mcs_stp: Mcs<SpinThenPark>, 3;
    mcs_park: Mcs<Park>, 3;
    ticket: Ticket, 2;
    cna_spin: Cna<Spin>, 2;
    cna_stp: Cna<SpinThenPark>, 2;
    cna_park: Cna<Park>, 3;
    qspin_spin: Qspin<Spin>, 3;
    qspin_stp: Qspin<SpinThenPark>, 3;
    qspin_park: Qspin<Park>, 3;
    qspin_cna_spin: QspinCna<Spin>, 3;
    qspin_cna_stp: QspinCna<SpinThenPark>, 2;
    qspin_cna_park: QspinCna<Park>, 3;
    mcscr_spin: Mcscr<Spin>, 3;
    mcscr_stp: Mcscr<SpinThenPark>, 2;
    mcscr_park: Mcscr<Park>, 3;
    shfl_stp: Shfl<SpinThenPark>, 2;
    shfl_park: Shfl<Park>, 2;
}
