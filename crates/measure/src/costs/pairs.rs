//! What two CPUs measure together: transfers of lines between their caches.
//!
//! Both work through the same lines, one after the other, and the reader is timed. What the line's last owner did to it
//! determines what is measured. A separate line says which of them has the turn.

use std::hint::spin_loop;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Instant;

use flashlock_report::statistics::Spread;

use super::effort::Effort;
use super::lines::{Lines, Touch};
use crate::cpu;

/// Few enough lines for a first level, …
const FEW: usize = 16 << 10;
/// … and no two adjacent ones, because a prefetcher would fetch both.
const STANDALONE: usize = 2;
/// How many lines of another node are read at once.
const MANY: usize = 1 << 14;

/// Transfers, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Travel {
    /// A load of a line that the other CPU has modified.
    pub load: f64,
    /// A load of a line that only the other CPU has, and has not modified; `None` if no instruction can cause this.
    pub clean: Option<f64>,
    /// A compare-and-swap on a line that the other CPU has modified.
    pub cas: f64,
    /// A compare-and-swap on a line that both have read.
    pub shared: f64,
    /// From one CPU's compare-and-swap to the other's, on the same word.
    pub hand_off: f64,
    /// From one CPU's store to the other's, on the same word.
    pub stores: f64,
}

/// Accesses to another node, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// A load from its last level.
    pub llc: f64,
    /// A load from its memory, if requested.
    pub dram: Option<f64>,
}

/// A word on its own line that says whose turn it is.
#[repr(align(128))]
#[derive(Default)]
struct Turn(AtomicU32);

impl Turn {
    /// Waits for this turn.
    fn wait(&self, turn: u32) {
        // Acquire pairs with the Release in `pass`: earlier writes are visible, in their order.
        while self.0.load(Acquire) != turn {
            spin_loop();
        }
    }

    /// Passes the turn on.
    fn pass(&self, turn: u32) {
        self.0.store(turn, Release);
    }
}

/// Measures between two CPUs in so many rounds. `None` if they are not available.
pub fn travel(rounds: u32, [reader, owner]: [u32; 2]) -> Option<Travel> {
    let lines = Lines::new(FEW, STANDALONE)?;
    let all = lines.linked();
    let modified = |touch| together(rounds, [reader, owner], || lines.modify(), || lines.walk(all, touch));
    let can_be_alone = lines.read_alone();
    let clean = || {
        let alone = || {
            lines.read_alone();
        };
        together(rounds, [reader, owner], alone, || lines.walk(all, Touch::Load))
    };
    Some(Travel {
        load: modified(Touch::Load)?,
        clean: can_be_alone.then(clean).flatten(),
        cas: modified(Touch::Cas)?,
        shared: shared(rounds, [reader, owner], &lines)?,
        hand_off: ping_pong(rounds, [reader, owner], |word, now| {
            while word.compare_exchange(now, now + 1, Relaxed, Relaxed).is_err() {
                spin_loop();
            }
        })?,
        stores: ping_pong(rounds, [reader, owner], |word, now| {
            while word.load(Relaxed) != now {
                spin_loop();
            }
            word.store(now + 1, Relaxed);
        })?,
    })
}

/// Measures a CPU's accesses to another node: to its last level with `llc` bytes, to its memory with `dram` bytes.
pub fn remote(effort: Effort, [reader, owner]: [u32; 2], llc: usize, dram: Option<usize>) -> Option<Remote> {
    let lines = cpu::on(owner, || Lines::new(llc, 1))??;
    let steps = lines.linked().min(MANY);
    let llc = together(effort.rounds(), [reader, owner], || lines.modify(), || lines.walk(steps, Touch::Load))?;
    let there = dram.and_then(|bytes| cpu::on(owner, || Lines::new(bytes, 1))?);
    let dram = there.and_then(|lines| cpu::on(reader, || super::own::walk(effort, &lines))?);
    Some(Remote { llc, dram })
}

/// In turn, the owner prepares and the reader measures. Returns the median of the measurements.
fn together(
    rounds: u32,
    [reader, owner]: [u32; 2],
    prepare: impl Fn() + Sync,
    measure: impl Fn() -> f64 + Sync,
) -> Option<f64> {
    let turn = Turn::default();
    let times = cpu::both(
        [reader, owner],
        || {
            let round = |round| {
                turn.wait(2 * round + 1);
                let ns = measure();
                turn.pass(2 * round + 2);
                ns
            };
            (0..rounds).map(round).collect::<Vec<f64>>()
        },
        || {
            for round in 0..rounds {
                turn.wait(2 * round);
                prepare();
                turn.pass(2 * round + 1);
            }
        },
    )?;
    Spread::of(&times).map(|spread| spread.median)
}

/// The median time to make lines one's own that both have read. The first CPU to read a modified line may get it
/// exclusively; when the other reads it again, it is shared.
fn shared(rounds: u32, cpus: [u32; 2], lines: &Lines) -> Option<f64> {
    let turn = Turn::default();
    let all = lines.linked();
    let times = cpu::both(
        cpus,
        || {
            let round = |round| {
                turn.wait(4 * round + 1);
                lines.walk(all, Touch::Load);
                turn.pass(4 * round + 2);
                turn.wait(4 * round + 3);
                let ns = lines.walk(all, Touch::Cas);
                turn.pass(4 * round + 4);
                ns
            };
            (0..rounds).map(round).collect::<Vec<f64>>()
        },
        || {
            for round in 0..rounds {
                turn.wait(4 * round);
                lines.modify();
                turn.pass(4 * round + 1);
                turn.wait(4 * round + 2);
                lines.walk(all, Touch::Load);
                turn.pass(4 * round + 3);
            }
        },
    )?;
    Spread::of(&times).map(|spread| spread.median)
}

/// Half a round trip of a word that two CPUs change in turn. `change` waits until the word holds a number, and stores
/// the next number. Relaxed suffices there, because only the word is handed over.
fn ping_pong(rounds: u32, cpus: [u32; 2], change: impl Fn(&AtomicU32, u32) + Sync) -> Option<f64> {
    let turn = Turn::default();
    let rounds = rounds * 100;
    let play = |mine: u32| {
        let take = |round: u32| change(&turn.0, 2 * round + mine);
        // The first time, the other CPU may not be running yet.
        take(0);
        let start = Instant::now();
        (1..=rounds).for_each(take);
        start.elapsed().as_nanos() as f64 / f64::from(2 * rounds)
    };
    cpu::both(
        cpus,
        || play(1),
        || {
            play(0);
        },
    )
}
