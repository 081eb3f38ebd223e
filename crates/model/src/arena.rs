//! # The arena: an execution's queue nodes, and blocks
//!
//! In a model, algorithms take queue nodes and blocks from here instead of from the pools. Its books are exact: a node
//! or block that is given back twice, or never, is a failure.
//!
//! ## Invariants
//! 1. An arena lives as long as its world, and the world as long as its execution. The thread that set up the world
//!    takes it down. It does so after it has joined all other threads, or after the checker has given up the execution
//!    and runs none of them any more.
//! 2. Algorithms keep no node beyond the call that named it. (The `&'static` in `Memory::node` is a promise of the
//!    native pool; here it holds for the execution.)
//! 3. Nodes never move: they are in a boxed slice. Nor do blocks: each is created when first needed, in its own box. So
//!    are nodes, in their places, where the checker does not mind ([`Checker::NODES_ARE_READY`]).

use std::cell::{OnceCell, RefCell};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flashlock_locks::machine::block::{Block, Name};
use flashlock_locks::machine::node::Node;
use flashlock_locks::machine::{Handle, Memory, Word as _};
use flashlock_locks::parts::queue::link::Link;
use flashlock_locks::parts::shuffle::front::named_word;
use flashlock_locks::parts::wait::left::LeftBehind;

use crate::Model;
use crate::checker::Checker;
use crate::tag::Tag;
use crate::word::{Field, Word};

/// What a model says that takes more nodes than its [`Setup`](crate::Setup) has.
pub(crate) const TOO_SMALL: &str = "the model's arena is too small";

/// Handles 0 and 1 name no node.
const OFFSET: u32 = Handle::RESERVED + 1;

/// The nodes of an execution.
pub struct Arena<C: Checker> {
    nodes: Box<[OnceCell<Node<Model<C>>>]>,
    blocks: RefCell<Vec<Box<Block<Model<C>>>>>,
    /// The count of nodes left behind of all locks, which have no room for their own. It does not move either.
    left: Box<Word<C>>,
    /// The drain word of all locks, on which writers wait for readers to leave. It does not move either.
    drain: Box<Word<C>>,
    /// How many locks use distributed counters. It does not move either.
    distributed: Box<Word<C>>,
    books: RefCell<Books>,
    /// Orders a `give` before the `take` that gets the same node, like the pool's free list.
    order: C::Atomic,
    recycles: bool,
}

/// A node of the pool, whose words are marked with their purpose.
fn new_node<C: Checker>() -> Node<Model<C>> {
    // SAFETY: it joins the pool.
    let node = unsafe { Node::new() };
    node.tag();
    node
}

/// The handle of the node with this number.
fn handle(index: u32) -> Handle {
    handle_in(index + OFFSET).expect("the handle of a node")
}

/// The handle in a word, or `None` if it holds none: for tests that look at the queue, and for seeded bugs. Here safe
/// code may have handles. Whatever it does with them, memory stays intact: the arena checks each handle, and the
/// checkers watch the data that locks protect.
pub fn handle_in(word: u32) -> Option<Handle> {
    // SAFETY: nothing rests on the invariants that a seeded bug breaks.
    unsafe { Handle::new(word) }
}

/// The same for a link to a waiter.
pub fn link_in(word: u32) -> Option<Link> {
    // SAFETY: as for `handle_in`.
    unsafe { Link::in_word(word) }
}

/// The waiter that the `head` of a [`ShflQueue`](flashlock_locks::parts::shuffle::ShflQueue) names.
pub fn named(head: u32) -> Option<Handle> {
    handle_in(named_word(head))
}

/// The same for the name of a block.
pub fn name_in(word: u32) -> Option<Name> {
    // SAFETY: as for `handle_in`.
    unsafe { Name::new(word) }
}

/// [`Memory::take_node`], in the same way.
pub fn take_node<M: Memory>() -> Handle {
    // SAFETY: as for `handle_in`.
    unsafe { M::take_node() }
}

struct Books {
    free: Vec<u32>,
    taken: Vec<bool>,
    /// How many nodes were taken in total.
    takes: u32,
    free_blocks: Vec<u32>,
    taken_blocks: Vec<bool>,
    /// One plus the highest index that was ever taken. Nodes are taken in order, lowest first.
    most: u32,
    /// Whether threads that held blocks may have vanished.
    lost_blocks: bool,
}

impl<C: Checker> Arena<C> {
    /// An arena of `nodes` nodes. Unless it `recycles`, each node is used only once, which keeps models small.
    pub fn new(nodes: u32, recycles: bool) -> Self {
        let nodes: Box<[_]> = (0..nodes).map(|_| OnceCell::new()).collect();
        if C::NODES_ARE_READY {
            for place in &nodes {
                place.get_or_init(new_node);
            }
        }
        let free = (0..nodes.len() as u32).rev().collect();
        let books = RefCell::new(Books {
            free,
            taken: vec![false; nodes.len()],
            takes: 0,
            most: 0,
            free_blocks: Vec::new(),
            taken_blocks: Vec::new(),
            lost_blocks: false,
        });
        let drain = Box::new(Word::new(0));
        drain.tag(Field::Drain);
        let blocks = RefCell::default();
        let [left, distributed] = [Box::new(Word::new(0)), Box::new(Word::new(0))];
        Self { nodes, blocks, left, drain, distributed, books, order: C::Atomic::new(0), recycles }
    }

