//! # The measured part of a run
//!
//! A run warms up before it is worth measuring, and lasts until its last thread returns. So its report covers only a
//! part of it. If the part's beginning or end cuts an action in two, the action counts in proportion.

use std::ops::Range;

use crate::Ps;
use crate::kernel::Kernel;
use crate::memory::Traffic;
use crate::power::Draw;
use crate::thread::{State, Tid, Use};

/// Counts of all of the run so far.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) traffic: Traffic,
    pub(crate) traced: Vec<u64>,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

/// The part of a run that is measured, and its totals so far.
#[derive(Debug)]
pub(crate) struct Measured {
    part: Range<Ps>,
    /// Of all threads together, by [`Use`].
    pub(crate) times: [Ps; Use::ALL.len()],
    /// Of all cores together, by [`Draw`].
    pub(crate) drawn: [Ps; Draw::COUNT],
    /// The counts at the beginning and at the end of the part, if that time has come.
    edges: [Option<Counts>; 2],
}

impl Default for Measured {
    /// The whole run.
    fn default() -> Self {
        Self { part: 0..Ps::MAX, times: [0; Use::ALL.len()], drawn: [0; Draw::COUNT], edges: [None, None] }
    }
}

impl Measured {
    /// The piece of this time that lies in the measured part.
    #[inline]
    fn clip(&self, from: Ps, to: Ps) -> (Ps, Ps) {
        let from = from.max(self.part.start);
        (from, to.min(self.part.end).max(from))
    }

    /// A core draws `draw` between these times.
    pub(crate) fn draw(&mut self, draw: Draw, from: Ps, to: Ps) {
        let (from, to) = self.clip(from, to);
        self.drawn[draw as usize] += to - from;
    }
}

impl Kernel {
    /// Restricts the measurement to this part of the run, which has not begun.
    pub(crate) fn measure(&mut self, part: Range<Ps>) {
        self.remind(part.start, 0);
        self.remind(part.end, 1);
        self.measured.part = part;
    }

    /// The part begins (0) or ends (1).
    pub(super) fn edge(&mut self, edge: usize) {
        self.measured.edges[edge] = Some(self.counts());
    }

    /// A thread spends the time between `from` and `to` on `usage`, except while its CPU is away.
    #[inline]
    pub(super) fn book(&mut self, tid: Tid, usage: Use, from: Ps, to: Ps) {
        let thread = &mut self.threads[tid as usize];
        let (begin, end) = self.measured.clip(from, to);
        thread.times[usage as usize] += to - from;
        self.measured.times[usage as usize] += end - begin;
        let Some(turns) = self.hypervisor.as_ref().filter(|_| usage.has_cpu()) else { return };
        for (times, from, to) in [(&mut thread.times, from, to), (&mut self.measured.times, begin, end)] {
            let away = turns.away(thread.cpu, from, to);
            times[usage as usize] -= away;
            times[Use::Runnable as usize] += away;
        }
    }

    /// Books what a busy thread was doing until now.
    #[inline]
    pub(super) fn settle(&mut self, tid: Tid) {
        let thread = &mut self.threads[tid as usize];
        let State::Busy { until } = thread.state else { unreachable!("it has a CPU") };
        let (doing, now) = (thread.doing, self.now.min(until));
        thread.doing.since = now;
        if doing.queued <= doing.since {
            return self.book(tid, doing.usage, doing.since, now);
        }
        let mut from = doing.since;
        for (usage, to) in [(Use::System, doing.switched), (Use::Queueing, doing.queued), (doing.usage, now)] {
            let to = to.min(now);
            if from < to {
                self.book(tid, usage, from, to);
                from = to;
            }
        }
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

    /// The counts of the measured part.
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
