//! The machine that a result comes from.

use std::ffi::CStr;
use std::fmt;

use flashlock_native::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::units;

/// The description of a machine in a result file. Unknown values are `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: Option<String>,
    /// Whether the system runs under a hypervisor.
    pub virtualised: Option<bool>,
    /// CPUs (hardware threads) that are online.
    pub cpus: usize,
    /// CPUs that the tool was allowed to use.
    pub usable_cpus: usize,
    /// Cores.
    pub cores: Option<usize>,
    /// Packages (sockets).
    pub packages: Option<usize>,
    /// NUMA nodes.
    pub numa_nodes: Option<usize>,
    /// `NODESxCORESxSMT` if the locks were configured to assume another machine.
    pub imagined: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The version of the C library that the tool runs with.
    pub glibc: Option<String>,
}

impl Machine {
    /// The host. `imagined`: the value of `FLASHLOCK_TOPOLOGY`, if set.
    pub fn here(imagined: Option<[u32; 3]>) -> Self {
        let mut machine = Self::from(&Topology::read());
        machine.imagined = imagined.map(|[nodes, cores, smt]| format!("{nodes}x{cores}x{smt}"));
        machine
    }
}

impl From<&Topology> for Machine {
    fn from(topology: &Topology) -> Self {
        Self {
            cpu: topology.model.clone(),
            virtualised: topology.virtualised,
            cpus: topology.cpus.len(),
            usable_cpus: topology.usable(),
            cores: topology.cores(),
            packages: topology.packages(),
            numa_nodes: (!topology.nodes.is_empty()).then_some(topology.nodes.len()),
            imagined: topology.imagined.map(|[nodes, cores, smt]| format!("{nodes}x{cores}x{smt}")),
            kernel: topology.kernel.clone(),
            glibc: glibc(),
        }
    }
}

/// The version of the C library that this process runs with.
pub fn glibc() -> Option<String> {
    // SAFETY: glibc returns a C string that is never freed.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_str().ok().map(str::to_owned)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = || "unknown".to_owned();
        let part = |number: Option<usize>, noun| {
            number.map(|number| format!(", {}", units::counted(number as u64, noun))).unwrap_or_default()
        };
        f.write_str(self.cpu.as_deref().unwrap_or("unknown CPU"))?;
        write!(f, ", {}", units::counted(self.cpus as u64, "CPU"))?;
        if self.usable_cpus != self.cpus {
            write!(f, " ({} usable)", self.usable_cpus)?;
        }
        write!(f, "{}{}", part(self.packages, "package"), part(self.numa_nodes, "NUMA node"))?;
        if self.virtualised == Some(true) {
            f.write_str(", virtual")?;
        }
        if let Some(imagined) = &self.imagined {
            write!(f, ", locks imagine {imagined}")?;
        }
        if self.kernel.is_none() && self.glibc.is_none() {
            // A simulated machine.
            return Ok(());
        }
        let kernel = self.kernel.clone().unwrap_or_else(unknown);
        write!(f, ", Linux {kernel}, glibc {}", self.glibc.clone().unwrap_or_else(unknown))
    }
}
