//! # Machine descriptions
//!
//! What is known of a computer: its shape, its caches, its latencies, its scheduler. A description is a TOML file;
//! those in `machines/` are part of the command. Everything that the simulation takes from a machine is here, and
//! nothing else: two machines differ in their descriptions only.
//!
//! **Where the numbers come from.** Published latencies and three facts for each machine: the time that a line takes
//! between two caches, the speed of one thread, and MCS at two threads. What neither tells is assumed. What a paper
//! measured besides is what the simulation is tested with, never what it is fitted to. Each file names its sources, and
//! what is assumed in it.

mod check;
mod read;

use std::path::Path;

use serde::{Deserialize, Serialize};

/// A computer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// By which it is chosen, as a word.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// Where the numbers come from.
    pub source: String,
    /// Its shape.
    pub topology: Topology,
    /// How fast its cores are.
    pub clock: Clock,
    /// Its caches.
    pub cache: Caches,
    /// What accesses cost.
    pub latency_ns: Latency,
    /// What its buses carry.
    pub bandwidth: Bandwidth,
    /// Its operating system.
    pub scheduler: Scheduler,
    /// The instruction with which a waiter sleeps until a line changes, if waiters use one; else they poll with pauses.
    pub umwait: Option<Umwait>,
    /// A hypervisor under it, if there is one.
    pub hypervisor: Option<Hypervisor>,
    /// What it consumes, as an estimate.
    pub power: Power,
    /// What was measured of it besides.
    pub measured_ns: Option<Measured>,
}

/// The shape. CPUs are numbered node by node, core by core, with a core's hardware threads side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Packages (sockets).
    pub packages: u32,
    /// NUMA nodes (dies) in each package; each has its own last-level cache and memory.
    pub nodes_per_package: u32,
    /// Whether the operating system shows each package as one NUMA node, whatever it consists of.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shown_as_packages: bool,
    /// Cores in each node.
    pub cores_per_node: u32,
    /// Hardware threads of each core.
    pub threads_per_core: u32,
    /// How far node `i` is from node `j`: 0 on the diagonal, else an index into the lists of [`Latency`]. Empty: 1
    /// within a package, and between packages 1 if packages are single nodes, else 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<Vec<u32>>,
}

/// How fast the cores are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// Without turbo.
    pub ghz: f64,
    /// With at most so many cores of a package active, so many GHz; in rising order of cores. Empty: off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turbo: Vec<(u32, f64)>,
    /// How many threads a core runs at full speed (pipelines that share nothing).
    pub pipelines: f64,
    /// What a thread gets of a pipeline that two share, between 0.5 and 1; with more of them it is divided further.
    pub smt_share: f64,
    /// What a polling thread takes of a pipeline, between 0 and 1.
    pub poll_share: f64,
    /// What a step through a tree takes, beside its load: a comparison, and a branch that is guessed wrong half of the
    /// time, in ns. One of the three facts that are measured: one thread of the key-value map shows it.
    pub step_ns: f64,
}

/// The caches. Lines have 64 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// Each core's first level.
    pub l1: Cache,
    /// Each core's second level. It includes the first.
    pub l2: Cache,
    /// Each node's last level.
    pub llc: Cache,
    /// Whether a line that the last level drops is dropped by the node's cores, too.
    pub inclusive: bool,
    /// Each core's translations.
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
    /// Pages that a core knows, in sets of [`TLB_WAYS`], or in one if they are fewer.
    pub entries: u32,
    /// Size of a page in KiB.
    pub page_kib: u32,
    /// What finding another one takes, in ns.
    pub walk_ns: f64,
}

/// What accesses cost, in ns. Lists go by distance: within a node, to the next nodes, and so on.
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
    /// A load of a line that another core has for itself, and has not modified.
    pub clean: Vec<f64>,
    /// Making a shared line one's own, where the farthest sharer is so far.
    pub upgrade: Vec<f64>,
    /// A load from memory.
    pub dram: Vec<f64>,
    /// A read-modify-write of a line that is one's own already.
    pub rmw: f64,
    /// A store into the store buffer.
    pub store: f64,
    /// The instruction that says "I am polling".
    pub pause: f64,
    /// How long a core works ahead of a load it waits for: a store to the same line asks for the line in that time.
    pub reorder: f64,
    /// How many loads that do not depend on each other are under way at once, on average.
    pub overlap: f64,
}

/// What is carried at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Each last level, in GB/s.
    pub llc_gbs: f64,
    /// The memory of each node, in GB/s.
    pub dram_gbs: f64,
    /// What leaves or enters each node, in GB/s.
    pub link_gbs: f64,
    /// For how long a line that is shared keeps its home busy when somebody else asks for it, in ns.
    pub line_ns: f64,
    /// Stores that a thread may have under way.
    pub store_buffer: u32,
}

