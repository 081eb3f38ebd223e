//! # Machine descriptions
//!
//! A description is the model of a computer: its shape, caches, latencies and scheduler. It is a TOML file; the files
//! in `machines/` are part of the command. It contains everything that the simulation takes from a machine, and nothing
//! else: two machines differ only in their descriptions.
//!
//! **Where the numbers come from.** Published latencies, and three facts for each machine: the time that a line takes
//! between two caches, the speed of one thread, and MCS at two threads. Values that neither source gives are assumed. A
//! paper's other measurements are used to test the simulation, never to fit it. Each file names its sources and its
//! assumptions.

mod check;
mod read;

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A computer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name by which it is chosen: one word.
    pub name: String,
    /// A title of one line.
    pub title: String,
    /// Where the numbers come from.
    pub source: String,
    /// The topology.
    pub topology: Topology,
    /// The speed of its cores.
    pub clock: Clock,
    /// The caches.
    pub cache: Caches,
    /// The costs of accesses.
    pub latency_ns: Latency,
    /// The capacity of its buses.
    pub bandwidth: Bandwidth,
    /// The operating system.
    pub scheduler: Scheduler,
    /// The instruction with which a waiter sleeps until a line changes, if waiters use one. Without it, they poll with
    /// pauses.
    pub umwait: Option<Umwait>,
    /// The hypervisor under it, if there is one.
    pub hypervisor: Option<Hypervisor>,
    /// Its power consumption, as an estimate.
    pub power: Power,
    /// Further measurements of it.
    pub measured_ns: Option<Measured>,
}

/// The topology. CPUs are numbered node by node and core by core, with a core's hardware threads side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Packages (sockets).
    pub packages: u32,
    /// NUMA nodes (dies) in each package; each has its own last-level cache and memory.
    pub nodes_per_package: u32,
    /// Whether the operating system shows each package as one NUMA node, even if it consists of several.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shown_as_packages: bool,
    /// Cores in each node.
    pub cores_per_node: u32,
    /// Hardware threads of each core.
    pub threads_per_core: u32,
    /// The distance from node `i` to node `j`: 0 on the diagonal, else an index into the lists of [`Latency`]. If
    /// empty, the distance is 1 within a package. Between packages it is 1 if each package is a single node, else 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<Vec<u32>>,
}

/// How fast the cores are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// The base clock in GHz, without turbo.
    pub ghz: f64,
    /// Pairs `(cores, GHz)`: the clock while at most so many cores of a package are active, in ascending order of
    /// cores. Empty: no turbo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turbo: Vec<(u32, f64)>,
    /// How many threads a core runs at full speed (pipelines that share nothing).
    pub pipelines: f64,
    /// The share of a pipeline that each of two threads gets, between 0.5 and 1. With more threads, the pipeline is
    /// divided further.
    pub smt_share: f64,
    /// The share of a pipeline that a polling thread takes, between 0 and 1.
    pub poll_share: f64,
    /// The cost of a step through a tree, except its load, in ns: a comparison, and a branch that is mispredicted half
    /// of the time. It is one of the three measured facts: the key-value map with one thread shows it.
    pub step_ns: f64,
}

/// The caches. A line has 64 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// Each core's first level.
    pub l1: Cache,
    /// Each core's second level. It includes the first.
    pub l2: Cache,
    /// Each node's last level.
    pub llc: Cache,
    /// Whether the cores of a node lose a line when the node's last level drops it.
    pub inclusive: bool,
    /// Each core's address translations.
    pub tlb: Tlb,
}

/// A set-associative cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Its size in KiB.
    pub kib: u32,
    /// Its associativity.
    pub ways: u32,
}

/// Address translation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// The number of pages whose translation a core caches, in sets of [`TLB_WAYS`], or in one set if there are fewer.
    pub entries: u32,
    /// Size of a page in KiB.
    pub page_kib: u32,
    /// The cost of finding another page's translation, in ns.
    pub walk_ns: f64,
}

