//! Decides which thread has which CPU: see [`kernel`](super).

use std::cmp::Reverse;

use super::{Kernel, What};
use crate::Ps;
use crate::power::Draw;
use crate::thread::{Doing, State, Tid, Use};

impl Kernel {
    /// A thread joins the queue of this CPU. It gets the CPU when the current thread's slice has lasted for `slice`.
    pub(super) fn enqueue(&mut self, tid: Tid, cpu: u32, slice: Ps) {
        let thread = &mut self.threads[tid as usize];
        thread.cpu = cpu;
        self.queue(tid, cpu);
        if self.cpus[cpu as usize].current.is_none() {
            let latency = self.idle_latency(cpu);
            self.dispatch(cpu, latency);
        } else {
            self.arm(cpu, slice);
        }
    }

    pub(super) fn queue(&mut self, tid: Tid, cpu: u32) {
        self.cpus[cpu as usize].queue.push_back(tid);
        self.queued += 1;
    }

    /// How long an idle CPU takes to wake up.
    pub(super) fn idle_latency(&self, cpu: u32) -> Ps {
        let idle = self.now - self.cpus[cpu as usize].since;
        self.os.idle.iter().rev().find(|(at_least, _)| idle >= *at_least).map_or(0, |(_, latency)| *latency)
    }

    /// Schedules the end of the CPU's slice after `slice`, if a thread waits for the CPU.
    pub(super) fn arm(&mut self, cpu: u32, slice: Ps) {
        let this = &mut self.cpus[cpu as usize];
        if this.armed || this.queue.is_empty() || this.current.is_none() {
            return;
        }
        this.armed = true;
        let (at, event) = ((this.since + slice).max(self.now), What::Slice(cpu, this.generation));
        self.events.push(at, event);
    }

    /// The CPU, which is idle, takes the next thread from its own queue, else from another queue.
    pub(super) fn dispatch(&mut self, cpu: u32, latency: Ps) {
        let next = self.cpus[cpu as usize].queue.pop_front().or_else(|| self.pull(cpu));
        self.queued -= u32::from(next.is_some());
        let this = &mut self.cpus[cpu as usize];
        let was_idle = this.current.is_none();
        this.generation += 1;
        (this.armed, this.overdue) = (false, false);
        this.since = self.now;
        this.current = next;
        let Some(tid) = next else { return self.draws(cpu, Draw::Nothing) };
        self.happened += 1;
        if was_idle {
            self.load(cpu, true);
        }
        let switched = self.after(cpu, latency + self.os.switch);
        let thread = &mut self.threads[tid as usize];
        let State::Ready { since, rest } = thread.state else { unreachable!("it is in a queue") };
        thread.cpu = cpu;
        thread.generation += 1;
        thread.state = State::Busy { until: switched + rest };
        // It now finishes what it was doing when it lost its CPU.
        let [ready, queued] =
            [thread.doing.switched, thread.doing.queued].map(|to| switched + to.saturating_sub(since));
        thread.doing = Doing { since: self.now, switched: ready, queued, usage: thread.doing.usage };
        let (draw, event) = (thread.doing.usage.draw(), What::Resume(tid, thread.generation));
        self.events.push(switched + rest, event);
        self.book(tid, Use::Runnable, since, self.now);
        self.switches(cpu, ready, draw);
        self.arm(cpu, self.os.slice);
    }

    pub(super) fn load(&mut self, cpu: u32, more: bool) {
        let core = self.shape.core(cpu);
        let (core_load, package) = (&mut self.core_load[core as usize], self.shape.package(core) as usize);
        *core_load = if more { *core_load + 1 } else { *core_load - 1 };
        match (*core_load, more) {
            (1, true) => self.package_load[package] += 1,
            (0, false) => self.package_load[package] -= 1,
            _ => {}
        }
    }

