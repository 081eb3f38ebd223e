//! # What locks count where they wait
//!
//! Contended acquisitions, sleeps and wake-ups, each with the call that it goes with, for locks of all kinds. The
//! acquisitions themselves are counted by [`RawLock`](crate::parts::raw::RawLock).

use core::marker::PhantomData;

use crate::machine::event::Event;
use crate::machine::node::Node;
use crate::machine::{Deadline, Machine, TimedOut, Unparked};

/// Does something to the lock whose state is there. What it reports is [about](crate::machine::Listen::about) that
/// lock.
#[inline(always)]
pub fn about<M: Machine, S, R>(state: &S, act: impl FnOnce() -> R) -> R {
    let before = M::about(core::ptr::from_ref(state).addr());
    let result = act();
    M::about(before);
    result
}

/// An acquisition that may have to wait, in one place or in several. It counts as contended once.
pub struct Contention<M: Machine> {
    began: Option<u64>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Contention<M> {
    pub(crate) fn new() -> Self {
        Self { began: None, machine: PhantomData }
    }

    /// The acquisition has to wait.
    pub(crate) fn begin(&mut self) {
        if self.began.is_none() {
            M::trace(Event::Contended);
            self.began = Some(M::stamp());
        }
    }

    /// The acquisition has ended.
    pub(crate) fn end(self, how: Result<(), TimedOut>) -> Result<(), TimedOut> {
        match (how, self.began) {
            (Ok(()), Some(stamp)) => M::waited(stamp),
            (Ok(()), None) => {}
            (Err(_), _) => M::trace(Event::TimedOut),
        }
        how
    }
}

/// The wait of a thread that found a mutex held: measures how long `wait` takes, or counts that it gave up.
#[inline(always)]
pub fn contended<M: Machine>(wait: impl FnOnce() -> Result<(), TimedOut>) -> Result<(), TimedOut> {
    M::trace(Event::Contended);
    let stamp = M::stamp();
    wait().inspect(|()| M::waited(stamp)).inspect_err(|_| M::trace(Event::TimedOut))
}

/// The same for a wait that does not end without the lock, or without an answer.
#[inline(always)]
pub(crate) fn contended_patient<M: Machine, T>(wait: impl FnOnce() -> T) -> T {
    M::trace(Event::Contended);
    let stamp = M::stamp();
    let result = wait();
    M::waited(stamp);
    result
}

/// [`Waiting::park`](crate::machine::Waiting::park), counted.
#[inline(always)]
pub fn park<M: Machine>(word: &M::Word, expected: u32, until: Option<Deadline>) -> Unparked {
    M::trace(Event::Park);
    M::park(word, expected, until)
}

/// [`Waiting::wake`](crate::machine::Waiting::wake), counted.
#[inline(always)]
pub fn wake<M: Machine>(address: *const M::Word, count: u32) -> u32 {
    M::trace(Event::Wake);
    M::wake(address, count)
}

/// [`Waiting::unpark`](crate::machine::Waiting::unpark), counted.
#[inline(always)]
pub fn unpark<M: Machine>(node: &Node<M>) -> u32 {
    M::trace(Event::Wake);
    M::unpark(node)
}
