//! Every thread gets the lock as often as it asks, alone.

use flashlock_locks::malthusian::{LifoCr, Loiter, Mcscr, Mcscrn};
use flashlock_locks::numa::{CBoMcs, CPtlTkt, CTktTkt, Cna, Hmcs, QspinCna};
use flashlock_locks::queue::{Clh, Mcs, McsTp, Qspin};
use flashlock_locks::shuffle::Shfl;
use flashlock_locks::spin::{Futex, Hbo, Tas, Ticket};
use flashlock_locks::wait::{Park, Spin, SpinThenPark};

use flashlock_model::Setup;

use crate::common::{FLOWING, Load, OVERDUE, STILL, both, rounds};

const UNTIMED: Load = Load { threads: 4, rounds: 3, nodes: 2, timed: false, hold: 0 };
const TIMED: Load = Load { timed: true, ..UNTIMED };

macro_rules! rounds {
    ($($name:ident: $lock:ty $(, $restless:literal)?;)*) => {$(
        mod $name {
            use super::*;

            /// LOITER's release may overwrite what a sleeper has just said.
            const RESTLESS: bool = false $(|| $restless)?;

            #[test]
            fn time_stands_still() {
                both(concat!(stringify!($name), " still"), 10_000, Setup { restless: RESTLESS, ..STILL }, rounds::<$lock>(UNTIMED));
            }

            #[test]
            fn all_waits_are_overdue() {
                both(concat!(stringify!($name), " overdue"), 10_000, Setup { restless: RESTLESS, ..OVERDUE }, rounds::<$lock>(UNTIMED));
            }

            #[test]
            fn time_flows() {
                both(concat!(stringify!($name), " flowing"), 12_000, Setup { restless: RESTLESS, ..FLOWING }, rounds::<$lock>(TIMED));
            }
        }
    )*};
}

rounds! {
    tas: Tas;
    futex: Futex;
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
    loiter_spin: Loiter<Mcs<Spin>, Spin>, true;
    loiter_stp: Loiter<Mcs<SpinThenPark>, SpinThenPark>, true;
    loiter_park: Loiter<Mcs<Park>, Park>, true;
    loiter_cna: Loiter<Cna<Park>, Park>, true;
    lifo_cr_spin: LifoCr<Spin>;
    lifo_cr_stp: LifoCr<SpinThenPark>;
    lifo_cr_park: LifoCr<Park>;
    shfl_spin: Shfl<Spin>;
    shfl_stp: Shfl<SpinThenPark>;
    shfl_park: Shfl<Park>;
}
