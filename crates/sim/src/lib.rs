//! # A simulated computer, of any size, on which flashlock's locks run
//!
//! The locks of `flashlock-locks` run here unchanged, on a computer that a [`Description`] describes. It may have many
//! sockets, for example, or more threads than CPUs. Simulated threads are coroutines, and their actions take virtual
//! time. A run is deterministic: the same description, program and seed give the same bytes.
//!
//! | module | holds |
//! |---|---|
//! | [`description`] | the model of a computer, as TOML |
//! | `memory`, `tags`, `shape` | cache coherence: what an access costs, and why |
//! | `kernel`, `thread` | virtual time, its events, CPUs and their queues |
//! | `machine`, `access`, `spin`, `arena` | the `Machine` that the locks see |
//! | `placement` | where threads start |
//! | [`simulation`] | how to run something |
//! | `program` | what a simulated thread can do besides using locks |
//! | [`backend`] | running the workloads of `flashlock-workloads` |
//! | [`delegation`] | servers that run the sections of other threads |
//! | `measured`, `power` | what is reported about a run |
//! | `footprint`, `host` | how much host memory a run takes, and prefetching it |
//!
//! ```
//! use flashlock_locks::machine::Machine;
//! use flashlock_sim::{Description, Options, Sim, Simulation};
//!
//! let machine = Description::find("2x18x2").unwrap();
//! let mut simulation = Simulation::new(&machine, Options::default());
//! simulation.spawn(|| flashlock_sim::compute(1_000.0));
//! // A microsecond of computing. Before it, the CPU wakes up in 1 µs and switches to the thread in 1.5 µs.
//! assert_eq!(simulation.run().unwrap().ns, 3_500.0);
//! ```
#![warn(missing_docs)]

mod access;
mod arena;
pub mod backend;
pub mod delegation;
pub mod description;
mod footprint;
mod host;
mod kernel;
mod machine;
mod measured;
mod memory;
mod placement;
mod power;
mod program;
mod shape;
pub mod simulation;
mod spin;
mod stuck;
mod tags;
pub mod thread;

pub use description::Description;
pub use footprint::footprint;
pub use machine::{Sim, Word};
pub use memory::Traffic;
pub use placement::Place;
pub use program::{
    compute, delay, disable_preemption, enable_preemption, gives_back, nap, now, set_priority, step, takes, thread_cpu,
    thread_node, thread_number, thread_time, wants,
};
pub use simulation::{Options, Outcome, Placed, Region, Simulation, Stuck, Why};
pub use thread::Use;

/// Virtual time, in picoseconds.
pub(crate) type Ps = u64;

pub(crate) fn ps(ns: f64) -> Ps {
    (ns * 1e3).round() as Ps
}

pub(crate) fn us(us: f64) -> Ps {
    (us * 1e6).round() as Ps
}

/// The tutorial's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policies.md")]
struct Tutorial;
