//! # What a server counts
//!
//! These are the counters of section 4.2 of the paper. A scan that finds nothing counts only in
//! [`scans`](Statistics::scans). In addition, the time from a request until its section begins is sampled: of each 251
//! requests of a thread, one is timed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::closure::rcl::Pass;

/// A worker's counters. Only the worker writes them: a load and a store.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    scans: AtomicU64,
    busy: AtomicU64,
    mixed: AtomicU64,
    sections: AtomicU64,
    others: AtomicU64,
    clients: AtomicU64,
    waits: AtomicU64,
    waited: AtomicU64,
    longest: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

impl Counts {
    /// Counts a scan. `clients`: how many clients there are now.
    #[inline]
    pub(crate) fn note(&self, pass: &Pass, clients: impl FnOnce() -> u32) {
        add(&self.scans, 1);
        if pass.others > 0 {
            add(&self.others, u64::from(pass.others));
        }
        if pass.sections > 0 {
            add(&self.busy, 1);
            add(&self.sections, u64::from(pass.sections));
            add(&self.mixed, u64::from(pass.mixed));
            // Clients may have left since their sections were run.
            add(&self.clients, u64::from(clients().max(pass.sections)));
        }
    }
}

impl Counts {
    /// A request has waited so long (ns) until its section began.
    pub(crate) fn waited(&self, ns: u64) {
        add(&self.waits, 1);
        add(&self.waited, ns);
        self.longest.store(self.longest.load(Relaxed).max(ns), Relaxed);
    }
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Scans of the clients' lines.
    pub scans: u64,
    /// Scans in which a section was run.
    pub busy_scans: u64,
    /// Scans in which sections of several locks were run.
    pub mixed_scans: u64,
    /// Sections that were run for clients.
    pub sections: u64,
    /// Locks that were granted to nested sections, and requests that were sent elsewhere because the lock had moved.
    pub others: u64,
    /// The clients at each busy scan, added up.
    pub clients_at_busy_scans: u64,
    /// Requests whose wait was timed.
    pub waits_sampled: u64,
    /// These waits, added up, in ns: from the request until its section began. They include the wait for the next
    /// scan, for sections before it, for its lock, and for a servicing thread.
    pub wait_ns: u64,
    /// The longest of these waits, in ns.
    pub longest_wait_ns: u64,
    /// Times the turn was taken from a servicing thread that was stuck in a section.
    pub elections: u64,
    /// Times a servicing thread was needed and could not be made.
    pub threads_short: u64,
    /// Servicing threads.
    pub threads: u32,
    /// Clients now.
    pub clients: u32,
    /// Client numbers that a scan covers now.
    pub range: u32,
    /// Whether its threads have `SCHED_FIFO`; otherwise they are elected by futex alone.
    pub real_time: bool,
    /// Whether posting and answering are free of fences (`membarrier`).
    pub membarrier: bool,
}

impl Statistics {
    /// Adds a worker's counters.
    pub(crate) fn add(&mut self, counts: &Counts) {
        self.scans += counts.scans.load(Relaxed);
        self.busy_scans += counts.busy.load(Relaxed);
        self.mixed_scans += counts.mixed.load(Relaxed);
        self.sections += counts.sections.load(Relaxed);
        self.others += counts.others.load(Relaxed);
        self.clients_at_busy_scans += counts.clients.load(Relaxed);
        self.waits_sampled += counts.waits.load(Relaxed);
        self.wait_ns += counts.waited.load(Relaxed);
        self.longest_wait_ns = self.longest_wait_ns.max(counts.longest.load(Relaxed));
    }

    /// Sections per busy scan, divided by the clients: 1 if each of them always waits; never more. Section 4.2 divides
    /// by the cores, because there a client has a core. Here clients come and go, and may be fewer or more than cores.
    pub fn use_rate(&self) -> f64 {
        self.sections as f64 / self.clients_at_busy_scans.max(1) as f64
    }

    /// The share of busy scans that run sections of several locks. Section 4.2.
    pub fn false_serialization_rate(&self) -> f64 {
        self.mixed_scans as f64 / self.busy_scans.max(1) as f64
    }

    /// The queueing latency: how long a request waits until its section begins, in ns, on average. 0 if no wait was
    /// timed.
    pub fn queueing_latency(&self) -> f64 {
        self.wait_ns as f64 / self.waits_sampled.max(1) as f64
    }

    /// Sections per busy scan.
    pub fn sections_per_scan(&self) -> f64 {
        self.sections as f64 / self.busy_scans.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three clients had sections in a scan, and two of them have left since.
    #[test]
    fn a_use_rate_is_at_most_one() {
        let (counts, mut statistics) = (Counts::default(), Statistics::default());
        counts.note(&Pass { sections: 3, ..Pass::default() }, || 1);
        statistics.add(&counts);
        assert_eq!((statistics.use_rate(), statistics.clients_at_busy_scans), (1.0, 3));
    }
}