    /// The count of nodes left behind.
    pub fn left(&self) -> LeftBehind<Model<C>> {
        let left: *const Word<C> = &raw const *self.left;
        // SAFETY: as for nodes.
        LeftBehind(unsafe { &*left })
    }

    /// The word that readers change when they have left.
    pub fn drain_word(&self) -> &'static Word<C> {
        let drain: *const Word<C> = &raw const *self.drain;
        // SAFETY: as for nodes.
        unsafe { &*drain }
    }

    /// How many locks use distributed counters.
    pub fn distributed(&self) -> &'static Word<C> {
        let distributed: *const Word<C> = &raw const *self.distributed;
        // SAFETY: as for nodes.
        unsafe { &*distributed }
    }

    /// The node that a handle names.
    pub fn node(&self, handle: Handle) -> &'static Node<Model<C>> {
        let place = &self.nodes[(handle.word() - OFFSET) as usize];
        let node: *const Node<Model<C>> = place.get_or_init(new_node);
        // SAFETY: the node does not move (invariant 3), and no thread uses it after the execution (invariants 1 and 2).
        unsafe { &*node }
    }

    /// The node that contains a word, and the word's index in it.
    pub(crate) fn holding(&self, word: &Word<C>) -> Option<(Handle, usize)> {
        let address = |node| std::ptr::from_ref::<Node<Model<C>>>(node) as usize;
        let word = std::ptr::from_ref(word) as usize;
        let index = word.checked_sub(self.nodes.as_ptr() as usize)? / size_of::<OnceCell<Node<Model<C>>>>();
        let rest = word.checked_sub(address(self.nodes.get(index)?.get()?))?;
        Some((handle(index as u32), rest / size_of::<Word<C>>()))
    }

    /// Takes a free node.
    pub fn take(&self) -> Handle {
        if self.recycles {
            self.order.fetch_add(0, Acquire);
        }
        let mut books = self.books.borrow_mut();
        let index = books.free.pop().expect(TOO_SMALL);
        books.taken[index as usize] = true;
        books.takes += 1;
        books.most = books.most.max(index + 1);
        handle(index)
    }

    /// Takes a node back.
    pub fn give(&self, handle: Handle) {
        let index = handle.word() - OFFSET;
        {
            let mut books = self.books.borrow_mut();
            let taken = std::mem::replace(&mut books.taken[index as usize], false);
            assert!(taken, "node {index} was given back twice");
        }
        if self.recycles {
            // So that assertions do not mistake the node's past role for its present one.
            self.node(handle).batch.store(0, Relaxed);
            self.order.fetch_add(1, Release);
            self.books.borrow_mut().free.push(index);
        }
    }

    /// The block with this name.
    pub fn block(&self, name: Name) -> &'static Block<Model<C>> {
        let block: *const Block<Model<C>> = &raw const *self.blocks.borrow()[(name.word() - 1) as usize];
        // SAFETY: as for nodes.
        unsafe { &*block }
    }

    /// Takes a free block.
    pub fn take_block(&self) -> Name {
        if self.recycles {
            self.order.fetch_add(0, Acquire);
        }
        let again = self.books.borrow_mut().free_blocks.pop();
        let index = again.unwrap_or_else(|| {
            // SAFETY: it joins the pool.
            let block = Box::new(unsafe { Block::new() });
            block.tag();
            let mut blocks = self.blocks.borrow_mut();
            blocks.push(block);
            self.books.borrow_mut().taken_blocks.push(false);
            blocks.len() as u32 - 1
        });
        self.books.borrow_mut().taken_blocks[index as usize] = true;
        name_in(index + 1).expect("the name of a block")
    }

    /// Takes a block back.
    pub fn give_block(&self, name: Name) {
        let index = name.word() - 1;
        {
            let mut books = self.books.borrow_mut();
            let taken = std::mem::replace(&mut books.taken_blocks[index as usize], false);
            assert!(taken || books.lost_blocks, "block {index} was given back twice");
        }
        if self.recycles {
            self.order.fetch_add(1, Release);
            self.books.borrow_mut().free_blocks.push(index);
        }
    }

    /// Marks these blocks as freed memory, unless blocks are reused.
    pub fn bar(&self, blocks: &[Name]) {
        for block in blocks.iter().filter(|_| !self.recycles).map(|&block| self.block(block)) {
            block.free();
        }
    }

    /// Forgets what is taken: the threads that took nodes and blocks no longer exist. They will not be given back, nor
    /// taken again.
    pub(crate) fn forget(&self) {
        let mut books = self.books.borrow_mut();
        books.taken.fill(false);
        books.lost_blocks = true;
    }

    /// How many nodes and blocks are taken at present.
    pub fn in_use(&self) -> usize {
        let books = self.books.borrow();
        let blocks = if books.lost_blocks { &[][..] } else { &books.taken_blocks };
        books.taken.iter().chain(blocks).filter(|&&taken| taken).count()
    }

    /// How many nodes were taken in total.
    pub fn takes(&self) -> u32 {
        self.books.borrow().takes
    }

    /// The handles of all nodes that were ever taken.
    pub fn ever_taken(&self) -> Vec<Handle> {
        let most = self.books.borrow().most;
        (0..most).map(handle).collect()
    }

    /// The handles of the nodes that are taken at present.
    pub fn taken(&self) -> Vec<Handle> {
        let books = self.books.borrow();
        let named = books.taken.iter().enumerate().filter(|&(_, &taken)| taken);
        named.map(|(index, _)| handle(index as u32)).collect()
    }
}