/// The operating system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// How long a thread runs while others want its CPU, in microseconds.
    pub slice_us: f64,
    /// From one thread to another, in microseconds.
    pub switch_us: f64,
    /// Into and out of the system for a futex, in microseconds.
    pub syscall_us: f64,
    /// What waking somebody takes the waker, in microseconds.
    pub wake_us: f64,
    /// How long a CPU takes to wake up after it was idle for at least so long, in microseconds: `(idle, latency)`,
    /// rising.
    pub idle_us: Vec<(f64, f64)>,
    /// What timed sleeps take longer than asked, in microseconds.
    pub timer_slack_us: f64,
}

/// Waiting for a change of a line without polling it (x86's UMONITOR and UMWAIT, or MONITORX and MWAITX): the hardware
/// thread leaves its pipeline to others, and consumes less.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Umwait {
    /// From the change to the waiter's next instruction, in ns. The deeper the state, the longer.
    pub wake_ns: f64,
    /// After so many microseconds it looks anyway: the limit that the operating system sets.
    pub max_us: f64,
    /// A core whose hardware threads only wait so, above an idle one, in watts.
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

/// What is consumed. Estimates: they order locks, and say nothing about a wall socket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// A core, above an idle one, while any of its hardware threads computes, waits for lines or is in the system, in
    /// watts.
    pub busy_w: f64,
    /// The same while none does, but one polls.
    pub poll_w: f64,
    /// A line carried within a node, in nanojoules.
    pub local_nj: f64,
    /// A line carried between nodes or from memory.
    pub remote_nj: f64,
}

/// What `flashlock calibrate` measured between pairs of CPUs and the simulation takes nothing from, for it makes such
/// figures itself, of `transfer`, `upgrade` and `rmw`: facts to hold a model against. In ns; medians of all pairs, each
/// with their distance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// A compare-and-swap on a line that the other has modified.
    pub cas: Vec<(u32, f64)>,
    /// From one CPU's compare-and-swap to the other's, on one word that both change in turns.
    pub cas_ping_pong: Vec<(u32, f64)>,
    /// From one CPU's store to the other's.
    pub store_ping_pong: Vec<(u32, f64)>,
    /// The same between the hardware threads of one core, if it has several.
    #[serde(default)]
    pub siblings: Option<Siblings>,
}

/// What was measured between two hardware threads of one core, in ns; medians of all such pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Siblings {
    /// A load of a line that the other has modified.
    pub load: f64,
    /// A compare-and-swap on such a line.
    pub cas: f64,
    /// From one's compare-and-swap to the other's, on one word that both change in turns.
    pub cas_ping_pong: f64,
    /// From one's store to the other's.
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

/// What is not said of a machine is not written, either.
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

/// Pages in a set of a core's translations.
pub const TLB_WAYS: u32 = 8;
/// More hardware threads than this are not simulated.
pub const MAX_CPUS: u32 = 1024;
/// Nor more cores than this.
pub const MAX_CORES: u32 = 256;
/// Nor more nodes.
pub const MAX_NODES: u32 = 32;

impl Description {
    /// The names of the machines that are part of the command.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The text of one of them.
    pub fn shipped(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// A machine of that name, or else the file there. The error says what is wrong.
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
                // Without Rust's `(os error 21)`.
                let error = error.to_string();
                format!("cannot read '{name}': {}", error.split(" (os error").next().unwrap_or(&error))
            }
        })?;
        Self::parse(&text).map_err(|error| format!("'{name}': {error}"))
    }

    /// From the text of a file. The error says what is wrong with which field, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        read::read(text)
    }

    /// The text of a file.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("a description is a table of plain values")
    }

    /// NUMA nodes.
    pub fn nodes(&self) -> u32 {
        self.topology.packages * self.topology.nodes_per_package
    }

    /// Cores.
    pub fn cores(&self) -> u32 {
        self.nodes() * self.topology.cores_per_node
    }

    /// Hardware threads.
    pub fn cpus(&self) -> u32 {
        self.cores() * self.topology.threads_per_core
    }

    /// How far two nodes are from each other.
    pub fn distance(&self, a: u32, b: u32) -> u32 {
        let shape = &self.topology;
        match shape.distances.get(a as usize) {
            _ if a == b => 0,
            Some(row) => row[b as usize],
            None if shape.nodes_per_package == 1 || a / shape.nodes_per_package == b / shape.nodes_per_package => 1,
            None => 2,
        }
    }

    /// The same machine, with all latencies between cores, caches and memory multiplied by `factor`.
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
