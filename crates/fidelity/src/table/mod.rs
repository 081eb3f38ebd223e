//! The figures that the papers give, in numbers or in words of more and less, of what a simulation could run, and how
//! near it is to come. Those of workloads that do not exist here are open rows, or are named on the page as what it
//! leaves out.
//!
//! The goals were set before the simulator was written; where nothing was set, 10 % are taken. None is loosened because
//! it is missed.

mod cna;
mod delegation;
mod kernel;
mod malthusian;
mod others;
mod waiters;

use crate::point::{Effort, Setting};
use crate::row::Group;

/// No parking: what the papers compare with.
const MCS: &str = "mcs:wait=spin";
const MCS_STP: &str = "mcs:wait=stp";
const CNA: &str = "cna:wait=spin";
/// The kernel's own lock, and CNA in it as of version 10 of the patch, which knows no limit in time.
const QSPIN: &str = "qspin:wait=spin";
const QSPIN_CNA: &str = "qspin-cna:wait=spin,stay=0";
/// And as the series in `kernel/` has it.
const QSPIN_OURS: &str = "qspin-cna:wait=spin,stay=1000,flush=31,incremental=2";
/// With shuffle reduction: the paper's THRESHOLD2 is 0xff.
const CNA_OPT: &str = "cna:wait=spin,reduction=256";
const MCSCR: &str = "mcscr:wait=spin";
const MCSCR_STP: &str = "mcscr:wait=stp";
const MCSCRN: &str = "mcscrn:wait=spin";
/// Its waiters spin, and sleep only if they wait long.
const C_PTL_TKT: &str = "c-ptl-tkt";
/// As CNA, they keep the lock on a NUMA node for 65,536 hand-offs: "configured with similar fairness settings"
/// (section 7).
const HMCS: &str = "hmcs:wait=spin,passes=65536";
const C_BO_MCS: &str = "c-bo-mcs:wait=spin,passes=65536";
const SHFL: &str = "shfl";
const TAS: &str = "tas";

/// What is taken where no goal was set.
const USUAL: f64 = 0.10;

/// A workload of which nobody says where its threads are.
fn anywhere(machine: &'static str, workload: &'static str) -> Setting {
    Setting::new(machine, workload).with(&["--place", "anywhere"]).effort(Effort::Drawn)
}

/// All of it.
pub(crate) fn groups() -> Vec<Group> {
    let groups = [
        cna::groups(),
        kernel::groups(),
        malthusian::groups(),
        waiters::groups(),
        others::groups(),
        delegation::groups(),
    ];
    groups.into_iter().flatten().collect()
}
