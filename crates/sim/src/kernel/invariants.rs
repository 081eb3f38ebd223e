//! Checks of the [kernel](super)'s invariants after each event of random programs.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::{Manner, Patience, Special as _, Time as _, Waiting as _, Word as _};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::raw::Raw;
use flashlock_locks::parts::wait::SpinThenPark;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Kernel, What};
use crate::description::{Hypervisor, Umwait};
use crate::power::Draw;
use crate::simulation::{suspend, with};
use crate::thread::{State, Tid, Use};
use crate::{Description, Options, Placed, Ps, Sim, Simulation, Word};

impl Kernel {
    /// Checks the invariants between two events. The next event is at `at`.
    pub(super) fn check(&self, at: Option<Ps>) {
        assert!(at.is_none_or(|at| at >= self.now), "invariant 1: time goes back");
        let mut events = vec![0; self.threads.len()];
        let mut slices = vec![0; self.cpus.len()];
        for what in self.events.iter() {
            match what {
                What::Resume(tid, generation) | What::Timer(tid, generation) => {
                    events[tid as usize] += u32::from(self.is_valid(tid, generation));
                }
                What::Slice(cpu, generation) => {
                    slices[cpu as usize] += u32::from(self.cpus[cpu as usize].generation == generation);
                }
                What::Edge(_) => {}
            }
        }
        (0..).zip(&events).for_each(|(tid, &events)| self.check_thread(tid, events));
        (0..).zip(&slices).for_each(|(cpu, &slices)| self.check_cpu(cpu, slices));
        assert_eq!(self.cpus.iter().map(|cpu| cpu.queue.len()).sum::<usize>(), self.queued as usize);
        assert_eq!(self.threads.iter().filter(|thread| thread.state != State::Done).count(), self.unfinished as usize);
    }

    fn check_thread(&self, tid: Tid, events: u32) {
        let thread = &self.threads[tid as usize];
        let queues = self.cpus.iter().map(|cpu| cpu.queue.iter().filter(|&&other| other == tid).count()).sum::<usize>();
        let sleeps = self.sleepers.values().flatten().filter(|&&other| other == tid).count();
        // The line that it last polled or slept on, if the thread is among that line's pollers.
        let line = self.arena.line(std::ptr::without_provenance(thread.waited_for));
        let polls = line.filter(|&line| self.polls(line).any(|other| other == tid));
        let is_current = self.cpus[thread.cpu as usize].current == Some(tid);
        let queued_here = self.cpus[thread.cpu as usize].queue.contains(&tid);
        // Expected: events, queues, lists of sleepers, the polled line, whether it is current on its CPU.
        let (expected, booked) = match thread.state {
            State::Busy { .. } => ((1, 0, 0, None, true), thread.doing.since),
            State::Polling { line, since, .. } => ((1, 0, 0, Some(line), true), since),
            State::Ready { since, .. } => ((0, 1, 0, None, false), since),
            State::Asleep { since, address: 0 } => ((1, 0, 0, None, false), since),
            State::Asleep { since, .. } => ((events.min(1), 0, 1, None, false), since),
            State::Done => ((0, 0, 0, None, false), thread.times.iter().sum()),
        };
        let found = (events, queues, sleeps, polls, is_current);
        assert_eq!(found, expected, "invariants 2 and 3, thread {tid}: {:?}", thread.state);
        assert!(queues == 0 || queued_here, "invariant 2, thread {tid} waits for another CPU than its own");
        assert_eq!(thread.times.iter().sum::<Ps>(), booked, "invariant 4, thread {tid}: {:?}", thread.state);
        let doing = thread.doing;
        assert!(doing.switched <= doing.queued, "thread {tid}: {doing:?}");
    }

    fn check_cpu(&self, cpu: u32, slices: u32) {
        let this = &self.cpus[cpu as usize];
        assert!(slices <= 1 && (!this.armed || this.overdue || slices == 1), "CPU {cpu}: {this:?}");
        match this.current {
            None => assert!(this.queue.is_empty() && this.draw == Draw::Nothing, "invariant 5, CPU {cpu}: {this:?}"),
            Some(tid) => {
                let thread = &self.threads[tid as usize];
                let runs = matches!(thread.state, State::Busy { .. } | State::Polling { .. });
                assert!(runs && thread.cpu == cpu, "invariant 3, CPU {cpu}: {:?}", thread.state);
                assert!(this.queue.is_empty() || this.armed, "invariant 5, CPU {cpu}: {this:?}");
            }
        }
        let core = self.shape.core(cpu);
        let taken = self.shape.cpus_of(core).filter(|&cpu| self.cpus[cpu as usize].current.is_some());
        assert_eq!(taken.count(), self.core_load[core as usize] as usize);
    }

    fn polls(&self, line: u32) -> impl Iterator<Item = Tid> {
        let first = self.pollers[line as usize].checked_sub(1);
        std::iter::successors(first, |&tid| self.threads[tid as usize].next_poller)
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Compute(u16),
    /// Computes for this long while it holds one of the locks.
    Section(usize, u16),
    /// Sleeps on a word, for at most so many µs.
    Park(usize, u8),
    Unpark(usize),
    /// Waits for a change of the word, for at most so many µs, by polling or resting.
    Await(usize, u8, bool),
    /// Waits for a change of any of the words, for at most so many µs.
    Scan(u8),
    Change(usize),
    Nap(u16),
    Yield,
    /// Keeps its CPU for this long.
    Keep(u16),
}

const WORDS: usize = 2;

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..20_000_u16).prop_map(Act::Compute),
        (0..WORDS, 0..5_000_u16).prop_map(|(lock, ns)| Act::Section(lock, ns)),
        (0..WORDS, 0..50_u8).prop_map(|(word, us)| Act::Park(word, us)),
        (0..WORDS).prop_map(Act::Unpark),
        (0..WORDS, 0..50_u8, any::<bool>()).prop_map(|(word, us, rests)| Act::Await(word, us, rests)),
        (0..50_u8).prop_map(Act::Scan),
        (0..WORDS).prop_map(Act::Change),
        (0..20_000_u16).prop_map(Act::Nap),
        Just(Act::Yield),
        (0..20_000_u16).prop_map(Act::Keep),
    ]
}

