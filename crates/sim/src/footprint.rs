//! # How much memory a simulation takes
//!
//! An estimate from what there is most of: what is known of each line, the directories of the caches, and what each
//! thread has. So that a program that simulates several computers at once can stay within what it has.

use crate::arena::Arena;
use crate::description::{Cache, Description};
use crate::memory::Memory;
use crate::tags::Tags;

/// Of the block of simulated memory, what queue nodes and things that are placed touch; of a thread's stack, what it
/// does.
const PLACED: u64 = 4 << 20;
const STACK: u64 = 24 << 10;

/// Bytes that a simulation of so many threads takes that touch so many lines, locks not counted: somewhat more than
/// less.
pub fn footprint(machine: &Description, threads: u32, lines: u64) -> u64 {
    let directory = |cache: Cache| u64::from(cache.kib) * 16 * Tags::ENTRY;
    let caches = &machine.cache;
    let core = directory(caches.l1) + directory(caches.l2) + u64::from(caches.tlb.entries) * Tags::ENTRY;
    let cores = u64::from(machine.cores()) * core + u64::from(machine.nodes()) * directory(caches.llc);
    let block = PLACED + u64::from(Arena::lines()) * size_of::<u32>() as u64;
    block + cores + lines * Memory::LINE_BYTES + u64::from(threads) * STACK
}
