//! # The policy that the user chose
//!
//! `policy=` sets the policy of ShflLocks when the process starts. The walk looks the choice up when it asks the
//! policy. So on a path on which no thread waits, the choice costs nothing, and neither do the policies that are not
//! chosen.
//!
//! | `policy=` | policy | the next waiter is … |
//! |---|---|---|
//! | `numa` | [`SameNumaNode`] | one on the head's NUMA node; the default |
//! | `llc` | [`SameCache`] | one that shares the head's last-level cache |
//! | `levels` | [`NearestFirst`] | one that shares that cache, or else the nearest |
//! | `ahead` | [`ArrivalOrder`] | the one that came first, woken ahead |
//! | `cr` | [`FewAwake`] | the first one that is awake |
//! | `priority` | [`HighestFirst`] | the one with the highest priority |
//! | `none` | [`Untouched`] | the one that came first |

use crate::machine::Machine;
use crate::parts::policy::{
    Admission, ArrivalOrder, FewAwake, HighestFirst, NearestFirst, Place, SameCache, SameNumaNode, Untouched, Waiter,
};

/// The user's choice (`policy=`) among the policies in the table.
pub struct Chosen;

impl Chosen {
    /// Whether this choice needs [`Division::Llc`](crate::machine::Division::Llc) and
    /// [`Special::distance`](crate::machine::Special::distance): a machine may want to find these out first.
    pub fn asks_where(policy: u32) -> bool {
        NAMES.get(policy as usize).is_some_and(|name| matches!(*name, "llc" | "levels"))
    }
}

macro_rules! define_chosen {
    ($($index:literal => $name:literal: $policy:ident,)+) => {
        /// The names that `policy=` takes; the first is the default.
        pub const NAMES: &[&str] = &[$($name),+];

        /// Asks the policy with the chosen index.
        impl Admission for Chosen {
            fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
                match M::tunables().policy {
                    $($index => $policy::place(shuffler, waiter),)+
                    _ => Place::Stay,
                }
            }

            fn insists<M: Machine>(waiter: Waiter<'_, M>) -> bool {
                match M::tunables().policy {
                    $($index => $policy::insists(waiter),)+
                    _ => false,
                }
            }

            fn role<M: Machine>() -> u32 {
                match M::tunables().policy {
                    $($index => $policy::role::<M>(),)+
                    _ => 0,
                }
            }

            fn walks<M: Machine>(at_front: bool) -> bool {
                match M::tunables().policy {
                    $($index => $policy::walks::<M>(at_front),)+
                    _ => false,
                }
            }

            fn finishes<M: Machine>() -> bool {
                match M::tunables().policy {
                    $($index => $policy::finishes::<M>(),)+
                    _ => false,
                }
            }

            fn wakes<M: Machine>(shuffler: Waiter<'_, M>, tuned: u32) -> u32 {
                match M::tunables().policy {
                    $($index => $policy::wakes(shuffler, tuned),)+
                    _ => 0,
                }
            }
        }

        #[cfg(test)]
        const INDICES: &[u32] = &[$($index),+];
    };
}

// A new policy is its file, a `mod` in `parts/policy/mod.rs`, a row here, and one more in the range of the option
// `policy`.
define_chosen! {
    0 => "numa": SameNumaNode,
    1 => "llc": SameCache,
    2 => "levels": NearestFirst,
    3 => "ahead": ArrivalOrder,
    4 => "cr": FewAwake,
    5 => "priority": HighestFirst,
    6 => "none": Untouched,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bench::choose;
    use crate::parts::shuffle::bench::{Waiter, shuffled};

    #[test]
    fn names_and_indices_are_one_list() {
        assert!(INDICES.iter().zip(0..).all(|(index, place)| *index == place) && INDICES.len() == NAMES.len());
    }

    #[test]
    fn each_name_is_its_policy() {
        // They queued under `numa`, so their role is 0: `llc` and `levels` see one cache, and the head of `priority`
        // sees equals.
        let queue =
            [Waiter::on(0), Waiter::on(1), Waiter { asleep: true, ..Waiter::on(1) }, Waiter::on(0), Waiter::on(1)];
        let shuffled = |name| {
            choose(NAMES.iter().position(|known| *known == name).expect("a name") as u32);
            shuffled::<Chosen>(&queue)
        };
        assert_eq!(shuffled("numa"), [0, 3, 1, 2, 4]);
        for name in ["llc", "levels", "ahead", "cr", "priority", "none"] {
            assert_eq!(shuffled(name), [0, 1, 2, 3, 4], "{name}");
        }
    }
}