/// Two nodes with `cores` cores each, and short slices.
fn machine(cores: u32, siblings: u32, hypervisor: bool, umwait: bool) -> Description {
    let mut machine = Description::find("2x18x2").unwrap();
    (machine.topology.cores_per_node, machine.topology.threads_per_core) = (cores, siblings);
    let os = &mut machine.scheduler;
    (os.slice_us, os.switch_us, os.timer_slack_us) = (12.0, 1.0, 3.0);
    os.idle_us = vec![(0.0, 1.0), (20.0, 5.0)];
    machine.hypervisor = hypervisor.then_some(Hypervisor { run_ms: 0.02, away_ms: 0.015 });
    machine.umwait = umwait.then_some(Umwait { wake_ns: 250.0, max_us: 5.0, wait_w: 0.5 });
    machine
}

type Lock = Mcs<SpinThenPark>;
type Memory = Placed<[(Raw<Sim, Lock>, Word); WORDS]>;

impl Act {
    fn perform(self, memory: &Memory) {
        let soon = |us: u8| Sim::sooner(u32::from(us), None);
        match self {
            Self::Compute(ns) => crate::compute(f64::from(ns)),
            Self::Section(at, ns) => {
                let (lock, _) = &memory[at];
                lock.lock();
                crate::compute(f64::from(ns));
                // SAFETY: this thread holds it.
                unsafe { lock.unlock() };
            }
            Self::Park(at, us) => _ = Sim::park(&memory[at].1, memory[at].1.peek(), Some(soon(us))),
            Self::Unpark(at) => _ = Sim::wake(&raw const memory[at].1, 1),
            Self::Await(at, us, rests) => {
                let (word, before) = (&memory[at].1, memory[at].1.peek());
                let (patience, is_done) = (Patience::Until(soon(us)), |seen| seen != before);
                if rests {
                    Sim::poll_until(word, Relaxed, patience, Manner::Rests, is_done);
                } else {
                    Sim::spin_until(word, Relaxed, patience, is_done);
                }
            }
            Self::Scan(us) => {
                let before = memory.each_ref().map(|words| words.1.peek());
                let changed = |_| (0..WORDS).any(|at| memory[at].1.load(Relaxed) != before[at]);
                Sim::poll_until(&memory[0].1, Relaxed, Patience::Until(soon(us)), Manner::Scans, changed);
            }
            Self::Change(at) => _ = memory[at].1.fetch_add(1, Relaxed),
            Self::Nap(ns) => crate::nap(f64::from(ns)),
            Self::Yield => {
                if with(Kernel::offer) {
                    suspend();
                }
            }
            Self::Keep(ns) => {
                crate::disable_preemption();
                crate::compute(f64::from(ns));
                crate::enable_preemption();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    /// Often has more threads than CPUs. [`Kernel::check`] runs after each event. At the end, on machines with one
    /// hardware thread per core, what the cores drew equals what the threads did.
    #[test]
    fn invariants_hold_after_each_event(
        (cores, siblings) in (1..=2_u32, 1..=2_u32),
        (hypervisor, umwait) in any::<(bool, bool)>(),
        part in prop::option::of((0..100_u64, 0..200_u64)),
        programs in vec(vec(act(), 1..15), 1..12),
    ) {
        let machine = machine(cores, siblings, hypervisor, umwait);
        let mut simulation = Simulation::new(&machine, Options::default());
        let each = || (Raw::new(), Word::new(0));
        let memory: Rc<Memory> = Rc::new(simulation.place("words", [each(), each()]));
        if let Some((from, us)) = part {
            simulation.measure(1000 * from..1000 * (from + us));
        }
        let ended = Rc::new(Cell::new(0));
        for program in programs {
            let (memory, ended) = (Rc::clone(&memory), Rc::clone(&ended));
            simulation.spawn(move || {
                program.into_iter().for_each(|act| act.perform(&memory));
                ended.set(ended.get() + crate::now());
            });
        }
        let outcome = simulation.run().unwrap();
        let of = |usages: &[Use]| usages.iter().map(|usage| outcome.times[*usage as usize]).sum::<f64>();
        let together: f64 = outcome.times.iter().sum();
        if part.is_none() {
            prop_assert!((together - ended.get() as f64).abs() < 12.0, "{together} of {}", ended.get());
        }
        let all: f64 = Use::ALL.iter().filter(|usage| usage.has_cpu()).map(|usage| of(&[*usage])).sum();
        let drawn = with(|kernel| kernel.measured.drawn.map(|ps| ps as f64 / 1e3));
        let (busy, polled) = (drawn[Draw::Busy as usize], drawn[Draw::Poll as usize] + drawn[Draw::Rest as usize]);
        if siblings == 1 {
            let polling = of(&[Use::Polling]);
            prop_assert!(
                (busy - (all - polling)).abs() < 0.1 && (polled - polling).abs() < 0.1,
                "{drawn:?} {outcome:?}"
            );
        } else {
            prop_assert!(busy + polled <= all + 0.1 && 2.0 * (busy + polled) >= all - 0.1, "{drawn:?} {outcome:?}");
        }
    }
}
