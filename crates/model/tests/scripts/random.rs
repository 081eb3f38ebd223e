//! Arrivals, time-outs and releases at random, against a queue of plain lists: the same waiter is served, and both lists are the
//! same, after each step.

use flashlock_locks::machine::Tunables;
use flashlock_locks::malthusian::mcscr::Fewest;
use flashlock_locks::malthusian::mcscrn::FewestAtHome;
use flashlock_locks::numa::cna::SameNode;
use flashlock_locks::queue::aside::Succession;
use flashlock_locks::wait::left::SWEEP_AT;
use flashlock_model::checker::Checker;
use flashlock_model::shuttle::Shuttled;

use crate::script::{Id, NO, Script, YES, play, world};

#[derive(Clone, Copy)]
struct Waiter {
    id: Id,
    numa: u32,
    gone: bool,
}

/// The papers' rules on plain lists.
#[derive(Default)]
struct Lists {
    main: Vec<Waiter>,
    aside: Vec<Waiter>,
    /// MCSCRN's, once it was written down.
    home: Option<u32>,
}

impl Lists {
    fn release(&mut self, rule: fn(&mut Self, u32, bool) -> Waiter, here: u32, drawn: bool) -> Option<Id> {
        let gone = self.main.iter().chain(&self.aside).filter(|waiter| waiter.gone).count();
        if gone > 0 && gone.is_multiple_of(SWEEP_AT as usize) {
            self.aside.retain(|waiter| !waiter.gone);
        }
        while !(self.main.is_empty() && self.aside.is_empty()) {
            let served = rule(self, here, drawn);
            if !served.gone {
                return Some(served.id);
            }
        }
        None
    }

    fn cna(&mut self, here: u32, drawn: bool) -> Waiter {
        let local = self.main.iter().position(|waiter| waiter.numa == here).filter(|_| !drawn);
        match local {
            Some(place) => self.aside.extend(self.main.drain(..place)),
            None => {
                self.aside.append(&mut self.main);
                std::mem::swap(&mut self.main, &mut self.aside);
            }
        }
        self.main.remove(0)
    }

    fn mcscr(&mut self, _: u32, drawn: bool) -> Waiter {
        match self.aside.last() {
            Some(&eldest) if drawn => {
                self.aside.pop();
                return eldest;
            }
            Some(_) if self.main.is_empty() => return self.aside.remove(0),
            _ => {}
        }
        if self.main.len() > 1 && !self.main[0].gone {
            self.aside.insert(0, self.main.remove(0));
        }
        self.main.remove(0)
    }

    fn mcscrn(&mut self, here: u32, drawn: bool) -> Waiter {
        let home = self.home.unwrap_or(here);
        if drawn && !self.aside.is_empty() {
            if !self.move_home(home) {
                return self.aside.pop().expect("somebody is aside");
            }
            return self.main.remove(0);
        }
        let is_remote = |waiter: &&Waiter| waiter.numa != home;
        let remote = self.main.iter().take_while(is_remote).count().min(self.main.len().saturating_sub(1));
        if remote > 0 {
            self.home = Some(home);
            self.aside.extend(self.main.drain(..remote));
        }
        match self.main.first() {
            Some(first) if first.numa == home => {
                if self.main.get(1).is_some_and(|second| second.numa == home) {
                    self.home = Some(home);
                    self.aside.insert(0, self.main.remove(0));
                }
                self.main.remove(0)
            }
            _ if self.aside.first().is_some_and(|first| first.numa == home) => {
                self.home = Some(home);
                self.aside.remove(0)
            }
            _ => {
                if !self.move_home(home) {
                    self.home = Some(self.main[0].numa);
                }
                self.main.remove(0)
            }
        }
    }

    /// Whether anybody was remote.
    fn move_home(&mut self, home: u32) -> bool {
        let new = self.aside.iter().find(|waiter| waiter.numa != home).map(|eldest| eldest.numa);
        self.home = Some(new.unwrap_or(home));
        let Some(new) = new else { return false };
        let (moved, rest): (Vec<_>, Vec<_>) = self.aside.drain(..).partition(|waiter| waiter.numa == new);
        let (passive, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|waiter| waiter.numa == home);
        self.aside = [others, passive].concat();
        self.main.splice(..0, moved);
        true
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

fn compare<S: Succession>(rule: fn(&mut Lists, u32, bool) -> Waiter) {
    let (script, mut lists) = (Script::<S>::new(), Lists::default());
    let mut arrived = 0;
    for _ in 0..STEPS {
        match any(10) {
            0..=3 if lists.main.len() + lists.aside.len() < 30 => {
                let numa: Vec<_> = (0..=any(3)).map(|_| NUMA[any(NUMA.len())]).collect();
                for &numa in &numa {
                    lists.main.push(Waiter { id: arrived, numa, gone: false });
                    arrived += 1;
                }
                if any(2) == 0 { script.arrive_singly(&numa) } else { script.arrive(&numa) }
            }
            4..=5 => {
                let waiters = lists.main.iter_mut().chain(&mut lists.aside);
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
        assert_eq!((script.main(), script.aside()), (Lists::ids(&lists.main), Lists::ids(&lists.aside)));
    }
    world().set_random(NO);
    script.drain();
}

#[test]
fn cna_against_plain_lists() {
    play("cna against lists", 300, &Tunables::DEFAULT, || compare::<SameNode>(Lists::cna));
}

#[test]
fn mcscr_against_plain_lists() {
    play("mcscr against lists", 300, &Tunables::DEFAULT, || compare::<Fewest>(Lists::mcscr));
}

#[test]
fn mcscrn_against_plain_lists() {
    play("mcscrn against lists", 300, &Tunables::DEFAULT, || compare::<FewestAtHome>(Lists::mcscrn));
}
