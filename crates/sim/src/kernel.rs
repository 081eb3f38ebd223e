//! # The simulated computer's kernel
//!
//! It keeps virtual time, the events to come, and which thread runs on which CPU. One thread acts at a time: the one
//! whose event is first. Its action takes virtual time. If no other thread has an event before that time is over, it
//! simply continues ([`Kernel::advance`]).
//!
//! **Scheduling.** Each CPU has a queue. A waiting thread gets the CPU when the current thread's slice is over; a
//! thread that was just woken gets it after a third of a slice. A woken thread goes to its last CPU if that is idle,
//! else to an idle CPU of the same node, preferably on an idle core. If there is none, it joins the queue of its last
//! CPU. A CPU with nothing to do takes a thread from the longest queue of its node, else of the machine. When a slice
//! is over, the threads in that CPU's queue move to idle CPUs, if there are any. So a thread that was woken while all
//! CPUs of its node were busy does not wait for ever while other CPUs idle. A CPU that has been idle for long takes
//! longer to wake up. A thread that keeps its CPU ([`Kernel::keep_cpu`]), as kernel threads do while they hold a spin
//! lock, cannot lose it until it allows that again.
//!
//! ## Invariants
//! 1. Events happen in order of time, and events of one time in the order in which they were made. A run depends on
//!    nothing else.
//! 2. A thread that is `Busy` or `Polling`, or `Asleep` for a time, has exactly one valid event. A thread that is
//!    `Asleep` on a word is among its sleepers, and has at most one valid event. A thread that is `Ready` is in the
//!    queue of its CPU, and has no valid event.
//! 3. A thread in state `Busy` or `Polling` is the `current` one of its CPU, and no other thread is `current` anywhere.
//! 4. A thread's times add up to the time until which they are booked.
//! 5. No thread waits for an idle CPU. Where a thread waits, the end of a slice is scheduled, or has come while the
//!    current thread keeps its CPU.

mod events;
mod hypervisor;
#[cfg(test)]
mod invariants;
mod polling;
mod scheduling;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use flashlock_locks::machine::Tunables;
use flashlock_locks::machine::block::Name;
use flashlock_locks::machine::event::Event as LockEvent;

use crate::arena::Arena;
use crate::description::Description;
use crate::measured::Measured;
use crate::memory::Memory;
use crate::shape::Shape;
use crate::stuck::Why;
use crate::thread::{Cpu, Doing, State, Thread, Tid, Use};
use crate::{Ps, ps, us};
use events::Events;
use hypervisor::Turns;

/// The simulation gives up on a program that has made no progress for this long.
const STALLED: Ps = 10_000_000_000_000;

/// What happens at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The thread continues.
    Resume(Tid, u32),
    /// The thread's sleep is over.
    Timer(Tid, u32),
    /// The CPU's slice is over.
    Slice(u32, u32),
    /// The measured part begins (0) or ends (1).
    Edge(usize),
}

/// The outcome of [`Kernel::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This thread continues.
    Run(Tid),
    /// All threads have returned.
    Over,
    /// Some threads have not returned. The reason says why the run is given up.
    Stuck(Why),
}

/// The costs of the operating system.
pub(crate) struct Os {
    slice: Ps,
    switch: Ps,
    pub(crate) syscall: Ps,
    pub(crate) wake: Ps,
    idle: Vec<(Ps, Ps)>,
    pub(crate) slack: Ps,
    /// From a change of the line to the next instruction of a thread that waits with `umwait`.
    pub(crate) umwait_wake: Ps,
}

