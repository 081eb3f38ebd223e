//! # How much memory a simulation takes
//!
//! An estimate from the largest parts: the records of lines, the directories of the caches, and the threads' stacks. A
//! program that runs several simulations at once can use it to stay within its memory.

use crate::arena::Arena;
use crate::description::{Cache, Description};
use crate::memory::Memory;
use crate::tags::Tags;

/// What queue nodes and placed objects touch of the block of simulated memory, and what a thread touches of its stack.
const PLACED: u64 = 4 << 20;
const STACK: u64 = 24 << 10;

/// The estimated memory, in bytes, of a simulation with so many threads that touch so many lines. Locks are not
/// counted. The estimate errs on the high side.
pub fn footprint(machine: &Description, threads: u32, lines: u64) -> u64 {
    let directory = |cache: Cache| u64::from(cache.kib) * 16 * Tags::ENTRY;
    let caches = &machine.cache;
    let core = directory(caches.l1) + directory(caches.l2) + u64::from(caches.tlb.entries) * Tags::ENTRY;
    let cores = u64::from(machine.cores()) * core + u64::from(machine.nodes()) * directory(caches.llc);
    let block = PLACED + u64::from(Arena::lines()) * size_of::<u32>() as u64;
    block + cores + lines * Memory::LINE_BYTES + u64::from(threads) * STACK
}