/// The costs of accesses, in ns. Lists are by distance: within a node, to the nearest nodes, and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// A load that hits the first level.
    pub l1: f64,
    /// A load that hits the second.
    pub l2: f64,
    /// A load from the last level of the node at that distance.
    pub llc: Vec<f64>,
    /// A load of a line that another core has modified.
    pub transfer: Vec<f64>,
    /// A load of a line that another core owns exclusively and has not modified.
    pub clean: Vec<f64>,
    /// Invalidating the other copies of a shared line, by the distance of the farthest copy.
    pub upgrade: Vec<f64>,
    /// A load from memory.
    pub dram: Vec<f64>,
    /// What a read-modify-write takes beyond getting its line: if the core owns the line already, beyond a load from
    /// the first or second level.
    pub rmw: f64,
    /// A store into the store buffer.
    pub store: f64,
    /// The instruction that signals polling (x86's PAUSE).
    pub pause: f64,
    /// How long a core works ahead of a load that it waits for. A store to the same line asks for the line that much
    /// earlier.
    pub reorder: f64,
    /// How many independent loads are under way at once, on average.
    pub overlap: f64,
}

/// The capacity of caches, memories and links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Each last level, in GB/s.
    pub llc_gbs: f64,
    /// The memory of each node, in GB/s.
    pub dram_gbs: f64,
    /// The traffic into and out of each node, in GB/s.
    pub link_gbs: f64,
    /// How long a request for a shared line keeps the line's home busy, in ns.
    pub line_ns: f64,
    /// The number of stores that a thread can have under way.
    pub store_buffer: u32,
}

/// The operating system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// How long a thread runs while others wait for its CPU, in microseconds.
    pub slice_us: f64,
    /// Switching from one thread to another, in microseconds.
    pub switch_us: f64,
    /// Entering and leaving the system for a futex call, in microseconds.
    pub syscall_us: f64,
    /// The waker's cost of waking a thread, in microseconds.
    pub wake_us: f64,
    /// How long a CPU takes to wake up after it has been idle for at least so long, in microseconds: `(idle, latency)`,
    /// ascending.
    pub idle_us: Vec<(f64, f64)>,
    /// How much later than asked a timed sleep's timer rings, in microseconds. Then the CPU wakes up and switches.
    pub timer_slack_us: f64,
}

/// Waiting for a change of a line without polling it (x86's UMONITOR and UMWAIT, or MONITORX and MWAITX). The hardware
/// thread leaves its pipeline to others, and consumes less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Umwait {
    /// From the change to the waiter's next instruction, in ns. It is longer for deeper states.
    pub wake_ns: f64,
    /// The operating system's limit, in microseconds: after this time the waiter looks anyway.
    pub max_us: f64,
    /// The power of a core whose hardware threads all wait this way, above an idle core, in watts.
    pub wait_w: f64,
}

/// A hypervisor that takes CPUs away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hypervisor {
    /// How long each CPU runs, in milliseconds.
    pub run_ms: f64,
    /// How long it then does not, in milliseconds.
    pub away_ms: f64,
}

/// Power and energy. These are estimates: they rank locks, and do not predict what a power meter shows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// The power of a core while any of its hardware threads computes, waits for lines or is in the system, above an
    /// idle core, in watts.
    pub busy_w: f64,
    /// The same while none of them does, but at least one polls.
    pub poll_w: f64,
    /// A line carried within a node, in nanojoules.
    pub local_nj: f64,
    /// A line carried between nodes or from memory.
    pub remote_nj: f64,
}

/// Further measurements by `flashlock calibrate` between pairs of CPUs. The simulation does not use them: it derives
/// such figures itself from `transfer`, `upgrade` and `rmw`, so they serve to check the model. In ns; medians of all
/// pairs, each with its distance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// A compare-and-swap on a line that the other CPU has modified.
    pub cas: Vec<(u32, f64)>,
    /// From one CPU's compare-and-swap to the other's, on one word that both change in turn.
    pub cas_ping_pong: Vec<(u32, f64)>,
    /// From one CPU's store to the other's.
    pub store_ping_pong: Vec<(u32, f64)>,
    /// The same between the hardware threads of one core, if it has several.
    #[serde(default)]
    pub siblings: Option<Siblings>,
}

