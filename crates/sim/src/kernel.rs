//! # The simulated computer's kernel
//!
//! Virtual time, its events, and who runs where. One thread at a time acts, the one whose event is first; what it does takes
//! virtual time, and if nobody else has anything to do before that time is over, it simply goes on ([`Kernel::advance`]).
//!
//! **Scheduling.** Each CPU has a queue. A thread that waits for a CPU gets it when the slice of the one that has it is over; one
//! that was just woken after a third of it. A woken thread goes to the CPU it had, if that is idle, else to an idle one of the
//! same node, a whole core first; if there is none, it queues where it was. A CPU with nothing to do takes a thread from the
//! longest queue, nearest first. CPUs that were idle for long take longer to wake up.
//!
//! ## Invariants
//! 1. Events happen in order of time, those of one time in the order in which they were made: a run depends on nothing else.
//! 2. An unfinished thread has exactly one valid event, or polls, or sleeps on a word, or is in a CPU's queue.
//! 3. A thread in state `Busy` or `Polling` is the `current` one of its CPU.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use flashlock_locks::event::Event as LockEvent;
use flashlock_locks::machine::Tunables;

use crate::arena::Arena;
use crate::description::Description;
use crate::memory::Memory;
use crate::shape::Shape;
use crate::thread::{Cpu, State, Thread, Tid, Use};
use crate::{Ps, us};

/// A program that has done nothing for so long hangs.
const STALLED: Ps = 10_000_000_000_000;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread goes on.
    Resume(Tid, u32),
    /// The thread's sleep is over.
    Timer(Tid, u32),
    /// The CPU's slice is over.
    Slice(u32, u32),
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This thread goes on.
    Run(Tid),
    /// All have returned.
    Over,
    /// Nobody can go on, but some have not returned.
    Stuck,
}

/// What the operating system costs.
pub(crate) struct Os {
    slice: Ps,
    switch: Ps,
    pub(crate) syscall: Ps,
    pub(crate) wake: Ps,
    idle: Vec<(Ps, Ps)>,
    pub(crate) slack: Ps,
}

