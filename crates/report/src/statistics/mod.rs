//! Figures of repeated runs, ratios with their interval, and tests whether a difference is significant.
//!
//! | module | holds |
//! |---|---|
//! | [`spread`] | the median of some numbers, and their extremes |
//! | [`ratio`] | a ratio of paired runs with its 95 % interval (Student's t, on logarithms) |
//! | [`verdict`] | which locks differ from the baseline beyond the noise, corrected for many comparisons (Holm) |
//! | [`student`] | Student's t distribution |
//! | [`random`] | a small generator of random numbers, for the order of runs |

pub mod random;
pub mod ratio;
pub mod spread;
pub mod student;
pub mod verdict;

pub use random::Random;
pub use ratio::{CONFIDENCE, Ratio};
pub use spread::Spread;
pub use verdict::{Direction, Samples, Standing, Verdict};
