//! The locks under loom: orderings, and protocols in small models.

mod common;
mod cond;
mod exclusion;
mod states;
mod timeouts;
mod walks;