pub(crate) struct Kernel {
    pub(crate) machine: Description,
    pub(crate) shape: Shape,
    pub(crate) os: Os,
    pub(crate) memory: Memory,
    pub(crate) arena: Arena,
    pub(crate) tunables: &'static Tunables,
    pub(crate) now: Ps,
    pub(crate) current: Option<Tid>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    /// CPUs of each core that are not idle.
    core_load: Vec<u32>,
    /// Cores of each package that are not idle.
    package_load: Vec<u32>,
    events: BinaryHeap<Reverse<(Ps, u64, What)>>,
    made: u64,
    pub(crate) happened: u64,
    /// By line, the first of those that poll it, plus one.
    pollers: Vec<u32>,
    /// For [`Kernel::changed`].
    told: Vec<Tid>,
    pub(crate) sleepers: BTreeMap<usize, VecDeque<Tid>>,
    pub(crate) counts: Vec<u64>,
    pub(crate) nodes_made: u32,
    unfinished: u32,
    /// When the program did something last: locks that only wait do not count.
    pub(crate) progress: Ps,
    pub(crate) preempted: Option<Ps>,
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
            },
            memory,
            arena,
            tunables,
            now: 0,
            current: None,
            threads: Vec::new(),
            cpus: (0..shape.cpus).map(|_| Cpu::default()).collect(),
            core_load: vec![0; shape.cores as usize],
            package_load: vec![0; machine.topology.packages as usize],
            events: BinaryHeap::new(),
            made: 0,
            happened: 0,
            pollers: vec![0; Arena::lines() as usize],
            told: Vec::new(),
            sleepers: BTreeMap::new(),
            counts: vec![0; LockEvent::ALL.len()],
            nodes_made: 0,
            unfinished: 0,
            progress: 0,
            preempted: None,
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

    // ---------------------------------------------------------------------------------------------------------- time

    fn push(&mut self, at: Ps, what: What) {
        self.made += 1;
        self.events.push(Reverse((at, self.made, what)));
    }

    /// The acting thread is busy for so long. Whether it must let others act first; else it already is that much later.
    #[inline]
    pub(crate) fn advance(&mut self, time: Ps, usage: Use) -> bool {
        let cpu = self.me().cpu;
        let until = self.with_hypervisor(cpu, self.now, self.now + time);
        self.happened += 1;
        let me = self.me();
        me.spend(usage, time);
        if self.events.peek().is_none_or(|Reverse((first, ..))| until < *first) {
            self.now = until;
            return false;
        }
        self.busy(until, usage);
        true
    }

    /// The acting thread is busy until then.
    fn busy(&mut self, until: Ps, usage: Use) {
        let tid = self.current.expect("a simulated thread is acting");
        let me = &mut self.threads[tid as usize];
        me.state = State::Busy { until, usage };
        me.generation += 1;
        let event = What::Resume(tid, me.generation);
        self.push(until, event);
    }

    /// When what takes from `from` to `to` on this CPU is over, if a hypervisor takes the CPU away now and then.
    fn with_hypervisor(&self, cpu: u32, from: Ps, to: Ps) -> Ps {
        let Some(vm) = &self.machine.hypervisor else { return to };
        let (run, away) = (us(vm.run_ms * 1e3), us(vm.away_ms * 1e3));
        // CPUs are away one after the other.
        let phase = (run + away) / Ps::from(self.shape.cpus) * Ps::from(cpu);
        let (mut at, mut rest) = (from, to - from);
        loop {
            let place = (at + phase) % (run + away);
            let Some(left) = run.checked_sub(place).filter(|&left| left > 0) else {
                at += run + away - place;
                continue;
            };
            if rest <= left {
                return at + rest;
            }
            (at, rest) = (at + left, rest - left);
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
            Some(tid) if matches!(self.threads[tid as usize].state, State::Polling { .. }) => clock.poll_share,
            Some(_) => 1.0,
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
            let Some(Reverse((at, _, what))) = self.events.pop() else { return Next::Stuck };
            self.happened += 1;
            match what {
                What::Resume(tid, generation) if self.is_valid(tid, generation) => {
                    self.now = at;
                    if at > self.progress + STALLED {
                        return Next::Stuck;
                    }
                    self.stop_polling(tid);
                    self.current = Some(tid);
                    return Next::Run(tid);
                }
                What::Timer(tid, generation) if self.is_valid(tid, generation) => {
                    self.now = at;
                    self.time_out(tid);
                }
                What::Slice(cpu, generation) if self.cpus[cpu as usize].generation == generation => {
                    self.now = at;
                    self.end_of_slice(cpu);
                }
                What::Resume(..) | What::Timer(..) | What::Slice(..) => {}
            }
        }
    }

    fn is_valid(&self, tid: Tid, generation: u32) -> bool {
        self.threads[tid as usize].generation == generation
    }

    // ------------------------------------------------------------------------------------------------------- polling

    /// The acting thread polls the line from `next` on, `every` so often, and looks at it when the line has changed, or at
    /// `until`.
    pub(crate) fn poll(&mut self, line: u32, next: Ps, every: Ps, until: Ps) {
        let tid = self.current.expect("a simulated thread is acting");
        let (since, cpu) = (self.now, self.threads[tid as usize].cpu);
        let until = self.with_hypervisor(cpu, since, until);
        self.busy(until, Use::Polling);
        let first = &mut self.pollers[line as usize];
        let me = &mut self.threads[tid as usize];
        me.waited_for = self.arena.address(line);
        me.next_poller = first.checked_sub(1);
        *first = tid + 1;
        me.state = State::Polling { line, since, next, every };
    }

    /// Whoever polls the line sees the change when it looks the next time.
    pub(crate) fn changed(&mut self, line: u32) {
        // Nobody polls what holds nothing.
        let Some(first) = self.pollers.get_mut(line as usize) else { return };
        let mut next = std::mem::take(first).checked_sub(1);
        // The list has the latest first; they are told in the order of their coming.
        self.told.clear();
        while let Some(tid) = next {
            self.told.push(tid);
            next = self.threads[tid as usize].next_poller.take();
        }
        while let Some(tid) = self.told.pop() {
            self.sees(tid);
        }
    }

    fn sees(&mut self, tid: Tid) {
        let thread = &mut self.threads[tid as usize];
        let State::Polling { since, next, every, .. } = thread.state else {
            unreachable!("it is in a list of pollers")
        };
        let polls = self.now.saturating_sub(next).div_ceil(every.max(1));
        let cpu = thread.cpu;
        let at = self.with_hypervisor(cpu, self.now, (next + polls * every).max(self.now));
        let thread = &mut self.threads[tid as usize];
        thread.spend(Use::Polling, at - since);
        thread.state = State::Busy { until: at, usage: Use::Polling };
        thread.generation += 1;
        let event = What::Resume(tid, thread.generation);
        self.push(at, event);
    }

    /// A thread that polls does something else.
    fn stop_polling(&mut self, tid: Tid) {
        let State::Polling { line, since, .. } = self.threads[tid as usize].state else { return };
        let after = self.threads[tid as usize].next_poller.take();
        let first = self.pollers[line as usize].checked_sub(1).expect("its line has pollers");
        if first == tid {
            self.pollers[line as usize] = after.map_or(0, |tid| tid + 1);
        } else {
            let mut before = first;
            while let Some(next) = self.threads[before as usize].next_poller.filter(|&next| next != tid) {
                before = next;
            }
            self.threads[before as usize].next_poller = after;
        }
        let thread = &mut self.threads[tid as usize];
        thread.spend(Use::Polling, self.now - since);
        thread.state = State::Busy { until: self.now, usage: Use::Polling };
    }

    // ---------------------------------------------------------------------------------------------------- scheduling

    /// A thread wants this CPU, and gets it when the slice of the one that has it has lasted for so long.
    fn enqueue(&mut self, tid: Tid, cpu: u32, slice: Ps) {
        let thread = &mut self.threads[tid as usize];
        thread.cpu = cpu;
        self.cpus[cpu as usize].queue.push_back(tid);
        if self.cpus[cpu as usize].current.is_none() {
            let latency = self.idle_latency(cpu);
            self.dispatch(cpu, latency);
        } else {
            self.arm(cpu, slice);
        }
    }

    /// How long an idle CPU takes to wake up.
    fn idle_latency(&self, cpu: u32) -> Ps {
        let idle = self.now - self.cpus[cpu as usize].since;
        self.os.idle.iter().rev().find(|(at_least, _)| idle >= *at_least).map_or(0, |(_, latency)| *latency)
    }

    /// The CPU's slice ends when it has lasted for so long, if somebody waits for the CPU.
    fn arm(&mut self, cpu: u32, slice: Ps) {
        let this = &mut self.cpus[cpu as usize];
        if this.armed || this.queue.is_empty() || this.current.is_none() {
            return;
        }
        this.armed = true;
        let (at, event) = ((this.since + slice).max(self.now), What::Slice(cpu, this.generation));
        self.push(at, event);
    }

    /// The CPU, which nobody has, takes the next thread from its queue, or from another one.
    fn dispatch(&mut self, cpu: u32, latency: Ps) {
        let next = self.cpus[cpu as usize].queue.pop_front().or_else(|| self.pull(cpu));
        let this = &mut self.cpus[cpu as usize];
        let was_idle = this.current.is_none();
        this.generation += 1;
        this.armed = false;
        this.since = self.now;
        this.current = next;
        let Some(tid) = next else { return };
        if was_idle {
            self.load(cpu, true);
        }
        let switched = self.with_hypervisor(cpu, self.now, self.now + latency + self.os.switch);
        let thread = &mut self.threads[tid as usize];
        let State::Ready { since, rest } = thread.state else { unreachable!("it is in a queue") };
        thread.cpu = cpu;
        thread.spend(Use::Scheduling, switched - since);
        thread.generation += 1;
        thread.state = State::Busy { until: switched + rest, usage: Use::Scheduling };
        let event = What::Resume(tid, thread.generation);
        self.push(switched + rest, event);
        self.arm(cpu, self.os.slice);
    }

    fn load(&mut self, cpu: u32, more: bool) {
        let core = self.shape.core(cpu);
        let (core_load, package) = (&mut self.core_load[core as usize], self.shape.package(core) as usize);
        *core_load = if more { *core_load + 1 } else { *core_load - 1 };
        match (*core_load, more) {
            (1, true) => self.package_load[package] += 1,
            (0, false) => self.package_load[package] -= 1,
            _ => {}
        }
    }

    /// A thread from the longest queue: of the CPU's node, else of any.
    fn pull(&mut self, cpu: u32) -> Option<Tid> {
        let node = self.shape.node(self.shape.core(cpu));
        let longest = |kernel: &Self, cpus: std::ops::Range<u32>| {
            let longest = cpus.max_by_key(|&cpu| (kernel.cpus[cpu as usize].queue.len(), Reverse(cpu)))?;
            (!kernel.cpus[longest as usize].queue.is_empty()).then_some(longest)
        };
        let from = longest(self, self.shape.cpus_of_node(node)).or_else(|| longest(self, 0..self.shape.cpus))?;
        self.cpus[from as usize].queue.pop_back()
    }

    /// The acting thread leaves its CPU; its state says why.
    pub(crate) fn leave(&mut self, state: State) {
        let tid = self.current.expect("a simulated thread is acting");
        let thread = &mut self.threads[tid as usize];
        thread.state = state;
        thread.generation += 1;
        let cpu = thread.cpu;
        if state == State::Done {
            self.unfinished -= 1;
            self.progress = self.now;
        } else {
            thread.voluntary += 1;
        }
        self.release(cpu);
    }

    /// Nobody has the CPU any more.
    fn release(&mut self, cpu: u32) {
        self.cpus[cpu as usize].current = None;
        self.load(cpu, false);
        self.dispatch(cpu, 0);
    }

    fn end_of_slice(&mut self, cpu: u32) {
        self.cpus[cpu as usize].armed = false;
        if self.cpus[cpu as usize].queue.is_empty() {
            return;
        }
        let tid = self.cpus[cpu as usize].current.expect("a slice is somebody's");
        self.stop_polling(tid);
        self.preempted = Some(self.now);
        let thread = &mut self.threads[tid as usize];
        let State::Busy { until, .. } = thread.state else { unreachable!("it has a CPU") };
        thread.state = State::Ready { since: self.now, rest: until.saturating_sub(self.now) };
        thread.generation += 1;
        thread.involuntary += 1;
        self.cpus[cpu as usize].queue.push_back(tid);
        self.release(cpu);
    }

    /// The acting thread lets others have its CPU, if somebody wants it. Whether it must stop acting.
    pub(crate) fn offer(&mut self) -> bool {
        let cpu = self.me().cpu;
        if self.cpus[cpu as usize].queue.is_empty() {
            return self.advance(self.os.syscall, Use::Scheduling);
        }
        let tid = self.current.expect("a simulated thread is acting");
        self.cpus[cpu as usize].queue.push_back(tid);
        self.leave(State::Ready { since: self.now, rest: 0 });
        true
    }

    /// The acting thread sleeps: on the word at `address`, or for a time only (0).
    pub(crate) fn sleep(&mut self, address: usize, until: Option<Ps>) {
        let tid = self.current.expect("a simulated thread is acting");
        if address != 0 {
            self.sleepers.entry(address).or_default().push_back(tid);
            self.me().waited_for = address;
        }
        self.leave(State::Asleep { since: self.now, address });
        self.threads[tid as usize].timed_out = false;
        if let Some(until) = until {
            let event = What::Timer(tid, self.threads[tid as usize].generation);
            self.push(until.max(self.now), event);
        }
    }

    fn time_out(&mut self, tid: Tid) {
        let State::Asleep { address, .. } = self.threads[tid as usize].state else { unreachable!("it has a timer") };
        if let Some(list) = self.sleepers.get_mut(&address) {
            list.retain(|&other| other != tid);
            if list.is_empty() {
                self.sleepers.remove(&address);
            }
        }
        self.threads[tid as usize].timed_out = true;
        self.wake(tid);
    }

    /// A sleeper wants a CPU again.
    pub(crate) fn wake(&mut self, tid: Tid) {
        let thread = &mut self.threads[tid as usize];
        let State::Asleep { since, .. } = thread.state else { unreachable!("it sleeps") };
        thread.spend(Use::Parked, self.now - since);
        thread.state = State::Ready { since: self.now, rest: 0 };
        thread.generation += 1;
        let cpu = self.place(self.threads[tid as usize].cpu);
        self.enqueue(tid, cpu, self.os.slice / 3);
    }

    /// The first of those who sleep on the word at `address`, who does so no more.
    pub(crate) fn first_sleeper(&mut self, address: usize) -> Option<Tid> {
        let list = self.sleepers.get_mut(&address)?;
        let first = list.pop_front();
        if list.is_empty() {
            self.sleepers.remove(&address);
        }
        first
    }

    /// Where a woken thread goes that was on this CPU.
    fn place(&self, cpu: u32) -> u32 {
        let is_idle = |cpu: &u32| self.cpus[*cpu as usize].current.is_none();
        if is_idle(&cpu) {
            return cpu;
        }
        let node = self.shape.node(self.shape.core(cpu));
        let idle = || self.shape.cpus_of_node(node).filter(is_idle);
        let core_idle = |cpu: &u32| self.core_load[self.shape.core(*cpu) as usize] == 0;
        idle().find(core_idle).or_else(|| idle().next()).unwrap_or(cpu)
    }
}
