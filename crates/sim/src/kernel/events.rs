//! What is to happen, and when.
//!
//! A heap with four children to each event, so that the way down is short. What has just been taken leaves a gap at the top, into which
//! the next event to come goes: who acts mostly makes one event before the next one is taken, and its way down is then the only one.

use super::What;
use crate::Ps;

/// At a time, the events of that time in the order in which they were made.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: Ps,
    number: u64,
    what: What,
}

impl Event {
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        (self.at, self.number) < (other.at, other.number)
    }
}

const CHILDREN: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// No event is before its parent, which that at `(at - 1) / CHILDREN` is.
    heap: Vec<Event>,
    /// Whether the first one has been taken, and its place is to be filled.
    gap: bool,
    made: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: Ps, what: What) {
        self.made += 1;
        let event = Event { at, number: self.made, what };
        if std::mem::take(&mut self.gap) {
            return self.sink(event);
        }
        let mut place = self.heap.len();
        self.heap.push(event);
        while let Some(parent) = place.checked_sub(1).map(|below| below / CHILDREN) {
            if !event.is_before(&self.heap[parent]) {
                break;
            }
            self.heap[place] = self.heap[parent];
            place = parent;
        }
        self.heap[place] = event;
    }

    /// The time of the first one.
    #[inline]
    pub(super) fn first(&self) -> Option<Ps> {
        if !self.gap {
            return self.heap.first().map(|event| event.at);
        }
        let children = &self.heap[1..self.heap.len().min(1 + CHILDREN)];
        children.iter().map(|event| event.at).min()
    }

    /// Takes the first one.
    pub(super) fn pop(&mut self) -> Option<(Ps, What)> {
        if std::mem::take(&mut self.gap) {
            let last = self.heap.pop()?;
            if !self.heap.is_empty() {
                self.sink(last);
            }
        }
        let first = self.heap.first()?;
        self.gap = true;
        Some((first.at, first.what))
    }

    /// An event takes the first place, or that of the first of its children, and so on down.
    fn sink(&mut self, event: Event) {
        let heap = &mut self.heap[..];
        let mut place = 0;
        loop {
            let children = CHILDREN * place + 1;
            let Some(least) = (children..heap.len().min(children + CHILDREN))
                .reduce(|least, other| if heap[other].is_before(&heap[least]) { other } else { least })
                .filter(|&least| heap[least].is_before(&event))
            else {
                break;
            };
            heap[place] = heap[least];
            place = least;
        }
        heap[place] = event;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pushes at some time from now, and pops, in any order: each pop gives what a sorted list gives.
        #[test]
        fn the_first_one_comes_first(steps in vec(prop::option::weighted(0.55, 0_u64..20), 1..400)) {
            let (mut events, mut sorted, mut now) = (Events::default(), Vec::new(), 0);
            for (number, step) in (0..).zip(steps.into_iter().chain([None; 400])) {
                prop_assert_eq!(events.first(), sorted.iter().min().map(|&(at, _)| at));
                match step {
                    Some(later) => {
                        events.push(now + later, What::Slice(number, 0));
                        sorted.push((now + later, number));
                    }
                    None => {
                        let first = sorted.iter().min().copied();
                        sorted.retain(|event| Some(*event) != first);
                        prop_assert_eq!(events.pop(), first.map(|(at, number)| (at, What::Slice(number, 0))));
                        now = first.map_or(now, |(at, _)| at);
                    }
                }
            }
            prop_assert_eq!(events.pop(), None);
        }
    }
}
