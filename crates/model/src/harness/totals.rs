//! What happened in the executions of a model.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flashlock_locks::machine::event::Event;

use crate::arena::TOO_SMALL;
use crate::checker::Checker;
use crate::world::{NO_WORLD, World};

/// What happened in all executions of a model together.
pub struct Totals {
    /// The number of executions.
    pub executions: usize,
    events: Vec<u64>,
}

impl Totals {
    pub(crate) fn counters() -> Vec<AtomicU64> {
        Event::ALL.iter().map(|_| AtomicU64::new(0)).collect()
    }

    pub(crate) fn add<C: Checker>(counters: &[AtomicU64], world: &World<C>) {
        for (&event, counter) in Event::ALL.iter().zip(counters) {
            counter.fetch_add(u64::from(world.events(event)), Relaxed);
        }
    }

    pub(crate) fn new(counters: &[AtomicU64]) -> Self {
        Self { executions: 0, events: counters.iter().map(|counter| counter.load(Relaxed)).collect() }
    }

    /// How often an event happened.
    pub fn of(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Panics if one of the events never happened: then the model does not show what it is meant to show.
    pub fn shows(&self, events: &[Event]) {
        for &event in events {
            assert!(self.of(event) > 0, "no execution showed {event:?}");
        }
    }
}

/// A seeded bug that was found.
#[derive(Debug)]
pub struct Found {
    /// The execution that found it.
    pub executions: usize,
    /// What the checker said.
    pub message: String,
}

impl Found {
    pub(crate) fn report(name: &str, checker: &str, executions: usize, message: String) -> Self {
        let line = message.lines().next().unwrap_or_default();
        // What says nothing about a bug: the checker's limits, and mistakes of a model.
        let gave_up = ["exceeded maximum number of branches", "exceeded max_steps", TOO_SMALL, NO_WORLD];
        assert!(!gave_up.iter().any(|&limit| line.contains(limit)), "{name}: {checker} gave up: {line}");
        println!("found: {name} | {checker} | {executions} | {line}");
        Self { executions, message }
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)").to_owned()
}
