//! # A map as an AVL tree
//!
//! The search tree of the key-value workload. **Source.** Adelson-Velsky and Landis, 1962, as in the key-value map of
//! the CNA paper. **Layout.** Nodes live in one table of fixed size and name each other by index: nothing is allocated
//! after the map is made. Every visited node is one load from the table, in [`Avl::node`], and every changed node is
//! one store, in [`Avl::node_mut`]. Both report to the tree's shadow, through which a simulator charges for memory.
//! There, each node has a cache line of its own, like a node from an allocator.
//!
//! ## Invariants
//! 1. Keys are in order: smaller ones to the left, greater ones to the right.
//! 2. The heights of a node's two sides differ by at most one.
//! 3. A node's `height` is one more than that of its higher side. A missing node has height 0.
//! 4. Every node is exactly once either in the tree or in the list of free nodes (linked by `left`).

use alloc::vec::Vec;

use crate::backend::Lines;

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u32,
    left: u32,
    right: u32,
    height: u32,
    value: u64,
}

/// A map from `u32` to `u64` with a fixed capacity, which reports its accesses to `S`.
#[derive(Clone, Debug)]
pub struct Avl<S: Lines = ()> {
    nodes: Vec<Node>,
    root: u32,
    free: u32,
    len: u32,
    shadow: S,
}

impl Avl {
    /// An empty map for up to `capacity` keys.
    pub fn with_capacity(capacity: u32) -> Self {
        let node = |next| Node { key: 0, left: next, right: NONE, height: 0, value: 0 };
        let nodes = (0..capacity).map(|index| node(if index + 1 < capacity { index + 1 } else { NONE })).collect();
        Self { nodes, root: NONE, free: if capacity > 0 { 0 } else { NONE }, len: 0, shadow: () }
    }

    /// The same map, but from now on it reports its accesses: line `n` of the shadow stands for node `n`.
    pub fn shadowed<S: Lines>(self, shadow: S) -> Avl<S> {
        let Self { nodes, root, free, len, shadow: () } = self;
        Avl { nodes, root, free, len, shadow }
    }
}