pub(crate) struct Kernel {
    pub(crate) machine: Description,
    pub(crate) shape: Shape,
    pub(crate) os: Os,
    pub(crate) hypervisor: Option<Turns>,
    pub(crate) memory: Memory,
    pub(crate) arena: Arena,
    pub(crate) tunables: &'static Tunables,
    /// [`Kept::RecentStall`](flashlock_locks::machine::Kept::RecentStall)
    pub(crate) recent_stall: Cell<u32>,
    pub(crate) now: Ps,
    pub(crate) current: Option<Tid>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    /// The number of CPUs of each core that are not idle.
    core_load: Vec<u32>,
    /// The number of cores of each package that are not idle.
    package_load: Vec<u32>,
    events: Events,
    /// The number of steps so far. A step is an action of a thread that takes time, counted when it begins, whether or
    /// not other threads act before it is over; a thread that gets a CPU; or a slice or a sleep that time has ended.
    /// Events are not the same: void events and the ends of actions are not steps.
    pub(crate) happened: u64,
    /// By line: the first thread in the list of its pollers, plus one.
    pollers: Vec<u32>,
    /// By line: the thread that [watches](Kernel::watch) it, plus one.
    watchers: Vec<u32>,
    /// Scratch space of [`Kernel::changed`].
    notified: Vec<Tid>,
    pub(crate) sleepers: BTreeMap<usize, VecDeque<Tid>>,
    /// The events that the locks traced, in the order of `Event::ALL`.
    pub(crate) traced: Vec<u64>,
    pub(crate) nodes_made: u32,
    /// The free side blocks, and how many were ever made.
    pub(crate) blocks: Vec<Name>,
    pub(crate) blocks_made: u32,
    unfinished: u32,
    /// The number of threads in the queues of CPUs.
    queued: u32,
    /// When the program last made progress. Waiting for a lock is not progress.
    pub(crate) progress: Ps,
    pub(crate) preempted: Option<Ps>,
    /// By core: until when [`Measured`] contains what it drew.
    pub(crate) charged: Vec<Ps>,
    pub(crate) measured: Measured,
    /// When a thread was last woken, and how long wake-ups took lately.
    pub(crate) woke: (Ps, Ps),
}

impl Kernel {
    pub(crate) fn new(machine: &Description, arena: Arena, tunables: &'static Tunables) -> Self {
        let shape = Shape::new(machine);
        let mut memory = Memory::new(machine, &shape);
        memory.extend(Arena::lines());
        let os = &machine.scheduler;
        Self {
            os: Os {
                slice: us(os.slice_us),
                switch: us(os.switch_us),
                syscall: us(os.syscall_us),
                wake: us(os.wake_us),
                idle: os.idle_us.iter().map(|&(idle, latency)| (us(idle), us(latency))).collect(),
                slack: us(os.timer_slack_us),
                umwait_wake: machine.umwait.map_or(0, |wait| ps(wait.wake_ns)),
            },
            hypervisor: machine.hypervisor.as_ref().map(|hypervisor| Turns::new(hypervisor, shape.cpus)),
            memory,
            arena,
            tunables,
            recent_stall: Cell::new(0),
            now: 0,
            current: None,
            threads: Vec::new(),
            cpus: (0..shape.cpus).map(|_| Cpu::default()).collect(),
            core_load: vec![0; shape.cores as usize],
            package_load: vec![0; machine.topology.packages as usize],
            events: Events::default(),
            happened: 0,
            pollers: vec![0; Arena::lines() as usize],
            watchers: vec![0; Arena::lines() as usize],
            notified: Vec::new(),
            sleepers: BTreeMap::new(),
            traced: vec![0; LockEvent::ALL.len()],
            nodes_made: 0,
            blocks: Vec::new(),
            blocks_made: 0,
            unfinished: 0,
            queued: 0,
            progress: 0,
            preempted: None,
            charged: vec![0; shape.cores as usize],
            measured: Measured::default(),
            woke: (0, 0),
            machine: machine.clone(),
            shape,
        }
    }

    /// Makes a thread that starts on this CPU.
    pub(crate) fn spawn(&mut self, cpu: u32, random: u64) -> Tid {
        let tid = self.threads.len() as Tid;
        self.threads.push(Thread::new(cpu, random));
        self.unfinished += 1;
        self.enqueue(tid, cpu, self.os.slice);
        tid
    }

    /// The acting thread.
    pub(crate) fn me(&mut self) -> &mut Thread {
        let tid = self.current.expect("a simulated thread is acting");
        &mut self.threads[tid as usize]
    }

    /// The acting thread's core.
    pub(crate) fn my_core(&mut self) -> u32 {
        let cpu = self.me().cpu;
        self.shape.core(cpu)
    }

    /// The acting thread is busy for `time`. Returns whether other threads must act first; if not, `now` has advanced
    /// already.
    #[inline]
    pub(crate) fn advance(&mut self, time: Ps, usage: Use) -> bool {
        self.advance_queued(0, time, usage)
    }

