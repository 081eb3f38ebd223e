//! What is to happen, and when.
//!
//! A heap with four children to each event, so that the way down is short. What has just been taken leaves a gap at the
//! top, into which the next event to come goes: who acts mostly makes one event before the next one is taken, and its
//! way down is then the only one.

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
    /// Events are in order of this.
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
    /// No event is before its parent, which that at `(at - 1) / CHILDREN` is.
    heap: Vec<Event>,
    /// Whether the first one has been taken, and its place is to be filled.
    gap: bool,
    /// Where the one is that comes next, if there is one: at the top, or among its children if there is a gap.
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

    /// The time of the first one.
    #[inline]
    pub(super) fn first(&self) -> Option<Ps> {
        self.heap.get(self.next).map(|event| event.at)
    }

    /// All of them, in any order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = What> {
        self.heap.iter().skip(usize::from(self.gap)).map(|event| event.what)
    }

    /// Takes the first one.
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

    /// (gap) -> (none). An event takes the first place, or that of the first of its children, and so on down.
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

/// Where the first of the children is of the one in that place.
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
