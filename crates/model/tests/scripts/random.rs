//! Arrivals, time-outs and releases at random, against plain lists: the same waiter is served, and all queues are the
//! same, after each step.

use flashlock_locks::machine::Tunables;
use flashlock_locks::mutex::malthusian::LifoCr;
use flashlock_locks::mutex::malthusian::mcscr::Fewest;
use flashlock_locks::mutex::malthusian::mcscrn::FewestAtHome;
use flashlock_locks::mutex::numa::cna::SameNode;
use flashlock_locks::parts::queue::culling::CullingLock;
use flashlock_locks::parts::queue::succession::Succession;
use flashlock_locks::parts::wait::Park;
use flashlock_locks::parts::wait::left::SWEEP_AT;
use flashlock_model::checker::Checker;
use flashlock_model::shuttle::Shuttled;

use crate::script::{Id, NO, Script, Scripted, YES, play, world};

#[derive(Clone, Copy)]
struct Waiter {
    id: Id,
    numa: u32,
    gone: bool,
}

/// A paper's rule: which waiter is served, by the releaser's NUMA node and what a draw says.
type Rule = fn(&mut Lists, u32, bool) -> Waiter;

/// The papers' rules on plain lists.
#[derive(Default)]
struct Lists {
    main: Vec<Waiter>,
    secondary: Vec<Waiter>,
    /// LIFO-CR's, the newest first.
    stack: Vec<Waiter>,
    /// Where the holder queued, if it knows.
    home: Option<u32>,
}

impl Lists {
    fn release(&mut self, rule: Rule, here: u32, drawn: bool) -> Option<Id> {
        let gone = self.main.iter().chain(&self.secondary).chain(&self.stack).filter(|waiter| waiter.gone).count();
        if gone > 0 && gone.is_multiple_of(SWEEP_AT as usize) {
            self.secondary.retain(|waiter| !waiter.gone);
            // A stack is swept below its top.
            let top = self.stack.first().copied();
            self.stack.retain(|waiter| !waiter.gone || Some(waiter.id) == top.map(|top| top.id));
        }
        while !(self.main.is_empty() && self.secondary.is_empty() && self.stack.is_empty()) {
            let served = rule(self, here, drawn);
            if !served.gone {
                self.home = Some(served.numa);
                return Some(served.id);
            }
            self.home = Some(served.numa);
        }
        self.home = None;
        None
    }

    fn cna(&mut self, here: u32, drawn: bool) -> Waiter {
        let local = self.main.iter().position(|waiter| waiter.numa == here).filter(|_| !drawn);
        match local {
            Some(place) => self.secondary.extend(self.main.drain(..place)),
            None => {
                self.secondary.append(&mut self.main);
                std::mem::swap(&mut self.main, &mut self.secondary);
            }
        }
        self.main.remove(0)
    }

    fn mcscr(&mut self, _: u32, drawn: bool) -> Waiter {
        match self.secondary.last() {
            Some(&eldest) if drawn => {
                self.secondary.pop();
                return eldest;
            }
            Some(_) if self.main.is_empty() => return self.secondary.remove(0),
            _ => {}
        }
        if self.main.len() > 1 && !self.main[0].gone {
            self.secondary.insert(0, self.main.remove(0));
        }
        self.main.remove(0)
    }

    fn mcscrn(&mut self, here: u32, drawn: bool) -> Waiter {
        let home = self.home.unwrap_or(here);
        if drawn && !self.secondary.is_empty() {
            if !self.move_home(home) {
                return self.secondary.pop().expect("somebody is culled");
            }
            return self.main.remove(0);
        }
        let is_remote = |waiter: &&Waiter| waiter.numa != home;
        let remote = self.main.iter().take_while(is_remote).count().min(self.main.len().saturating_sub(1));
        self.secondary.extend(self.main.drain(..remote));
        match self.main.first() {
            Some(first) if first.numa == home => {
                if self.main.get(1).is_some_and(|second| second.numa == home) {
                    self.secondary.insert(0, self.main.remove(0));
                }
                self.main.remove(0)
            }
            _ if self.secondary.first().is_some_and(|first| first.numa == home) => self.secondary.remove(0),
            _ => {
                self.move_home(home);
                self.main.remove(0)
            }
        }
    }

