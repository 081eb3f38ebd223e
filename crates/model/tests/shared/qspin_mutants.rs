//! CNA in the kernel's lock with one bug each.

use std::sync::atomic::Ordering::Relaxed;

use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{Handle, Machine, Word as _};
use flashlock_locks::mutex::numa::qspin_cna::{NodeFirst, Order};
use flashlock_locks::mutex::queue::qspin::QspinLock;
use flashlock_locks::mutex::queue::qspin::line::{Line, Succession};
use flashlock_locks::parts::queue::link::Link;
use flashlock_locks::parts::wait::Park;

/// A lock with the succession `S`, which has a bug.
pub(crate) type MutantQspin<S> = QspinLock<S, Park>;

macro_rules! mutant {
    ($(#[$doc:meta])* $name:ident { $($changed:item)* } keeps $($kept:ident)*) => {
        $(#[$doc])*
        pub(crate) struct $name;
        // SAFETY: none; a seeded bug: see `flashlock_model::arena::handle_in`.
        unsafe impl Succession for $name {
            type Order = Order;
            $($changed)*
            $(mutant!(@ $kept);)*
        }
    };
    (@ rest) => {
        fn unordered(front: Handle) -> Order {
            NodeFirst::unordered(front)
        }
        fn arrive<M: Machine>(node: &Node<M>) -> Option<u32> {
            NodeFirst::arrive(node)
        }
        fn begin<M: Machine>(first: &Node<M>) {
            NodeFirst::begin(first);
        }
    };
    (@ inherit) => {
        fn inherit<M: Machine>(from: &Node<M>, to: &Node<M>) {
            NodeFirst::inherit(from, to);
        }
    };
    (@ order) => {
        fn order<M: Machine>(line: Line<'_, M>, head: Handle) -> Order {
            NodeFirst::order(line, head)
        }
    };
    (@ secondary_ends) => {
        fn secondary_ends<M: Machine>(front: &Node<M>) -> Option<(Link, Handle)> {
            NodeFirst::secondary_ends(front)
        }
    };
    (@ choose) => {
        fn choose<M: Machine>(line: Line<'_, M>, front: Handle, next: Link, order: Order) -> Link {
            NodeFirst::choose(line, front, next, order)
        }
    };
}

mutant! {
    /// Takes only the first of the secondary queue back.
    DropsElsewhere {
        fn secondary_ends<M: Machine>(front: &Node<M>) -> Option<(Link, Handle)> {
            NodeFirst::secondary_ends(front).map(|(first, _)| (first, first.to()))
        }
    } keeps rest inherit order choose
}

mutant! {
    /// Opens the circle before it is known what to restore.
    #[allow(dead_code, reason = "for loom: shuttle does not find it")]
    DoesNotRestore {
        fn secondary_ends<M: Machine>(front: &Node<M>) -> Option<(Link, Handle)> {
            let (first, last) = NodeFirst::secondary_ends(front)?;
            last.node::<M>().next.store(0, Relaxed);
            Some((first, last))
        }
    } keeps rest inherit order choose
}

mutant! {
    /// Tells the next head nothing of the secondary queue.
    ForgetsThem {
        fn choose<M: Machine>(line: Line<'_, M>, front: Handle, next: Link, order: Order) -> Link {
            let chosen = NodeFirst::choose(line, front, next, order);
            chosen.to().node::<M>().prev.store(0, Relaxed);
            chosen
        }
    } keeps rest inherit order secondary_ends
}

mutant! {
    /// A joiner that inherits the front does not look at what it carries.
    InheritsNothing {
        fn inherit<M: Machine>(_: &Node<M>, to: &Node<M>) {
            NodeFirst::begin(to);
        }
    } keeps rest order secondary_ends choose
}
