//! # Accesses, as a thread sees them
//!
//! **Store buffer.** A store takes its time when its line has come and all earlier stores have; the thread does not
//! wait for that, unless its buffer is full. Until then nobody else reaches the line. A read-modify-write waits until
//! the buffer is empty. So stores take as long as on x86; but their values are sequentially consistent: what weaker
//! orders allow, a checker must show. **Departure.** A line's server serves loads and read-modify-writes when they
//! arrive. A store takes its turn when it is *issued*, though it is served no earlier than it would arrive: from then
//! on the line is the storing core's, and the server is taken until the store is done. So a load that is issued later
//! but arrives earlier, for its way is shorter, waits behind the store. **Overlap.** A core that waits for a load
//! already executes what comes next, as far as its reorder buffer reaches: a store to the line that was just loaded
//! asked for it that much earlier.

use crate::kernel::Kernel;
use crate::memory::{Access, Source};
use crate::simulation::{suspend, with};
use crate::thread::Use;
use crate::{Ps, ps};

/// The acting thread does something to the word at this address: `act` is what. Outside of simulated memory, and
/// outside of simulated threads, it takes no time.
pub(crate) fn access<T>(address: *const u32, kind: Access, act: impl FnOnce() -> T) -> T {
    match with(|kernel| kernel.current.and_then(|_| kernel.arena.line(address))) {
        Some(line) => access_line(line, kind, act),
        None => act(),
    }
}

/// The same for a line.
pub(crate) fn access_line<T>(line: u32, kind: Access, act: impl FnOnce() -> T) -> T {
    if kind == Access::Rmw {
        with(|kernel| kernel.memory.traffic.atomics += 1);
        drain();
    }
    let (hit, must_wait) = with(|kernel| {
        let core = kernel.my_core();
        let Some(cost) = kernel.memory.hit(core, line, kind) else { return (false, false) };
        if kind == Access::Store {
            kernel.buffer(line, kernel.now);
        }
        let cost = kernel.me().look.note(line, kind, Some(cost));
        (true, cost > 0 && kernel.advance(cost, Use::Compute))
    });
    // What a hit does, it does at once: the time it takes passes afterwards, and nobody has acted since.
    if hit {
        let result = act();
        finish(line, kind, must_wait);
        return result;
    }
    with(|kernel| kernel.me().look.note(line, kind, None));
    match kind {
        Access::Store => store_elsewhere(line, act),
        Access::Load | Access::Rmw => fetch(line, kind, act),
    }
}

/// The acting thread loads from lines, one after the other; nothing that it does depends on what it finds there. So it
/// need not act before it has the last one.
pub(crate) fn read_all(lines: impl Iterator<Item = u32>, overlap: f64) {
    let must_wait = with(|kernel| {
        let reads = &mut kernel.me().reads;
        reads.lines.extend(lines);
        reads.overlap = overlap;
        kernel.read_on()
    });
    if must_wait {
        suspend();
    }
}

/// Of the time that a load takes, others like it pass so many times as much at once.
fn shared(time: Ps, overlap: f64) -> Ps {
    if overlap == 1.0 { time } else { (time as f64 / overlap) as Ps }
}

/// Tells those who poll the line, and lets others act if they must.
fn finish(line: u32, kind: Access, must_wait: bool) {
    if kind != Access::Load {
        with(|kernel| kernel.changed(line));
    }
    if must_wait {
        suspend();
    }
}

/// A store whose line is not ours yet goes into the store buffer.
fn store_elsewhere<T>(line: u32, act: impl FnOnce() -> T) -> T {
    let must_wait = with(|kernel| {
        let (now, core) = (kernel.now, kernel.my_core());
        let travel = kernel.memory.travel(&kernel.shape, core, line, Access::Store);
        let served = kernel.memory.serve(&kernel.shape, now + travel, core, line, Access::Store);
        let window = ps(kernel.machine.latency_ns.reorder);
        let (missed, since) = kernel.me().last_miss;
        let ahead = if missed == line { (now - since).min(window) } else { 0 };
        kernel.buffer(line, served.done.saturating_sub(ahead).max(now));
        kernel.advance(ps(kernel.machine.latency_ns.store), Use::Compute)
    });
    let result = act();
    finish(line, Access::Store, must_wait);
    let full = with(|kernel| kernel.buffer_full());
    if let Some(until) = full {
        wait_until(until);
    }
    result
}

/// A load or a read-modify-write of a line that must be fetched.
fn fetch<T>(line: u32, kind: Access, act: impl FnOnce() -> T) -> T {
    let (issued, must_wait) = with(|kernel| (kernel.now, kernel.ask(line, kind, 1.0)));
    if must_wait {
        suspend();
    }
    let must_wait = with(|kernel| kernel.receive(line, kind, 1.0, issued));
    let result = act();
    finish(line, kind, must_wait);
    result
}

/// The acting thread waits until its stores are seen by all.
fn drain() {
    if let Some(&last) = with(|kernel| kernel.me().stores.back().copied()).as_ref() {
        wait_until(last);
        with(|kernel| kernel.me().stores.clear());
    }
}

fn wait_until(time: Ps) {
    let must_wait = with(|kernel| time > kernel.now && kernel.advance(time - kernel.now, Use::Queueing));
    if must_wait {
        suspend();
    }
}