    /// Whether anybody was remote.
    fn move_home(&mut self, home: u32) -> bool {
        let new = self.secondary.iter().find(|waiter| waiter.numa != home).map(|eldest| eldest.numa);
        let Some(new) = new else { return false };
        let (moved, rest): (Vec<_>, Vec<_>) = self.secondary.drain(..).partition(|waiter| waiter.numa == new);
        let (passive, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|waiter| waiter.numa == home);
        self.secondary = [others, passive].concat();
        self.main.splice(..0, moved);
        true
    }

    fn lifo_cr(&mut self, _: u32, drawn: bool) -> Waiter {
        if drawn { self.stack.pop().expect("somebody waits") } else { self.stack.remove(0) }
    }

    fn queue(&mut self, new: &[Waiter]) {
        self.main.extend_from_slice(new);
    }

    fn push(&mut self, new: &[Waiter]) {
        self.stack.splice(..0, new.iter().copied());
    }

    fn ids(list: &[Waiter]) -> Vec<Id> {
        list.iter().map(|waiter| waiter.id).collect()
    }
}

/// NUMA nodes of the waiters; the last does not fit into a link.
const NUMA: [u32; 4] = [0, 1, 2, 40];
const STEPS: u32 = 300;

fn any(n: usize) -> usize {
    Shuttled::random() as usize % n
}

/// What a script's queues hold: those of the main queue, or the stack, and the culled ones.
type Queues<L> = fn(&Script<L>) -> (Vec<Id>, Vec<Id>);

fn two_lists<S: Succession>(script: &Script<CullingLock<S, Park>>) -> (Vec<Id>, Vec<Id>) {
    (script.main(), script.secondary())
}

fn compare<L: Scripted>(queues: Queues<L>, arrive: fn(&mut Lists, &[Waiter]), rule: Rule) {
    let (script, mut lists) = (Script::<L>::new(), Lists::default());
    let mut arrived = 0;
    for _ in 0..STEPS {
        match any(10) {
            0..=3 if lists.main.len() + lists.secondary.len() + lists.stack.len() < 30 => {
                let numa: Vec<_> = (0..=any(3)).map(|_| NUMA[any(NUMA.len())]).collect();
                let mut next = || {
                    arrived += 1;
                    arrived - 1
                };
                let new: Vec<_> = numa.iter().map(|&numa| Waiter { id: next(), numa, gone: false }).collect();
                if any(2) == 0 {
                    new.iter().for_each(|waiter| arrive(&mut lists, &[*waiter]));
                    script.arrive_singly(&numa);
                } else {
                    arrive(&mut lists, &new);
                    script.arrive(&numa);
                }
            }
            4..=5 => {
                let waiters = lists.main.iter_mut().chain(&mut lists.secondary).chain(&mut lists.stack);
                let mut waiting: Vec<_> = waiters.filter(|waiter| !waiter.gone).collect();
                if !waiting.is_empty() {
                    let place = any(waiting.len());
                    waiting[place].gone = true;
                    script.give_up(waiting[place].id);
                }
            }
            _ => {
                let (here, drawn) = (NUMA[any(NUMA.len())], any(8) == 0);
                world().set_random(if drawn { YES } else { NO });
                let (expected, served) = (lists.release(rule, here, drawn), script.release(here));
                assert_eq!(served, expected);
                world().set_random(None);
                if served.is_none() {
                    script.lock();
                }
            }
        }
        assert_eq!(
            queues(&script),
            (Lists::ids(&lists.main), Lists::ids(&[&lists.secondary[..], &lists.stack].concat()))
        );
    }
    world().set_random(NO);
    script.drain();
}

#[test]
fn cna_against_plain_lists() {
    play("cna against lists", 300, &Tunables::DEFAULT, || compare(two_lists::<SameNode>, Lists::queue, Lists::cna));
}

#[test]
fn mcscr_against_plain_lists() {
    play("mcscr against lists", 300, &Tunables::DEFAULT, || compare(two_lists::<Fewest>, Lists::queue, Lists::mcscr));
}

#[test]
fn mcscrn_against_plain_lists() {
    play("mcscrn against lists", 300, &Tunables::DEFAULT, || {
        compare(two_lists::<FewestAtHome>, Lists::queue, Lists::mcscrn);
    });
}

#[test]
fn lifo_cr_against_a_plain_list() {
    let stack: Queues<LifoCr<Park>> = |script| (vec![], script.stack());
    play("lifo-cr against a list", 300, &Tunables::DEFAULT, move || compare(stack, Lists::push, Lists::lifo_cr));
}
