//! # What is measured of a run
//!
//! A run warms up before it is worth measuring, and ends when its last thread does. So all that is reported of it is of a part
//! of it. An action that the part's beginning or end cuts in two counts in proportion: its time is known when it begins.

use std::ops::Range;

use crate::Ps;
use crate::kernel::Kernel;
use crate::memory::Traffic;
use crate::thread::{Tid, Use};

/// What is counted: all of the run so far.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) traffic: Traffic,
    pub(crate) traced: Vec<u64>,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

/// The part of a run that counts, and what it has had until now.
#[derive(Debug)]
pub(crate) struct Measured {
    part: Range<Ps>,
    /// Of all threads together.
    pub(crate) times: [Ps; Use::ALL.len()],
    /// Of the threads' polling, what was waiting without polls.
    pub(crate) at_ease: Ps,
    /// The counts where the part begins and where it ends, if that has come.
    edges: [Option<Counts>; 2],
}

impl Default for Measured {
    /// All of the run.
    fn default() -> Self {
        Self { part: 0..Ps::MAX, times: [0; Use::ALL.len()], at_ease: 0, edges: [None, None] }
    }
}

impl Measured {
    /// How much of this time belongs to it.
    #[inline]
    fn overlap(&self, from: Ps, time: Ps) -> Ps {
        (from + time).min(self.part.end).saturating_sub(from.max(self.part.start))
    }
}

impl Kernel {
    /// Only this part of the run, which has not begun, counts.
    pub(crate) fn measure(&mut self, part: Range<Ps>) {
        self.remind(part.start, 0);
        self.remind(part.end, 1);
        self.measured.part = part;
    }

    /// The part begins (0), or ends (1).
    pub(super) fn edge(&mut self, edge: usize) {
        self.measured.edges[edge] = Some(self.counts());
    }

    /// A thread spends time from then on.
    #[inline]
    pub(super) fn book(&mut self, tid: Tid, usage: Use, from: Ps, time: Ps) {
        self.threads[tid as usize].times[usage as usize] += time;
        self.measured.times[usage as usize] += self.measured.overlap(from, time);
    }

    /// Of the time that it polls it does so without polls.
    pub(super) fn book_ease(&mut self, from: Ps, time: Ps) {
        self.measured.at_ease += self.measured.overlap(from, time);
    }

    fn counts(&self) -> Counts {
        let sum = |of: fn(&crate::thread::Thread) -> u64| self.threads.iter().map(of).sum();
        Counts {
            traffic: self.memory.traffic,
            traced: self.traced.clone(),
            voluntary: sum(|thread| thread.voluntary),
            involuntary: sum(|thread| thread.involuntary),
        }
    }

    /// Those of the part that counts.
    pub(crate) fn measured_counts(&self) -> Counts {
        let [begin, end] = &self.measured.edges;
        let mut counts = end.clone().unwrap_or_else(|| self.counts());
        if let Some(begin) = begin {
            counts.traffic = counts.traffic.since(&begin.traffic);
            counts.traced.iter_mut().zip(&begin.traced).for_each(|(count, before)| *count -= before);
            counts.voluntary -= begin.voluntary;
            counts.involuntary -= begin.involuntary;
        }
        counts
    }
}
