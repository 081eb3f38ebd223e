//! # Queues with direct hand-off
//!
//! | file | holds |
//! |---|---|
//! | [`culling`] | MCS's queue, whose holder may move waiters to a secondary queue |
//! | [`k42`] | MCS's queue, whose holder keeps no node |
//! | [`link`] | a link that says where its waiter is |
//! | [`succession`] | which waiter follows the holder |
//! | [`service`] | which waiters a queue passes over |

pub mod culling;
pub mod k42;
pub mod link;
pub mod service;
pub mod succession;
