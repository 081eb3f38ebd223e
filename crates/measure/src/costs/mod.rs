//! What single operations cost on this machine.
//!
//! | module | |
//! |---|---|
//! | [`lines`], [`own`], [`pairs`] | cache lines; measurements of one CPU, and of two CPUs |
//! | [`kernel`] | calls, wake-ups, switches, sleeps |
//! | [`effort`] | how much is measured |

pub mod effort;
pub mod kernel;
pub mod lines;
pub mod own;
pub mod pairs;