    /// Takes a thread from the longest queue of the CPU's node, else of the machine.
    pub(super) fn pull(&mut self, cpu: u32) -> Option<Tid> {
        if self.queued == 0 {
            return None;
        }
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
            self.progresses(0);
        } else {
            thread.voluntary += 1;
        }
        self.release(cpu);
    }

    /// The CPU becomes free.
    pub(super) fn release(&mut self, cpu: u32) {
        self.cpus[cpu as usize].current = None;
        self.load(cpu, false);
        self.dispatch(cpu, 0);
    }

    pub(super) fn end_of_slice(&mut self, cpu: u32) {
        self.happened += 1;
        let this = &mut self.cpus[cpu as usize];
        (this.armed, this.overdue) = (false, false);
        self.spread_queue(cpu);
        let this = &mut self.cpus[cpu as usize];
        if this.queue.is_empty() {
            return;
        }
        let tid = this.current.expect("a slice is somebody's");
        if self.threads[tid as usize].keeps_cpu {
            (this.armed, this.overdue) = (true, true);
            return;
        }
        self.stop_polling(tid);
        self.settle(tid);
        self.preempted = Some(self.now);
        let thread = &mut self.threads[tid as usize];
        let State::Busy { until, .. } = thread.state else { unreachable!("it has a CPU") };
        thread.state = State::Ready { since: self.now, rest: until.saturating_sub(self.now) };
        thread.generation += 1;
        thread.involuntary += 1;
        self.queue(tid, cpu);
        self.release(cpu);
    }

    /// The acting thread begins or stops to keep its CPU. Returns whether it has just lost the CPU because its slice
    /// was over.
    pub(crate) fn keep_cpu(&mut self, keeps: bool) -> bool {
        let me = self.me();
        me.keeps_cpu = keeps;
        let cpu = me.cpu;
        if keeps || !self.cpus[cpu as usize].overdue {
            return false;
        }
        self.end_of_slice(cpu);
        matches!(self.me().state, State::Ready { .. })
    }

    /// Moves the threads in this CPU's queue to idle CPUs, the last thread first. Idle CPUs of the same node come
    /// first, then the idle CPU with the lowest number.
    fn spread_queue(&mut self, cpu: u32) {
        while !self.cpus[cpu as usize].queue.is_empty() {
            let near = self.place(cpu);
            let idle = |cpu: &u32| self.cpus[*cpu as usize].current.is_none();
            let Some(to) = Some(near).filter(idle).or_else(|| (0..self.shape.cpus).find(idle)) else { return };
            let tid = self.cpus[cpu as usize].queue.pop_back().expect("it is not empty");
            self.queued -= 1;
            self.enqueue(tid, to, self.os.slice);
        }
    }

    /// The acting thread yields its CPU if another thread waits for it, unless it keeps its CPU. Returns whether it
    /// must stop acting.
    pub(crate) fn offer(&mut self) -> bool {
        let (cpu, keeps) = (self.me().cpu, self.me().keeps_cpu);
        if keeps || self.cpus[cpu as usize].queue.is_empty() {
            return self.advance(self.os.syscall, Use::System);
        }
        let tid = self.current.expect("a simulated thread is acting");
        self.queue(tid, cpu);
        self.leave(State::Ready { since: self.now, rest: 0 });
        true
    }

    /// The acting thread sleeps, on the word at `address`, or only for a time (0).
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
            self.events.push(until.max(self.now), event);
        }
    }

    pub(super) fn time_out(&mut self, tid: Tid) {
        let State::Asleep { address, .. } = self.threads[tid as usize].state else { unreachable!("it has a timer") };
        if let Some(list) = self.sleepers.get_mut(&address) {
            list.retain(|&other| other != tid);
            if list.is_empty() {
                self.sleepers.remove(&address);
            }
        }
        self.happened += 1;
        self.threads[tid as usize].timed_out = true;
        self.wake(tid);
    }

    /// A sleeping thread becomes ready.
    pub(crate) fn wake(&mut self, tid: Tid) {
        let thread = &mut self.threads[tid as usize];
        let State::Asleep { since, .. } = thread.state else { unreachable!("it sleeps") };
        thread.state = State::Ready { since: self.now, rest: 0 };
        thread.generation += 1;
        let cpu = self.place(self.threads[tid as usize].cpu);
        self.book(tid, Use::Parked, since, self.now);
        self.enqueue(tid, cpu, self.os.slice / 3);
    }

    /// Removes the first thread that sleeps on the word at `address`.
    pub(crate) fn first_sleeper(&mut self, address: usize) -> Option<Tid> {
        let list = self.sleepers.get_mut(&address)?;
        let first = list.pop_front();
        if list.is_empty() {
            self.sleepers.remove(&address);
        }
        first
    }

    /// The CPU to which a woken thread goes that last had this one.
    pub(super) fn place(&self, cpu: u32) -> u32 {
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