/// What a thread loads that looks at many words, one after the other, again and again
/// ([`spin::scan_until`](crate::spin)).
///
/// Where it has loaded copies that it had, and nothing else, the next look finds the same, and takes as long, until one
/// of these lines changes. Then the thread goes on where it would have found the change: the loads before take no time.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Whether it is looking.
    under_way: bool,
    /// Whether it has done nothing but to load its own copies.
    pub(crate) steady: bool,
    /// Of each load the line, and what all loads before it take.
    pub(crate) loads: Vec<(u32, Ps)>,
    /// What all loads so far take.
    pub(crate) takes: Ps,
    /// So many loads to come are those that it has made before it goes on.
    pub(crate) made: usize,
}

impl Look {
    /// It begins to look. `made` stays.
    pub(crate) fn begin(&mut self) {
        (self.under_way, self.steady, self.takes) = (true, true, 0);
        self.loads.clear();
    }

    /// It has looked.
    pub(crate) fn end(&mut self) {
        (self.under_way, self.made) = (false, 0);
    }

    /// It accesses a line: at this cost, if it is a hit. What that takes.
    fn note(&mut self, line: u32, kind: Access, cost: Option<Ps>) -> Ps {
        let full = cost.unwrap_or(0);
        if !self.under_way {
            return full;
        }
        match cost {
            Some(cost) if kind == Access::Load => {
                self.loads.push((line, self.takes));
                self.takes += cost;
            }
            _ => self.steady = false,
        }
        if self.made == 0 {
            return full;
        }
        self.made -= 1;
        0
    }
}

/// Lines that a thread is loading from.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    lines: Vec<u32>,
    /// How many of them it has.
    done: usize,
    /// When it asked for the next one, if it has.
    asked: Option<Ps>,
    overlap: f64,
}

impl Kernel {
    /// The acting thread asks for a line that it does not have. Whether it must let others act before it is served.
    fn ask(&mut self, line: u32, kind: Access, overlap: f64) -> bool {
        let core = self.my_core();
        let travel = self.memory.travel(&self.shape, core, line, kind);
        self.advance(shared(travel, overlap), Use::Local)
    }

    /// It is served, having asked at `asked`. Whether it must let others act before it has the line.
    fn receive(&mut self, line: u32, kind: Access, overlap: f64, asked: Ps) -> bool {
        let (now, core) = (self.now, self.my_core());
        // The other hardware thread of the core may have brought it.
        if let Some(cost) = self.memory.hit(core, line, kind) {
            return self.advance(shared(cost, overlap), Use::Compute);
        }
        let served = self.memory.serve(&self.shape, now, core, line, kind);
        let usage = match served.source {
            Source::Local => Use::Local,
            Source::Remote => Use::Remote,
            Source::Memory => Use::Memory,
        };
        self.me().last_miss = (line, asked);
        self.advance_queued(shared(served.queued, overlap), shared(served.done - now, overlap), usage)
    }

    /// The acting thread goes on loading, if it has anything to load. Whether it must let others act first.
    pub(crate) fn read_on(&mut self) -> bool {
        loop {
            let reads = &mut self.me().reads;
            let (overlap, asked) = (reads.overlap, reads.asked.take());
            let Some(&line) = reads.lines.get(reads.done) else {
                reads.lines.clear();
                reads.done = 0;
                return false;
            };
            reads.done += usize::from(asked.is_some());
            let must_wait = match asked {
                Some(asked) => self.receive(line, Access::Load, overlap, asked),
                None => self.read(line, overlap),
            };
            if must_wait {
                return true;
            }
        }
    }

    /// The acting thread begins to load from the next one of its lines.
    fn read(&mut self, line: u32, overlap: f64) -> bool {
        self.progresses(0);
        let (now, core) = (self.now, self.my_core());
        let reads = &self.me().reads;
        if let Some(&next) = reads.lines.get(reads.done + 1) {
            self.memory.expect(&self.shape, core, next);
        }
        if let Some(cost) = self.memory.hit(core, line, Access::Load) {
            self.me().reads.done += 1;
            return self.advance(shared(cost, overlap), Use::Compute);
        }
        self.memory.expect_victims(&self.shape, core, line);
        self.me().reads.asked = Some(now);
        self.ask(line, Access::Load, overlap)
    }

    /// A store of the acting thread is seen by others at `at`, and not before its earlier stores.
    fn buffer(&mut self, line: u32, at: Ps) {
        let now = self.now;
        let stores = &mut self.me().stores;
        while stores.front().is_some_and(|&seen| seen <= now) {
            stores.pop_front();
        }
        let seen = at.max(stores.back().copied().unwrap_or(0));
        if seen > now {
            stores.push_back(seen);
            self.memory.hold(line, seen);
        }
    }

    /// Until when the acting thread's store buffer is full.
    fn buffer_full(&mut self) -> Option<Ps> {
        let most = self.machine.bandwidth.store_buffer as usize;
        let stores = &mut self.me().stores;
        if stores.len() > most { stores.pop_front() } else { None }
    }
}

/// The acting thread is busy for so long.
pub(crate) fn spend(time: Ps, usage: Use) {
    if with(|kernel| kernel.advance(time, usage)) {
        suspend();
    }
}
