//! # The machine on top of a checker

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::event::Event;
use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{
    Beside, Blocks, Deadline, Division, Handle, Kept, Listen, Machine, Memory, Patience, Pause, Special, Time,
    Topology, Tunables, Unparked, Waiting, Word as _,
};

use crate::checker::Checker;
use crate::kernel;
use crate::word::{Field, Word};
use crate::world::{Fault, World};

/// How long an offer of the CPU takes, in µs.
const OFFER: u32 = 101;

/// The machine that runs the locks under checker `C`. All its state is in the [`World`] of the running execution.
pub struct Model<C: Checker>(PhantomData<C>);

impl<C: Checker> Memory for Model<C> {
    type Word = Word<C>;

    fn node(handle: Handle) -> &'static Node<Self> {
        World::<C>::current(|world| world.arena.node(handle))
    }

    unsafe fn take_node() -> Handle {
        World::<C>::get().arena.take()
    }

    fn give_node(handle: Handle) {
        World::<C>::get().arena.give(handle);
    }

    fn epoch() -> u32 {
        World::<C>::current(World::epoch)
    }

    /// It forgets the value that is not a thread's.
    fn kept<R>(which: Kept, act: impl FnOnce(&Cell<u32>) -> R) -> R {
        match which {
            Kept::RecentStall => act(&Cell::new(0)),
            _ => World::<C>::current(|world| world.kept(which, act)),
        }
    }

    /// One for all locks.
    fn beside(which: Beside, _lock: *const Word<C>) -> &'static Word<C> {
        World::<C>::current(|world| match which {
            Beside::LeftBehind => world.arena.left().0,
            Beside::Drain => world.arena.drain_word(),
            Beside::Distributed => world.arena.distributed(),
        })
    }
}

impl<C: Checker> Blocks for Model<C> {
    fn block(name: Name) -> &'static Block<Self> {
        World::<C>::current(|world| world.arena.block(name))
    }

    unsafe fn take_block() -> Name {
        World::<C>::get().arena.take_block()
    }

    fn give_block(name: Name) {
        World::<C>::get().arena.give_block(name);
    }
}

impl<C: Checker> Time for Model<C> {
    fn expired(deadline: &Deadline) -> bool {
        World::<C>::get().expired(deadline)
    }

    fn sooner(_micros: u32, other: Option<Deadline>) -> Deadline {
        World::<C>::current(|world| world.sooner(other))
    }

    fn micros() -> u32 {
        World::<C>::current(World::micros)
    }
}

impl<C: Checker> Waiting for Model<C> {
    /// Looks at least once, even if the patience is spent.
    fn spin_until(
        word: &Word<C>,
        order: Ordering,
        patience: Patience,
        mut done: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let world = World::<C>::get();
        let mut polls = 0;
        loop {
            world.maybe_freeze();
            let seen = word.load(order);
            if done(seen) {
                return Some(seen);
            }
            polls += 1;
            match patience {
                Patience::Budget | Patience::Contend if polls >= world.setup.polls => return None,
                Patience::Until(deadline) if world.expired(&deadline) => return None,
                Patience::Forever | Patience::Budget | Patience::Contend | Patience::Until(_) => C::yield_now(),
            }
        }
    }

    /// An offer is not a nap, and no other thread need run meanwhile. It takes time, even where time stands still
    /// otherwise. So a waiter that offers its CPU for a given number of µs finishes.
    fn pause(how: Pause) {
        let world = World::<C>::get();
        match how {
            Pause::Steps(_) if !world.setup.pauses => {}
            Pause::Offer => world.offer(OFFER),
            Pause::Nap(_) if world.setup.still => kernel::nap(&world),
            Pause::Steps(_) | Pause::Nap(_) => C::yield_now(),
        }
    }

    fn park(word: &Word<C>, expected: u32, until: Option<Deadline>) -> Unparked {
        kernel::park(&World::get(), word, expected, until)
    }

    fn wake(address: *const Word<C>, count: u32) -> u32 {
        kernel::wake(&World::get(), address, count)
    }

    fn requeue(node: &Node<Self>, address: *const Word<C>) {
        kernel::requeue(&World::get(), &node.state, address);
    }

    fn crowded() -> bool {
        World::<C>::current(|world| world.setup.crowded)
    }
}

impl<C: Checker> Topology for Model<C> {
    fn numa_node() -> u32 {
        World::<C>::current(World::numa)
    }

    fn part(of: Division) -> u32 {
        match of {
            Division::Groups { depth } => World::<C>::current(|world| world.near(depth)),
            Division::Llc | Division::Readers => Self::numa_node(),
        }
    }
}

impl<C: Checker> Listen for Model<C> {
    fn trace(event: Event) {
        World::<C>::current(|world| world.count(event));
    }
}

impl<C: Checker> Special for Model<C> {
    unsafe fn any_node(look: impl FnMut(Handle) -> bool) -> bool {
        let world = World::<C>::get();
        let blind = world.setup.fault == Some(Fault::ShortSight);
        let handles = if blind { Vec::new() } else { world.arena.ever_taken() };
        handles.into_iter().any(look)
    }

    fn is_there(word: &Word<C>) -> bool {
        !word.is(Field::Freed)
    }

    /// 0: a patience derived from it is the shortest that the algorithm allows, and one offer ends it.
    fn sleep_cost() -> u32 {
        0
    }

    fn light_fence() {
        if World::<C>::current(|world| world.setup.fault != Some(Fault::NoLightFence)) {
            C::fence();
        }
    }

    fn heavy_fence() {
        if World::<C>::current(|world| world.setup.fault != Some(Fault::NoHeavyFence)) {
            C::fence();
        }
    }

    fn priority() -> i32 {
        World::<C>::current(World::priority)
    }
}

// SAFETY: the checkers' atomics (1); the arena hands out free pieces only (2); the kernel's loop (3).
unsafe impl<C: Checker> Machine for Model<C> {
    fn random() -> u32 {
        World::<C>::current(|world| world.random.get()).unwrap_or_else(C::random)
    }

    fn tunables() -> &'static Tunables {
        World::<C>::current(|world| world.setup.tunables)
    }
}
