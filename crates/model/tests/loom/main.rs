//! The locks under loom: orderings, and protocols in small models.

mod common;
mod exclusion;
mod timeouts;
