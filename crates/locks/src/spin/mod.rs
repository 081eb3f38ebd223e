//! Locks whose whole state is one word.

#[cfg(feature = "busted")]
pub mod busted;
pub mod futex;
pub mod tas;

pub use futex::Futex;
pub use tas::Tas;
