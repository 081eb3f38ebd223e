//! A deadline that passes while the lock is handed over.

use flashlock_locks::machine::event::Event;
use flashlock_locks::mutex::flash::Flash;
use flashlock_locks::mutex::malthusian::{LifoCr, Loiter, Mcscr, Mcscrn};
use flashlock_locks::mutex::numa::{Cna, QspinCna};
use flashlock_locks::mutex::queue::{Clh, Mcs, McsTp, Qspin};
use flashlock_locks::mutex::shuffle::{Shfl, ShflSpin};
use flashlock_locks::mutex::spin::{Futex, Hbo, Tas, Ticket};
use flashlock_locks::parts::wait::{Park, Spin, SpinThenPark};
use flashlock_model::Setup;
use flashlock_model::loom::Depth::Preemptions;
use flashlock_model::loom::explore;

use crate::common::{HASTY, timed};

macro_rules! timing_out {
    ($($name:ident: $lock:ty, $bound:literal;)*) => {$(
        #[test]
        fn $name() {
            let setup = timing_out!(@);
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
    (@) => { Setup { polls: 1, ..Setup::new(4) } };
}

timing_out! {
    tas: Tas, 3;
    futex: Futex, 3;
    flash: Flash, 2;
    mcs_spin: Mcs<Spin>, 3;
    mcs_stp: Mcs<SpinThenPark>, 3;
    mcs_park: Mcs<Park>, 3;
    hbo: Hbo, 3;
    clh_spin: Clh<Spin>, 2;
    clh_stp: Clh<SpinThenPark>, 2;
    clh_park: Clh<Park>, 3;
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
    mcs_tp_spin: McsTp<Spin>, 2;
    mcs_tp_stp: McsTp<SpinThenPark>, 2;
    mcs_tp_park: McsTp<Park>, 2;
    mcscrn_stp: Mcscrn<SpinThenPark>, 2;
    mcscrn_park: Mcscrn<Park>, 3;
    loiter_spin: Loiter<Mcs<Spin>, Spin>, 1;
    loiter_stp: Loiter<Mcs<SpinThenPark>, SpinThenPark>, 1;
    loiter_park: Loiter<Mcs<Park>, Park>, 1;
    lifo_cr_spin: LifoCr<Spin>, 2;
    lifo_cr_stp: LifoCr<SpinThenPark>, 2;
    lifo_cr_park: LifoCr<Park>, 3;
    shfl_only_spins: ShflSpin, 2;
    shfl_stp: Shfl<SpinThenPark>, 2;
    shfl_park: Shfl<Park>, 2;
}