    /// The same for a thread that waits for others for the first `queued` of this time.
    #[inline]
    pub(crate) fn advance_queued(&mut self, queued: Ps, time: Ps, usage: Use) -> bool {
        let tid = self.current.expect("a simulated thread is acting");
        let (cpu, now) = (self.threads[tid as usize].cpu, self.now);
        self.draws(cpu, usage.draw());
        self.happened += u64::from(time > 0);
        let until = self.after(cpu, time);
        let queued = if queued > 0 { self.after(cpu, queued).min(until) } else { now };
        if self.events.first().is_none_or(|first| until < first) {
            if queued > now {
                self.book(tid, Use::Queueing, now, queued);
            }
            self.book(tid, usage, queued, until);
            self.now = until;
            return false;
        }
        self.busy(until, Doing { queued, ..Doing::new(now, usage) });
        true
    }

    /// The acting thread is busy until then.
    fn busy(&mut self, until: Ps, doing: Doing) {
        let tid = self.current.expect("a simulated thread is acting");
        let me = &mut self.threads[tid as usize];
        (me.state, me.doing) = (State::Busy { until }, doing);
        me.generation += 1;
        let event = What::Resume(tid, me.generation);
        self.events.push(until, event);
    }

    /// When the CPU will have run for `time` from now on.
    #[inline]
    fn after(&self, cpu: u32, time: Ps) -> Ps {
        match &self.hypervisor {
            None => self.now + time,
            Some(turns) => turns.after(cpu, self.now, time),
        }
    }

    /// How much longer computing takes than alone on the core at the base clock, as a factor.
    pub(crate) fn slowness(&mut self) -> f64 {
        let (me, cpu) = (self.current, self.me().cpu);
        let core = self.shape.core(cpu);
        let clock = &self.machine.clock;
        let weight = |cpu: &Cpu| match cpu.current {
            None => 0.0,
            tid if tid == me => 1.0,
            Some(tid) => match self.threads[tid as usize].state {
                State::Polling { every: 0, .. } => 0.0,
                State::Polling { .. } => clock.poll_share,
                _ => 1.0,
            },
        };
        let load: f64 = self.shape.cpus_of(core).map(|cpu| weight(&self.cpus[cpu as usize])).sum();
        let load = load / clock.pipelines;
        let share = match load {
            ..=1.0 => 1.0,
            1.0..=2.0 => 1.0 - (1.0 - clock.smt_share) * (load - 1.0),
            _ => 2.0 * clock.smt_share / load,
        };
        let active = self.package_load[self.shape.package(core) as usize];
        let turbo = clock.turbo.iter().find(|(cores, _)| active <= *cores).map_or(clock.ghz, |(_, ghz)| *ghz);
        clock.ghz / turbo / share
    }

    /// Lets time pass until a thread can continue.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if self.unfinished == 0 {
                return Next::Over;
            }
            #[cfg(test)]
            self.check(self.events.first());
            let Some((at, what)) = self.events.pop() else { return Next::Stuck(Why::Deadlock) };
            match what {
                What::Resume(tid, generation) if self.is_valid(tid, generation) => {
                    self.now = at;
                    if self.is_stalled() {
                        return Next::Stuck(Why::NoProgress(STALLED / 1000));
                    }
                    self.stop_polling(tid);
                    self.settle(tid);
                    self.current = Some(tid);
                    if !self.read_on() {
                        return Next::Run(tid);
                    }
                    self.current = None;
                }
                What::Timer(tid, generation) if self.is_valid(tid, generation) => {
                    self.now = at;
                    self.time_out(tid);
                }
                What::Slice(cpu, generation) if self.cpus[cpu as usize].generation == generation => {
                    self.now = at;
                    // Threads may alternate on CPUs while none of them ever acts.
                    if self.is_stalled() {
                        return Next::Stuck(Why::NoProgress(STALLED / 1000));
                    }
                    self.end_of_slice(cpu);
                }
                What::Edge(edge) => self.edge(edge),
                What::Resume(..) | What::Timer(..) | What::Slice(..) => {}
            }
        }
    }

    fn is_stalled(&self) -> bool {
        self.now > self.progress + STALLED
    }

    /// The program makes progress, which takes this long.
    pub(crate) fn progresses(&mut self, time: Ps) {
        self.progress = self.progress.max(self.now + time);
    }

    /// Schedules a call of [`Kernel::edge`]. It has no effect on the simulated program.
    pub(crate) fn remind(&mut self, at: Ps, edge: usize) {
        self.events.push(at, What::Edge(edge));
    }

    fn is_valid(&self, tid: Tid, generation: u32) -> bool {
        self.threads[tid as usize].generation == generation
    }
}
