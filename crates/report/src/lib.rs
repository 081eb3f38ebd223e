//! # Reports of flashlock's tools
//!
//! The files that the tools write, and the tables that they print. Schema and rendering are separate files, so that a
//! tool that reads a result later shows the same as the tool that made it.
//!
//! | module | holds |
//! |---|---|
//! | [`run_stats`] | the counters of `flashlock run --stats`: schema, collecting, text |
//! | [`results`] | measurements under several locks: schema, derived figures, CSV |
//! | [`statistics`] | spreads, ratios with their interval, verdicts |
//! | [`finding`] | the finding of a result, in a sentence |
//! | [`page`] | results as a page |
//! | [`regret`] | which lock would have been better: cells, runs, summary, page |
//! | [`chart`] | results as an SVG picture |
//! | [`provenance`], [`machine`] | the fields of every result file: origin, command, date, machine |
//! | [`counts`] | named counters that keep their order |
//! | [`table`], [`units`], [`date`] | the format of tables, numbers and dates |
//! | [`words`] | lists of names, and patterns that stand for several |
//! | [`wrap`] | paragraphs that fit a line |
//! | [`error`] | errors in a file |
//!
//! A schema has a name and a version. Adding a field keeps the version; renaming or removing a field, or changing its
//! meaning, raises it. Readers ignore unknown fields and refuse unknown versions.

pub mod chart;
pub mod counts;
pub mod date;
pub mod error;
pub mod finding;
pub mod machine;
pub mod page;
pub mod provenance;
pub mod regret;
pub mod results;
pub mod run_stats;
pub mod statistics;
pub mod table;
pub mod units;
pub mod words;
pub mod wrap;

pub use error::Error;
