//! # Reader parts: CPUs whose readers share a counter
//!
//! Readers-writer locks with several reader counters ask this module which counter a thread uses
//! ([`Division::Readers`](flashlock_locks::machine::Division::Readers)). There are at most [`READER_PARTS`]
//! parts, or one for each NUMA node if there are more nodes. Each node has equally many, made of consecutive CPUs in
//! its list. They are read once from `/sys`, one file for each node, into a table by CPU. Before that, and for a CPU
//! beyond [`MOST_CPUS`], the part is 0.
//!
//! If only the kernel knows the CPU, and on an [imagined](crate::numa) machine, threads are assigned to the parts
//! round-robin.

use core::sync::atomic::{
    AtomicU8, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use flashlock_locks::machine::{READER_PARTS, reader_part_of};

use crate::groups::each_cpu;
use crate::near::Path;
use crate::{numa, sys, thread};

/// CPUs from this number on are in part 0.
const MOST_CPUS: usize = 1024;

static PARTS: [AtomicU8; MOST_CPUS] = [const { AtomicU8::new(0) }; MOST_CPUS];
static SOURCE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const READ: u32 = 1;
const ROUND_ROBIN: u32 = 2;

/// The calling thread's part.
#[inline]
pub(crate) fn part() -> u32 {
    match SOURCE.load(Acquire) {
        READ => numa::cheap_cpu().and_then(|cpu| PARTS.get(cpu as usize)).map_or(0, |part| part.load(Relaxed).into()),
        UNKNOWN => 0,
        _ => round_robin(),
    }
}

#[cold]
fn round_robin() -> u32 {
    let (place, nodes) = (thread::place(), numa::nodes());
    let each = (READER_PARTS / nodes).max(1);
    reader_part_of((place % nodes, nodes), (place / nodes % each, each))
}

/// Fills the table. Call it once, outside lock paths, after [`numa::prepare`].
pub fn prepare() {
    numa::prepare_cpu();
    if numa::is_imagined() || numa::cheap_cpu().is_none() {
        SOURCE.store(ROUND_ROBIN, Release);
        return;
    }
    let mut text = [0; 1024];
    for node in 0..numa::nodes() {
        let path = Path::new(&["/sys/devices/system/node/node"], &[node], "/cpulist");
        let mut cpus = sys::read(path.as_c_str(), &mut text);
        if cpus.is_empty() && node == 0 {
            cpus = sys::read(c"/sys/devices/system/cpu/online", &mut text);
        }
        divide(node, numa::nodes(), cpus);
    }
    SOURCE.store(READ, Release);
}

/// Divides the CPUs of a node into parts.
fn divide(node: u32, nodes: u32, cpus: &[u8]) {
    let (mut rank, mut all) = (0, 0);
    each_cpu(cpus, |_| all += 1);
    each_cpu(cpus, |cpu| {
        if let Some(part) = PARTS.get(cpu as usize) {
            part.store(reader_part_of((node, nodes), (rank, all)) as u8, Relaxed);
        }
        rank += 1;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(nodes: &[&str]) -> Vec<u8> {
        (0..).zip(nodes).for_each(|(node, cpus)| divide(node, nodes.len() as u32, cpus.as_bytes()));
        let mut parts = Vec::new();
        nodes.iter().for_each(|cpus| each_cpu(cpus.as_bytes(), |cpu| parts.push(PARTS[cpu as usize].load(Relaxed))));
        parts
    }

    #[test]
    fn parts_are_of_a_node_and_not_too_many() {
        assert_eq!(divided(&["0-1"]), [0, 1]);
        assert_eq!(divided(&["0-15"]), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert_eq!(divided(&["0-3,8-11", "4-7"]), [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7]);
        let nine: Vec<_> = (0..18).step_by(2).map(|cpu| format!("{cpu}-{}", cpu + 1)).collect();
        let nine: Vec<_> = nine.iter().map(String::as_str).collect();
        assert_eq!(divided(&nine), (0..9).flat_map(|node| [node, node]).collect::<Vec<u8>>());
    }
}
