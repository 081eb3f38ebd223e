//! Threads that poll a line, and how they are notified of changes.

use super::{Kernel, What};
use crate::Ps;
use crate::power::Draw;
use crate::thread::{Doing, State, Tid, Use};

impl Kernel {
    /// The acting thread polls the line from `next` on, once every `every`. It looks when the line has changed, or at
    /// `until`. `every` is 0 for a thread that waits with [`Umwait`](crate::description::Umwait) from `next` on.
    pub(crate) fn poll(&mut self, line: u32, next: Ps, every: Ps, until: Ps) {
        let tid = self.current.expect("a simulated thread is acting");
        let (since, cpu) = (self.now, self.threads[tid as usize].cpu);
        let until = self.after(cpu, until - since);
        self.draws(cpu, if every == 0 { Draw::Rest } else { Draw::Poll });
        self.busy(until, Doing::new(since, Use::Polling));
        self.happened += 1;
        let first = &mut self.pollers[line as usize];
        let me = &mut self.threads[tid as usize];
        me.waited_for = self.arena.address(line);
        me.next_poller = first.checked_sub(1);
        *first = tid + 1;
        me.state = State::Polling { line, since, next, every };
    }

    /// Whether a thread that is about to poll can also watch all lines that its last look loaded. It cannot if the look
    /// was not steady, if one of the lines has changed since, or if another thread watches one of them. Two threads
    /// that scan the same lines are simulated look by look.
    pub(crate) fn can_watch(&mut self) -> bool {
        let core = self.my_core();
        let (look, memory, watchers) =
            (&self.threads[self.current.unwrap_or(0) as usize].look, &self.memory, &self.watchers);
        let can = |&(line, _): &(u32, Ps)| memory.has_copy(core, line) && watchers.get(line as usize) == Some(&0);
        look.steady && look.loads.iter().all(can)
    }

    /// After [`poll`](Kernel::poll), if [`can_watch`](Kernel::can_watch): the thread watches these lines.
    pub(crate) fn watch(&mut self) {
        let tid = self.current.expect("a simulated thread is acting");
        for &(line, _) in &self.threads[tid as usize].look.loads {
            self.watchers[line as usize] = tid + 1;
        }
    }

    /// A line that a polling thread watches has changed. The thread continues where its next look loads that line.
    fn finds(&mut self, tid: Tid, line: u32) {
        let thread = &mut self.threads[tid as usize];
        let State::Polling { line: polled, next, every, .. } = thread.state else { unreachable!("it watches a line") };
        let place = thread.look.loads.iter().position(|&(other, _)| other == line).expect("it has loaded from it");
        thread.look.made = place;
        let next = next + thread.look.loads[place].1;
        self.leave_pollers(tid, polled);
        self.goes_on(tid, next, every);
    }

    fn stop_watching(&mut self, tid: Tid) {
        let thread = &self.threads[tid as usize];
        for &(line, _) in &thread.look.loads {
            if self.watchers[line as usize] == tid + 1 {
                self.watchers[line as usize] = 0;
            }
        }
    }

    /// Each thread that polls the line sees the change at its next look.
    pub(crate) fn changed(&mut self, line: u32) {
        if let Some(watcher) = self.watchers.get(line as usize).and_then(|watcher| watcher.checked_sub(1)) {
            self.finds(watcher, line);
        }
        // Lines without data have no pollers.
        let Some(first) = self.pollers.get_mut(line as usize) else { return };
        let mut next = std::mem::take(first).checked_sub(1);
        // The list has the latest poller first; they are notified in order of arrival.
        self.notified.clear();
        while let Some(tid) = next {
            self.notified.push(tid);
            next = self.threads[tid as usize].next_poller.take();
        }
        while let Some(tid) = self.notified.pop() {
            self.sees(tid);
        }
    }

    pub(super) fn sees(&mut self, tid: Tid) {
        let thread = &mut self.threads[tid as usize];
        let State::Polling { next, every, .. } = thread.state else { unreachable!("it is in a list of pollers") };
        self.stop_watching(tid);
        self.goes_on(tid, next, every);
    }

    /// A poller acts again, at `next` or a multiple of `every` later.
    fn goes_on(&mut self, tid: Tid, next: Ps, every: Ps) {
        let thread = &self.threads[tid as usize];
        let sees = match every {
            0 => self.now.max(next) + self.os.umwait_wake,
            every => (next + self.now.saturating_sub(next).div_ceil(every) * every).max(self.now),
        };
        let cpu = thread.cpu;
        let at = self.after(cpu, sees - self.now);
        let thread = &mut self.threads[tid as usize];
        thread.state = State::Busy { until: at };
        thread.generation += 1;
        let event = What::Resume(tid, thread.generation);
        self.events.push(at, event);
    }

    /// If the thread is polling, it stops.
    #[inline]
    pub(super) fn stop_polling(&mut self, tid: Tid) {
        if let State::Polling { line, .. } = self.threads[tid as usize].state {
            self.leave_pollers(tid, line);
        }
    }

    fn leave_pollers(&mut self, tid: Tid, line: u32) {
        self.stop_watching(tid);
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
        self.threads[tid as usize].state = State::Busy { until: self.now };
    }
}
