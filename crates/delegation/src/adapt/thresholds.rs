//! # When a server pays
//!
//! `flashlock calibrate --delegation` measures these numbers on a machine, and prints them as the table `[adaptive]` of
//! the [configuration](crate::config) file. Without them the numbers are [`Thresholds::PAPER`]: a machine that was not
//! measured has the paper's threshold, and the [trial](super::policy::TRIAL) shows what a server gains there.

use serde::{Deserialize, Serialize};

use super::policy::{FEWEST, GAIN, Lock};

/// The numbers of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Thresholds {
    /// An ordinary lock goes to a server if its threads spend this share of their time in its sections, or more.
    /// `None` (in the file: `"never"`): no lock does.
    #[serde(with = "share_or_never")]
    pub go: Option<f64>,
    /// The lock comes back if the server's use rate, over all scans, is less than this.
    pub back: f64,
    /// The time of a hand-off of the contended ordinary lock, in ns.
    pub hand_off_ns: f64,
    /// The time that a server takes for a request besides its section, in ns.
    pub request_ns: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::PAPER
    }
}

impl Thresholds {
    /// Section 4.1 of the paper: 20 % against a POSIX mutex, which our ordinary lock resembles most. (The paper's 70 %
    /// are against MCS.) The other numbers are guesses.
    pub const PAPER: Self = Self { go: Some(0.2), back: 0.02, hand_off_ns: 400.0, request_ns: 200.0 };
    /// No lock ever goes to a server.
    pub const NEVER: Self = Self { go: None, ..Self::PAPER };

    /// How many times as fast a server would run sections of this lock, compared with threads on different CPUs that
    /// run them one after the other. There, each hand-off costs time, and the cache lines that sections touch travel: a
    /// server has neither. The longer the sections compute, the closer the result is to 1.
    pub fn gain(&self, lock: &Lock) -> f64 {
        let cold = lock.cold.or(lock.warm).unwrap_or(0.0).max(0.0);
        // Whatever was measured: a section is not slower with its cache lines at hand than without them.
        let warm = lock.warm.map_or(cold, |warm| warm.clamp(0.0, cold));
        (self.hand_off_ns + cold) / (self.request_ns + warm).max(1.0)
    }

    /// Whether a server would pay for this ordinary lock.
    pub(super) fn pays(&self, lock: &Lock) -> bool {
        let is_hot = self.go.zip(lock.share).is_some_and(|(go, share)| share >= go);
        is_hot && lock.sections >= FEWEST && self.gain(lock) >= GAIN
    }

    /// Checks the numbers. An error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let share = |what: &str, share: f64| match share {
            share if (0.0..=1.0).contains(&share) => Ok(()),
            share => Err(format!("{what} must be 0 to 1, not {share}")),
        };
        let ns = |what: &str, ns: f64| match ns {
            ns if ns.is_finite() && ns > 0.0 => Ok(()),
            ns => Err(format!("{what} must be a number of nanoseconds, not {ns}")),
        };
        share("go", self.go.unwrap_or(0.0))?;
        share("back", self.back)?;
        ns("hand-off-ns", self.hand_off_ns)?;
        ns("request-ns", self.request_ns)
    }
}

/// A share, or the word `never`.
mod share_or_never {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    const NEVER: &str = "never";

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Said {
        Share(f64),
        Word(String),
    }

    pub(super) fn serialize<S: Serializer>(share: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        share.map_or_else(|| Said::Word(NEVER.to_owned()), Said::Share).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
        match Said::deserialize(from)? {
            Said::Share(share) => Ok(Some(share)),
            Said::Word(word) if word == NEVER => Ok(None),
            Said::Word(word) => Err(D::Error::custom(format!("go must be a share or \"{NEVER}\", not \"{word}\""))),
        }
    }
}
