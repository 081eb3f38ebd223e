//! Every thread gets the lock as often as it asks, alone.

use flashlock_locks::malthusian::Mcscr;
use flashlock_locks::numa::{Cna, QspinCna};
use flashlock_locks::queue::{Mcs, Qspin};
use flashlock_locks::shuffle::Shfl;
use flashlock_locks::spin::{Futex, Tas, Ticket};
use flashlock_locks::wait::{Park, Spin, SpinThenPark};

use crate::common::{FLOWING, Load, OVERDUE, STILL, both, rounds};

const UNTIMED: Load = Load { threads: 4, rounds: 3, nodes: 2, timed: false, hold: 0 };
const TIMED: Load = Load { timed: true, ..UNTIMED };

macro_rules! rounds {
    ($($name:ident: $lock:ty;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn time_stands_still() {
                both(concat!(stringify!($name), " still"), 20_000, STILL, rounds::<$lock>(UNTIMED));
            }

            #[test]
            fn all_waits_are_overdue() {
                both(concat!(stringify!($name), " overdue"), 20_000, OVERDUE, rounds::<$lock>(UNTIMED));
            }

            #[test]
            fn time_flows() {
                both(concat!(stringify!($name), " flowing"), 30_000, FLOWING, rounds::<$lock>(TIMED));
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
    ticket: Ticket;
    cna_spin: Cna<Spin>;
    cna_stp: Cna<SpinThenPark>;
    cna_park: Cna<Park>;
    qspin_spin: Qspin<Spin>;
    qspin_stp: Qspin<SpinThenPark>;
    qspin_park: Qspin<Park>;
    qspin_cna_spin: QspinCna<Spin>;
    qspin_cna_stp: QspinCna<SpinThenPark>;
    qspin_cna_park: QspinCna<Park>;
    mcscr_spin: Mcscr<Spin>;
    mcscr_stp: Mcscr<SpinThenPark>;
    mcscr_park: Mcscr<Park>;
    shfl_spin: Shfl<Spin>;
    shfl_stp: Shfl<SpinThenPark>;
    shfl_park: Shfl<Park>;
}
