//! # What flashlock's tools tell
//!
//! The files that they write, and the tables that they print. Schema and rendering are separate files, so that a tool
//! that reads a result later sees what the one that made it saw.
//!
//! | module | holds |
//! |---|---|
//! | [`run_stats`] | the counters of `flashlock run --stats`: schema, collecting, text |
//! | [`results`] | measurements under several locks: schema, what follows from the runs, CSV |
//! | [`statistics`] | spreads, ratios with their interval, verdicts |
//! | [`finding`] | what a result says, in a sentence |
//! | [`chart`] | results as an SVG picture |
//! | [`provenance`], [`machine`] | what every result file says: who made it, of what, when, where |
//! | [`counts`] | named counters that keep their order |
//! | [`table`], [`units`], [`date`] | the look of tables and numbers |
//! | [`error`] | what is wrong with a file |
//!
//! A schema has a name and a version. Adding a field keeps the version; renaming, removing or changing the meaning of
//! one raises it. Readers ignore fields that they do not know and refuse versions that they do not know.

pub mod chart;
pub mod counts;
pub mod date;
pub mod error;
pub mod finding;
pub mod machine;
pub mod provenance;
pub mod results;
pub mod run_stats;
pub mod statistics;
pub mod table;
pub mod units;

pub use error::Error;