/// Measurements between two hardware threads of one core, in ns; medians of all such pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Siblings {
    /// A load of a line that the other thread has modified.
    pub load: f64,
    /// A compare-and-swap on such a line.
    pub cas: f64,
    /// From one thread's compare-and-swap to the other's, on one word that both change in turn.
    pub cas_ping_pong: f64,
    /// From one thread's store to the other's.
    pub store_ping_pong: f64,
}

impl Measured {
    fn lists(&self) -> [(&'static str, &[(u32, f64)]); 3] {
        [
            ("measured_ns.cas", &self.cas),
            ("measured_ns.cas_ping_pong", &self.cas_ping_pong),
            ("measured_ns.store_ping_pong", &self.store_ping_pong),
        ]
    }
}

/// Omits a flag that is not set from the written description.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// The machines that are part of the command: name and text.
        const SHIPPED: &[(&str, &str)] = &[$(($name, include_str!(concat!("../machines/", $name, ".toml")))),*];
    };
}

shipped!["2x18x2", "4x18x2", "8x24", "opteron-6172", "sparc-t5", "2x26x2", "2x128x2"];

/// The number of entries in a set of a core's TLB.
pub const TLB_WAYS: u32 = 8;
/// The maximum number of hardware threads.
pub const MAX_CPUS: u32 = 1024;
/// The maximum number of cores.
pub const MAX_CORES: u32 = 256;
/// The maximum number of nodes.
pub const MAX_NODES: u32 = 32;

impl Description {
    /// The names of the machines that are part of the command.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The text of a shipped machine.
    pub fn shipped(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The shipped machine with this name, or else the file at this path. The error says what is wrong.
    pub fn find(name: &str) -> Result<Self, String> {
        if let Some(text) = Self::shipped(name) {
            return Self::parse(text).map_err(|error| format!("machine '{name}': {error}"));
        }
        let known = || Self::names().collect::<Vec<_>>().join(" ");
        let text = std::fs::read_to_string(Path::new(name)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("there is no machine and no file '{name}'; known machines are: {}", known())
            }
            _ => {
                // Without Rust's suffix `(os error 21)`.
                let error = error.to_string();
                format!("cannot read '{name}': {}", error.split(" (os error").next().unwrap_or(&error))
            }
        })?;
        Self::parse(&text).map_err(|error| format!("'{name}': {error}"))
    }

    /// Parses the text of a file. The error names the line, the field and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        read::read(text)
    }

    /// The text of a file that describes this machine.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("a description is a table of plain values")
    }

    /// The number of NUMA nodes.
    pub fn nodes(&self) -> u32 {
        self.topology.packages * self.topology.nodes_per_package
    }

    /// The number of cores.
    pub fn cores(&self) -> u32 {
        self.nodes() * self.topology.cores_per_node
    }

    /// The number of hardware threads.
    pub fn cpus(&self) -> u32 {
        self.cores() * self.topology.threads_per_core
    }

    /// The distance between two nodes.
    pub fn distance(&self, a: u32, b: u32) -> u32 {
        let shape = &self.topology;
        match shape.distances.get(a as usize) {
            _ if a == b => 0,
            Some(row) => row[b as usize],
            None if shape.nodes_per_package == 1 || a / shape.nodes_per_package == b / shape.nodes_per_package => 1,
            None => 2,
        }
    }

    /// The same machine with all latencies between cores, caches and memory multiplied by `factor`.
    #[must_use]
    pub fn with_latencies(mut self, factor: f64) -> Self {
        let latency = &mut self.latency_ns;
        for list in
            [&mut latency.llc, &mut latency.transfer, &mut latency.clean, &mut latency.upgrade, &mut latency.dram]
        {
            list.iter_mut().for_each(|ns| *ns *= factor);
        }
        self
    }
}

#[cfg(test)]
mod tests;
