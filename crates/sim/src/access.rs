//! # Accesses, as a thread sees them
//!
//! How the accesses of a thread take time: loads, stores, read-modify-writes, and the store buffer between them.
//!
//! **Store buffer.** A store completes when its line has arrived and all earlier stores have completed. The thread does
//! not wait for that, unless its buffer is full. Until the store completes, no other core reaches the line. A
//! read-modify-write waits until the buffer is empty. So stores take as long as on x86, but their values are
//! sequentially consistent: only a model checker can show the effects of weaker orderings. **Departure.** A line's
//! server serves loads and read-modify-writes when they arrive. A store takes its turn when it is *issued*, although it
//! is served no earlier than it would arrive. From its issue on, the line belongs to the storing core, and the server
//! is taken until the store is done. So a load that is issued later but arrives earlier, because its way is shorter,
//! waits behind the store. **Overlap.** A core that waits for a load already executes what follows, as far as its
//! reorder buffer reaches. So a store to a line that was just loaded has asked for the line that much earlier.

use crate::kernel::Kernel;
use crate::memory::{Access, Source};
use crate::simulation::{suspend, with};
use crate::thread::Use;
use crate::{Ps, ps};

/// The acting thread performs the access `act` on the word at this address. It takes no time outside simulated memory
/// or outside simulated threads.
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
    // A hit takes effect at once and its time passes afterwards. No other thread has acted since the check.
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

/// The acting thread loads from lines, one after the other. It does not depend on their contents, so it does not act
/// before it has the last one.
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

/// A load's share of time if `overlap` such loads are under way at once.
fn shared(time: Ps, overlap: f64) -> Ps {
    if overlap == 1.0 { time } else { (time as f64 / overlap) as Ps }
}

/// Notifies the threads that poll the line, and lets other threads act if it must.
fn finish(line: u32, kind: Access, must_wait: bool) {
    if kind != Access::Load {
        with(|kernel| kernel.changed(line));
    }
    if must_wait {
        suspend();
    }
}

/// A store to a line that the core does not own goes into the store buffer.
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

/// The acting thread waits until all its stores are visible to others.
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

/// The loads of a thread that repeatedly looks at many words, one after the other ([`spin::scan_until`](crate::spin)).
///
/// If a look has only loaded copies that the core already had, the next look finds the same and takes as long, until
/// one of these lines changes. Then the thread continues at the load that would have found the change. The loads before
/// it take no time.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Whether a look is under way.
    under_way: bool,
    /// Whether the look has only loaded copies that the core already had.
    pub(crate) steady: bool,
    /// For each load: its line, and the time that all earlier loads of the look take.
    pub(crate) loads: Vec<(u32, Ps)>,
    /// The time that all loads of the look so far take.
    pub(crate) takes: Ps,
    /// How many of the next loads take no time, because their time has passed already.
    pub(crate) made: usize,
}

impl Look {
    /// A look begins. `made` stays.
    pub(crate) fn begin(&mut self) {
        (self.under_way, self.steady, self.takes) = (true, true, 0);
        self.loads.clear();
    }

    /// The look ends.
    pub(crate) fn end(&mut self) {
        (self.under_way, self.made) = (false, 0);
    }

    /// Records an access to a line: `cost` if it is a hit. Returns the time that it takes.
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

/// The lines that a thread is loading from.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    lines: Vec<u32>,
    /// How many of them have arrived.
    done: usize,
    /// When the thread asked for the next line, if it has.
    asked: Option<Ps>,
    overlap: f64,
}

impl Kernel {
    /// The acting thread asks for a line that its core does not have. Returns whether other threads must act before it
    /// is served.
    fn ask(&mut self, line: u32, kind: Access, overlap: f64) -> bool {
        let core = self.my_core();
        let travel = self.memory.travel(&self.shape, core, line, kind);
        self.advance(shared(travel, overlap), Use::Local)
    }

    /// The request made at `asked` is served. Returns whether other threads must act before the line arrives.
    fn receive(&mut self, line: u32, kind: Access, overlap: f64, asked: Ps) -> bool {
        let (now, core) = (self.now, self.my_core());
        // The core's other hardware thread may have fetched it meanwhile.
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

    /// The acting thread continues to load its lines, if any are left. Returns whether other threads must act first.
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

    /// The acting thread begins to load the next of its lines.
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

    /// A store of the acting thread becomes visible to others at `at`, but not before its earlier stores.
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

/// The acting thread is busy for this time.
pub(crate) fn spend(time: Ps, usage: Use) {
    if with(|kernel| kernel.advance(time, usage)) {
        suspend();
    }
}
