//! The events to come, in order of time.
//!
//! A heap with four children per event, so that the way down is short. Taking the first event leaves a gap at the top,
//! which the next pushed event fills. Mostly, the acting thread makes one event before the next one is taken, so there
//! is only one walk down the heap.

use super::What;
use crate::Ps;

/// An event. Events of the same time are in the order in which they were made.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: Ps,
    number: u64,
    what: What,
}

impl Event {
    /// The sort key.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.number)
    }

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self.key() < other.key()
    }
}

const CHILDREN: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Events {
    /// No event is earlier than its parent, which is at `(at - 1) / CHILDREN`.
    heap: Vec<Event>,
    /// Whether the first event has been taken and its place not yet filled.
    gap: bool,
    /// The index of the next event, if there is one: the top, or one of its children if there is a gap.
    next: usize,
    made: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: Ps, what: What) {
        self.made += 1;
        let event = Event { at, number: self.made, what };
        if self.gap {
            return self.fill(event);
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

    /// The time of the first event.
    #[inline]
    pub(super) fn first(&self) -> Option<Ps> {
        self.heap.get(self.next).map(|event| event.at)
    }

    /// All events, in any order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = What> {
        self.heap.iter().skip(usize::from(self.gap)).map(|event| event.what)
    }

    /// Takes the first event.
    pub(super) fn pop(&mut self) -> Option<(Ps, What)> {
        if self.gap {
            let last = self.heap.pop()?;
            if self.heap.is_empty() {
                (self.gap, self.next) = (false, 0);
            } else {
                self.fill(last);
            }
        }
        let first = self.heap.first()?;
        let taken = (first.at, first.what);
        self.gap = true;
        self.next = first_child(&self.heap, 0).unwrap_or(self.heap.len());
        Some(taken)
    }

    /// (gap) -> (none). The event takes the first place, or that of its earliest child, and so on down.
    fn fill(&mut self, event: Event) {
        let heap = &mut self.heap[..];
        let (mut place, mut least) = (0, Some(self.next).filter(|&next| next < heap.len()));
        while let Some(child) = least.filter(|&child| heap[child].is_before(&event)) {
            heap[place] = heap[child];
            place = child;
            least = first_child(heap, place);
        }
        heap[place] = event;
        (self.gap, self.next) = (false, 0);
    }
}

/// The index of the earliest child of the event at this place.
#[inline]
fn first_child(heap: &[Event], place: usize) -> Option<usize> {
    let first = CHILDREN * place + 1;
    let earlier =
        |(a, event): (usize, u128), (b, other): (usize, u128)| if other < event { (b, other) } else { (a, event) };
    let children = heap.get(first..)?;
    let Some([a, b, c, d]) = children.first_chunk::<CHILDREN>() else {
        return (first..).zip(children.iter().map(Event::key)).reduce(earlier).map(|(at, _)| at);
    };
    // Two comparisons at once, and a third.
    let one = earlier((first, a.key()), (first + 1, b.key()));
    let other = earlier((first + 2, c.key()), (first + 3, d.key()));
    Some(earlier(one, other).0)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pushes and pops at random times: each pop returns what a sorted list returns.
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
