//! # What is near: last-level caches and distances
//!
//! Policies that need more than the NUMA node ask this module for a thread's last-level cache and for distances between
//! nodes. It reads `/sys` once, outside lock paths, and only if such a policy is chosen ([`prepare`]). After that each
//! answer is a table look-up. Where `/sys` says nothing, the answers are those of a machine with one last-level cache
//! per NUMA node, and with equal distances between all nodes.
//!
//! | what | where |
//! |---|---|
//! | a CPU's last-level cache, named by its first CPU | `/sys/devices/system/cpu/cpuN/cache/indexM/{level,shared_cpu_list}` |
//! | distances | `/sys/devices/system/node/nodeN/distance` |
//!
//! An imagined machine (`FLASHLOCK_TOPOLOGY`) has two last-level caches in each node.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

use flashlock_locks::machine::node::ROLE;

use crate::settings::decimal;
use crate::{numa, sys, thread};

/// CPUs and nodes with higher numbers are not in the tables.
const CPUS: usize = 4096;
const NODES: usize = 64;
/// Cache indices of a CPU: `index0` up to this number, exclusive.
const INDICES: u32 = 8;
/// Default distances, as firmware gives them: from a node to itself, and to another node.
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// For each CPU, one plus the first CPU of its last-level cache; 0: unknown. All accesses to both tables are Relaxed:
/// an answer from before they were filled is the same as if nothing were known.
static CACHES: [AtomicU16; CPUS] = [const { AtomicU16::new(0) }; CPUS];
/// Distances; 0: unknown.
static DISTANCES: [[AtomicU8; NODES]; NODES] = [const { [const { AtomicU8::new(0) }; NODES] }; NODES];

/// A cache has another name than a NUMA node.
const CACHE: u32 = 1 << 16;
const _: () = assert!(CACHE + CPUS as u32 <= ROLE && CPUS < CACHE as usize && NODES < CACHE as usize);

/// The last-level cache of the calling thread's CPU.
pub(crate) fn llc() -> u32 {
    let node = numa::node();
    if numa::is_imagined() {
        let halves = thread::place() / numa::nodes() % 2;
        return node + halves * numa::nodes();
    }
    match CACHES.get(numa::cpu() as usize).map(|cache| cache.load(Relaxed)) {
        None | Some(0) => node,
        Some(first) => CACHE + u32::from(first),
    }
}

/// The distance between two nodes; 10 is local.
pub(crate) fn distance(a: u32, b: u32) -> u32 {
    let known = DISTANCES.get(a as usize).and_then(|row| row.get(b as usize)).map_or(0, |known| known.load(Relaxed));
    match known {
        0 if a == b => LOCAL,
        0 => REMOTE,
        known => u32::from(known),
    }
}

/// Fills the tables. Call it once, after [`numa::prepare`].
pub fn prepare() {
    numa::prepare_cpu();
    if numa::is_imagined() {
        return;
    }
    let mut text = [0; 256];
    let online = numa::last_number(sys::read(c"/sys/devices/system/cpu/online", &mut text)).unwrap_or(0);
    for cpu in 0..=online.min(CPUS as u32 - 1) {
        if let Some(first) = last_level(cpu) {
            CACHES[cpu as usize].store(first as u16 + 1, Relaxed);
        }
    }
    for (node, row) in DISTANCES.iter().enumerate().take(numa::nodes() as usize) {
        let mut text = [0; 512];
        let path = Path::new(&["/sys/devices/system/node/node"], &[node as u32], "/distance");
        for (entry, distance) in row.iter().zip(numbers(sys::read(path.as_c_str(), &mut text))) {
            entry.store(distance.min(u32::from(u8::MAX)) as u8, Relaxed);
        }
    }
}

/// The first CPU of those that share this one's last-level cache.
fn last_level(cpu: u32) -> Option<u32> {
    let read = |index, what| {
        let mut text = [0; 256];
        let path = Path::new(&["/sys/devices/system/cpu/cpu", "/cache/index"], &[cpu, index], what);
        numbers(sys::read(path.as_c_str(), &mut text)).next()
    };
    let last = (0..INDICES).filter_map(|index| Some((read(index, "/level")?, index))).max()?;
    read(last.1, "/shared_cpu_list").filter(|first| (*first as usize) < CPUS)
}

/// The numbers in a text, with anything between them.
pub(crate) fn numbers(text: &[u8]) -> impl Iterator<Item = u32> {
    let words = text.split(|byte| !byte.is_ascii_digit()).filter(|word| !word.is_empty());
    words.filter_map(|word| core::str::from_utf8(word).ok()?.parse().ok())
}

/// A path, built without allocating.
pub(crate) struct Path {
    text: [u8; 96],
    length: usize,
}

impl Path {
    /// Each part followed by its number, then the end. A path that is too long is cut off; none is.
    pub(crate) fn new(parts: &[&str], numbers: &[u32], end: &str) -> Self {
        let mut path = Self { text: [0; 96], length: 0 };
        for (part, number) in parts.iter().zip(numbers) {
            path.push(part);
            path.push(decimal(*number, &mut [0; 10]));
        }
        path.push(end);
        path
    }

    fn push(&mut self, part: &str) {
        let room = &mut self.text[self.length..95];
        let length = part.len().min(room.len());
        room[..length].copy_from_slice(&part.as_bytes()[..length]);
        self.length += length;
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn paths_and_numbers() {
        let path = Path::new(&["/a", "/b"], &[4095, 7], "/c");
        assert_eq!(path.as_c_str(), c"/a4095/b7/c");
        let long = Path::new(&["/a"], &[1], &"x".repeat(200)).as_c_str().to_bytes().len();
        assert_eq!(long, 95);
        assert_eq!(numbers(b"10 21\n").collect::<Vec<_>>(), [10, 21]);
        assert_eq!(numbers(b"0-3,64-67\n").next(), Some(0));
        assert_eq!(numbers(b"\n").next(), None);
    }

    #[test]
    fn this_machines_caches_and_distances_are_those_of_its_topology() {
        prepare();
        let machine = Topology::read();
        for cpu in machine.cpus.iter().filter(|cpu| (cpu.id as usize) < CPUS) {
            let caches = machine.caches.iter().filter(|cache| cache.cpus.contains(&cpu.id));
            let expected = caches.max_by_key(|cache| cache.level).map(|cache| cache.cpus[0]);
            assert_eq!(last_level(cpu.id), expected, "CPU {}", cpu.id);
            assert_eq!(u32::from(CACHES[cpu.id as usize].load(Relaxed)), expected.map_or(0, |first| first + 1));
        }
        for (a, node) in machine.nodes.iter().enumerate() {
            for (b, notified) in node.distances.iter().enumerate() {
                assert_eq!(distance(a as u32, b as u32), *notified);
            }
        }
        assert_eq!([distance(63, 63), distance(70, 70), distance(63, 70)], [LOCAL, LOCAL, REMOTE]);
    }
}