impl<S: Lines> Avl<S> {
    /// The number of keys.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get(&self, key: u32) -> Option<u64> {
        let mut at = self.root;
        while at != NONE {
            let node = self.node(at);
            if key == node.key {
                return Some(node.value);
            }
            at = if key < node.key { node.left } else { node.right };
        }
        None
    }

    /// Sets the value of a key. Returns whether the key is new. If the map is full, a new key is not inserted, and this
    /// returns `false`.
    pub fn insert(&mut self, key: u32, value: u64) -> bool {
        let before = self.len;
        self.root = self.inserted(self.root, key, value);
        self.len > before
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&mut self, key: u32) -> bool {
        let before = self.len;
        self.root = self.removed(self.root, key);
        self.len < before
    }

    /// Visits a node.
    #[inline]
    fn node(&self, index: u32) -> &Node {
        self.shadow.read(index);
        &self.nodes[index as usize]
    }

    /// Changes one or several fields of a node.
    #[inline]
    fn node_mut(&mut self, index: u32) -> &mut Node {
        self.shadow.write(index);
        &mut self.nodes[index as usize]
    }

    fn height(&self, index: u32) -> u32 {
        if index == NONE { 0 } else { self.node(index).height }
    }

    /// Inserts the key into the subtree at `at`. Returns the subtree's new root.
    fn inserted(&mut self, at: u32, key: u32, value: u64) -> u32 {
        if at == NONE {
            return self.take(key, value);
        }
        let Node { key: here, left, right, .. } = *self.node(at);
        if key == here {
            self.node_mut(at).value = value;
            return at;
        }
        if key < here {
            let below = self.inserted(left, key, value);
            self.set_left(at, left, below);
        } else {
            let below = self.inserted(right, key, value);
            self.set_right(at, right, below);
        }
        self.balanced(at)
    }

    /// Removes the key from the subtree at `at`. Returns the subtree's new root.
    fn removed(&mut self, at: u32, key: u32) -> u32 {
        if at == NONE {
            return NONE;
        }
        let Node { key: here, left, right, .. } = *self.node(at);
        if key < here {
            let below = self.removed(left, key);
            self.set_left(at, left, below);
        } else if key > here {
            let below = self.removed(right, key);
            self.set_right(at, right, below);
        } else if left == NONE || right == NONE {
            self.give(at);
            return if left == NONE { right } else { left };
        } else {
            // The node with the next greater key takes its place.
            let (next, rest) = self.without_least(right);
            self.give(at);
            let node = self.node_mut(next);
            (node.left, node.right) = (left, rest);
            return self.balanced(next);
        }
        self.balanced(at)
    }

    /// Removes the node with the least key from the subtree at `at`. Returns this node and the root of what is left.
    fn without_least(&mut self, at: u32) -> (u32, u32) {
        let Node { left, right, .. } = *self.node(at);
        if left == NONE {
            return (at, right);
        }
        let (least, below) = self.without_least(left);
        self.set_left(at, left, below);
        (least, self.balanced(at))
    }

    /// Writes a link only if it changes, so that concurrent lookups keep the node's cache line.
    fn set_left(&mut self, at: u32, before: u32, now: u32) {
        if before != now {
            self.node_mut(at).left = now;
        }
    }

    fn set_right(&mut self, at: u32, before: u32, now: u32) {
        if before != now {
            self.node_mut(at).right = now;
        }
    }

    /// Restores invariants 2 and 3 at a node whose sides keep them and differ in height by at most two. Returns the
    /// subtree's new root.
    fn balanced(&mut self, at: u32) -> u32 {
        let Node { left, right, height, .. } = *self.node(at);
        let (on_left, on_right) = (self.height(left), self.height(right));
        if on_left > on_right + 1 {
            let Node { left: outer, right: inner, .. } = *self.node(left);
            if self.height(inner) > self.height(outer) {
                self.node_mut(at).left = self.rotated_left(left);
            }
            return self.rotated_right(at);
        }
        if on_right > on_left + 1 {
            let Node { left: inner, right: outer, .. } = *self.node(right);
            if self.height(inner) > self.height(outer) {
                self.node_mut(at).right = self.rotated_right(right);
            }
            return self.rotated_left(at);
        }
        self.set_height(at, height, 1 + on_left.max(on_right));
        at
    }

    /// `(a x (b y c))` with root x becomes `((a x b) y c)` with root y.
    fn rotated_left(&mut self, x: u32) -> u32 {
        let y = self.node(x).right;
        self.node_mut(x).right = self.node(y).left;
        self.node_mut(y).left = x;
        self.measure(x);
        self.measure(y);
        y
    }

    /// `((a x b) y c)` with root y becomes `(a x (b y c))` with root x.
    fn rotated_right(&mut self, y: u32) -> u32 {
        let x = self.node(y).left;
        self.node_mut(y).left = self.node(x).right;
        self.node_mut(x).right = y;
        self.measure(y);
        self.measure(x);
        x
    }

    /// Restores invariant 3.
    fn measure(&mut self, at: u32) {
        let Node { left, right, height, .. } = *self.node(at);
        let now = 1 + self.height(left).max(self.height(right));
        self.set_height(at, height, now);
    }

    fn set_height(&mut self, at: u32, before: u32, now: u32) {
        if before != now {
            self.node_mut(at).height = now;
        }
    }

    /// Moves a node from the free list into the tree.
    fn take(&mut self, key: u32, value: u64) -> u32 {
        let taken = self.free;
        if taken != NONE {
            self.free = self.node(taken).left;
            *self.node_mut(taken) = Node { key, left: NONE, right: NONE, height: 1, value };
            self.len += 1;
        }
        taken
    }

    /// Moves a node from the tree into the free list.
    fn give(&mut self, at: u32) {
        self.node_mut(at).left = self.free;
        self.free = at;
        self.len -= 1;
    }

    /// Whether all invariants hold. It ends even if the tree is corrupt, because it follows no path deeper than a tree
    /// can be.
    pub fn is_sound(&self) -> bool {
        /// An AVL tree of this height has more nodes than a `u32` can count.
        const DEEPEST: u32 = 48;
        let free = core::iter::successors(Some(self.free), |&at| Some(self.nodes.get(at as usize)?.left));
        let free = free.take_while(|at| *at != NONE).take(self.nodes.len() + 1).count();
        let counted = self.count(self.root, 0, u64::from(u32::MAX) + 1, DEEPEST);
        counted.is_some_and(|(count, _)| count == self.len && count as usize + free == self.nodes.len())
    }

    /// The number of nodes and the height of a subtree whose keys are from `least` to below `limit`. `None` if it is
    /// not sound.
    fn count(&self, at: u32, least: u64, limit: u64, deepest: u32) -> Option<(u32, u32)> {
        if at == NONE {
            return Some((0, 0));
        }
        let node = self.nodes.get(at as usize)?;
        let key = u64::from(node.key);
        if deepest == 0 || key < least || key >= limit {
            return None;
        }
        let (on_left, left_height) = self.count(node.left, least, key, deepest - 1)?;
        let (on_right, right_height) = self.count(node.right, key + 1, limit, deepest - 1)?;
        let height = 1 + left_height.max(right_height);
        (left_height.abs_diff(right_height) <= 1 && node.height == height).then_some((on_left + on_right + 1, height))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::recorder::{Ledger, Recorder};

    #[test]
    fn rotations_of_all_four_kinds() {
        for order in [[1, 2, 3], [3, 2, 1], [1, 3, 2], [3, 1, 2]] {
            let mut map = Avl::with_capacity(3);
            for key in order {
                assert!(map.insert(key, u64::from(key) * 10));
            }
            assert!(map.is_sound() && map.node(map.root).key == 2, "{order:?}");
            assert_eq!(map.get(3), Some(30));
        }
    }

    #[test]
    fn a_full_map_takes_no_more_and_a_value_is_replaced() {
        let mut map = Avl::with_capacity(2);
        assert!(map.is_empty() && map.insert(1, 1) && map.insert(2, 2));
        assert!(!map.insert(3, 3) && !map.insert(2, 4) && map.is_sound());
        assert_eq!((map.get(2), map.get(3), map.len()), (Some(4), None, 2));
        assert!(map.remove(1) && !map.remove(1) && map.insert(3, 3));
    }

    #[test]
    fn every_node_is_reported() {
        let mut map = Avl::with_capacity(8).shadowed(Recorder::shadow(8));
        for key in [4, 2, 6, 1, 3, 5, 7] {
            map.insert(key, 0);
        }
        let recorded = || {
            let Ledger { reads, writes, .. } = Ledger::take();
            (reads, writes)
        };
        recorded();
        for (key, path) in [(4, 1), (6, 2), (7, 3), (8, 3)] {
            map.get(key);
            assert_eq!(recorded(), (path, 0), "{key}");
        }
        map.insert(4, 1);
        assert_eq!(recorded(), (1, 1));
        // Down: 4, 6, 7 and a free node. Up again: each node with its two sides, one of which is the new node; the
        // path's heights grow.
        map.insert(8, 0);
        assert_eq!(recorded(), (3 + 1 + (2 + 3 + 3), 1 + (2 + 1 + 1)));
    }

    #[test]
    fn disorder_is_seen() {
        let mut map = Avl::with_capacity(7);
        for key in 0..7 {
            map.insert(key, 0);
        }
        assert!(map.is_sound());
        for damage in [
            |map: &mut Avl| map.nodes[0].key = 9,
            |map: &mut Avl| map.nodes[3].height += 1,
            |map: &mut Avl| map.nodes[0].left = 3,
            |map: &mut Avl| map.len += 1,
            |map: &mut Avl| map.free = 0,
            |map: &mut Avl| map.nodes[6].right = 99,
        ] {
            let mut damaged = map.clone();
            damage(&mut damaged);
            assert!(!damaged.is_sound());
        }
    }
}
