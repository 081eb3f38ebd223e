//! # The policy that the user chose
//!
//! `policy=` sets the policy of ShflLocks when the process starts. The walk looks the choice up when it asks the
//! policy. So on a path on which no thread waits, the choice costs nothing, and neither do the policies that are not
//! chosen. [`PolicyId`] lists the policies; `docs/policies.md` says when to use which.

use crate::machine::Machine;
use crate::parts::policy::*; // All of them.

/// Calls `$use` with every policy: which waiter is next, the name that `policy=` takes, and the type. The first is the
/// default. A new policy is its file, named in `parts/policy/mod.rs`, and a row here.
macro_rules! for_each_policy {
    ($use:ident) => {
        $use! {
            /// one on the head's NUMA node; the default
            "numa": SameNumaNode,
            /// one that shares the head's last-level cache
            "llc": SameCache,
            /// one that shares that cache, or else the nearest
            "levels": NearestFirst,
            /// the one that came first, woken ahead
            "ahead": ArrivalOrder,
            /// the first one that is awake
            "cr": FewAwake,
            /// the one with the highest priority
            "priority": HighestFirst,
            /// the one that came first
            "none": Untouched,
        }
    };
}

/// The user's choice (`policy=`) among the policies that [`PolicyId`] names.
pub struct Chosen;

macro_rules! define_chosen {
    ($($(#[$next:meta])+ $name:literal: $policy:ident,)+) => {
        /// Names a policy by the type that implements it. The next waiter is …
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum PolicyId {
            $(#[doc = concat!("`", $name, "`:")] $(#[$next])+ $policy),+
        }

        /// The names that `policy=` takes; the first is the default.
        pub const NAMES: &[&str] = &[$($name),+];

        /// The numbers of the policies, to match.
        #[allow(non_upper_case_globals)]
        mod number {
            use super::PolicyId;

            $(pub(super) const $policy: u32 = PolicyId::$policy as u32;)+
        }

        impl Chosen {
            /// The [`Admission::ASKS_WHERE`] of this choice.
            pub fn asks_where(policy: u32) -> bool {
                match policy {
                    $(number::$policy => $policy::ASKS_WHERE,)+
                    _ => false,
                }
            }
        }

        /// Asks the policy with the chosen number.
        impl Admission for Chosen {
            fn place<M: Machine>(shuffler: Waiter<'_, M>, waiter: Waiter<'_, M>) -> Place {
                match M::tunables().policy {
                    $(number::$policy => $policy::place(shuffler, waiter),)+
                    _ => Place::Stay,
                }
            }

            fn insists<M: Machine>(waiter: Waiter<'_, M>) -> bool {
                match M::tunables().policy {
                    $(number::$policy => $policy::insists(waiter),)+
                    _ => false,
                }
            }

            fn role<M: Machine>() -> u32 {
                match M::tunables().policy {
                    $(number::$policy => $policy::role::<M>(),)+
                    _ => 0,
                }
            }

            fn walks<M: Machine>(at_front: bool) -> bool {
                match M::tunables().policy {
                    $(number::$policy => $policy::walks::<M>(at_front),)+
                    _ => false,
                }
            }

            fn finishes<M: Machine>() -> bool {
                match M::tunables().policy {
                    $(number::$policy => $policy::finishes::<M>(),)+
                    _ => false,
                }
            }

            fn wakes<M: Machine>(shuffler: Waiter<'_, M>, tuned: u32) -> u32 {
                match M::tunables().policy {
                    $(number::$policy => $policy::wakes(shuffler, tuned),)+
                    _ => 0,
                }
            }
        }
    };
}

for_each_policy!(define_chosen);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bench::choose;
    use crate::parts::shuffle::bench::{Waiter, shuffled};

    /// Each name and number is that policy's: the choice makes the same of a queue.
    #[test]
    fn each_choice_is_its_policy() {
        let queue = [
            Waiter::of(0, 5),
            Waiter::of(1, 5),
            Waiter { asleep: true, ..Waiter::of(1, 3) },
            Waiter::of(0, 7),
            Waiter::of(1, 5),
        ];
        macro_rules! check {
            ($($(#[$next:meta])+ $name:literal: $policy:ident,)+) => {$(
                assert_eq!(NAMES[PolicyId::$policy as usize], $name);
                choose(PolicyId::$policy as u32);
                assert_eq!(shuffled::<Chosen>(&queue), shuffled::<$policy>(&queue), $name);
            )+};
        }
        for_each_policy!(check);
        choose(PolicyId::SameNumaNode as u32);
        assert_eq!(shuffled::<Chosen>(&queue), [0, 3, 1, 2, 4]);
        choose(PolicyId::Untouched as u32);
        assert_eq!(shuffled::<Chosen>(&queue), [0, 1, 2, 3, 4]);
    }
}
