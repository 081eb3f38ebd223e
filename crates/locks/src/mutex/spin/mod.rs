//! Locks whose waiters poll or sleep on the lock itself.

pub mod cas;
pub mod futex;
pub mod hbo;
pub mod null;
pub mod polite;
pub mod tas;
pub mod ticket;
pub mod word;

pub use cas::Cas;
pub use futex::Futex;
pub use hbo::Hbo;
pub use null::Null;
pub use polite::Polite;
pub use tas::Tas;
pub use ticket::Ticket;
