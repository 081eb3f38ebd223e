//! # The simulated computer's kernel
//!
//! Virtual time, its events, and who runs where. One thread at a time acts, the one whose event is first; what it does
//! takes virtual time, and if nobody else has anything to do before that time is over, it simply goes on
//! ([`Kernel::advance`]).
//!
//! **Scheduling.** Each CPU has a queue. A thread that waits for a CPU gets it when the slice of the one that has it is
//! over; one that was just woken after a third of it. A woken thread goes to the CPU it had, if that is idle, else to
//! an idle one of the same node, a whole core first; if there is none, it queues where it was. A CPU with nothing to do
//! takes a thread from the longest queue of its node, else of the machine; and when a slice is over, those who wait for
//! that CPU go to idle ones, if there are any: who was woken where all CPUs of the node were taken does not wait for
//! ever while others idle. CPUs that were idle for long take longer to wake up. A thread that has said that it keeps
//! its CPU ([`Kernel::keep_cpu`]), as a kernel's threads do around a spin lock, loses it only where it says that it
//! does so no more.
//!
//! ## Invariants
//! 1. Events happen in order of time, those of one time in the order in which they were made: a run depends on nothing
//!    else.
//! 2. A thread that is `Busy` or `Polling`, or `Asleep` for a time, has exactly one valid event; one that is `Asleep`
//!    on a word is among its sleepers, and has one valid event at most; one that is `Ready` is in the queue of its CPU,
//!    and has none.
//! 3. A thread in state `Busy` or `Polling` is the `current` one of its CPU; nobody else is.
//! 4. A thread's times add up to the time until when they are booked.
//! 5. Nobody waits for an idle CPU; where somebody waits, the end of a slice is under way, or has come to a thread that
//!    keeps its CPU.

mod events;
mod hypervisor;
#[cfg(test)]
mod invariants;
mod polling;
mod scheduling;

use std::collections::{BTreeMap, VecDeque};

use flashlock_locks::event::Event as LockEvent;
use flashlock_locks::machine::Tunables;
use flashlock_locks::side::Name;

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

/// A program that has done nothing for so long is given up.
const STALLED: Ps = 10_000_000_000_000;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The thread goes on.
    Resume(Tid, u32),
    /// The thread's sleep is over.
    Timer(Tid, u32),
    /// The CPU's slice is over.
    Slice(u32, u32),
    /// The part that counts begins (0) or ends (1).
    Edge(usize),
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This thread goes on.
    Run(Tid),
    /// All have returned.
    Over,
    /// Some have not returned, and this says that they never will.
    Stuck(Why),
}

/// What the operating system costs.
pub(crate) struct Os {
    slice: Ps,
    switch: Ps,
    pub(crate) syscall: Ps,
    pub(crate) wake: Ps,
    idle: Vec<(Ps, Ps)>,
    pub(crate) slack: Ps,
    /// From a change to the instruction after a wait for it.
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
    /// [`Machine::recent_stall`](flashlock_locks::machine::Machine::recent_stall)
    pub(crate) recent_stall: u32,
    pub(crate) now: Ps,
    pub(crate) current: Option<Tid>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    /// CPUs of each core that are not idle.
    core_load: Vec<u32>,
    /// Cores of each package that are not idle.
    package_load: Vec<u32>,
    events: Events,
    /// Steps: each action of a thread that takes time, when it begins, whether or not others act before it is over;
    /// each thread that gets a CPU; each slice and each sleep that time has ended. Not each event: a void one is none,
    /// nor one that an action has made.
    pub(crate) happened: u64,
    /// By line, the first of those that poll it, plus one.
    pollers: Vec<u32>,
    /// By line, who [watches](Kernel::watch) it, plus one.
    watchers: Vec<u32>,
    /// For [`Kernel::changed`].
    notified: Vec<Tid>,
    pub(crate) sleepers: BTreeMap<usize, VecDeque<Tid>>,
    /// What the locks traced, in the order of `Event::ALL`.
    pub(crate) traced: Vec<u64>,
    pub(crate) nodes_made: u32,
    /// Free blocks, and how many there ever were.
    pub(crate) blocks: Vec<Name>,
    pub(crate) blocks_made: u32,
    unfinished: u32,
    /// In CPUs' queues.
    queued: u32,
    /// When the program did something last: locks that only wait do not count.
    pub(crate) progress: Ps,
    pub(crate) preempted: Option<Ps>,
    /// By core, until when [`Measured`] has what it drew.
    pub(crate) charged: Vec<Ps>,
    pub(crate) measured: Measured,
    /// When somebody was woken last, and how long being woken took lately.
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
            recent_stall: 0,
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

    /// A thread that begins on this CPU.
    pub(crate) fn spawn(&mut self, cpu: u32, random: u64) -> Tid {
        let tid = self.threads.len() as Tid;
        self.threads.push(Thread::new(cpu, random));
        self.unfinished += 1;
        self.enqueue(tid, cpu, self.os.slice);
        tid
    }

    /// The thread that is acting.
    pub(crate) fn me(&mut self) -> &mut Thread {
        let tid = self.current.expect("a simulated thread is acting");
        &mut self.threads[tid as usize]
    }

    /// The core that it is on.
    pub(crate) fn my_core(&mut self) -> u32 {
        let cpu = self.me().cpu;
        self.shape.core(cpu)
    }

    /// The acting thread is busy for so long. Whether it must let others act first; else it already is that much later.
    #[inline]
    pub(crate) fn advance(&mut self, time: Ps, usage: Use) -> bool {
        self.advance_queued(0, time, usage)
    }

    /// The same of a thread that first waits for others, for so long of that time.
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

    /// When the CPU has run for so long from now on.
    #[inline]
    fn after(&self, cpu: u32, time: Ps) -> Ps {
        match &self.hypervisor {
            None => self.now + time,
            Some(turns) => turns.after(cpu, self.now, time),
        }
    }

    /// How much longer computing takes than alone on the core at the base clock.
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

    /// Makes time pass until a thread can go on.
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
                    // Threads may take turns while none of them ever acts.
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

    /// The program does something that takes so long.
    pub(crate) fn progresses(&mut self, time: Ps) {
        self.progress = self.progress.max(self.now + time);
    }

    /// [`Kernel::edge`] is to be called then. That changes nothing for anybody else.
    pub(crate) fn remind(&mut self, at: Ps, edge: usize) {
        self.events.push(at, What::Edge(edge));
    }

    fn is_valid(&self, tid: Tid, generation: u32) -> bool {
        self.threads[tid as usize].generation == generation
    }
}
