//! `flashlock calibrate --delegation`: measures from which contention on a server pays on this machine.
//!
//! Threads read and write a shared line in sections of one lock, with a delay between them, as in section 4.1 of
//! *Remote Core Locking* (USENIX ATC 2012). For each delay it measures how many sections they complete under the
//! ordinary lock, which share of their time the sections take, how many sections they complete under MCS, and how many
//! with a server. As in the paper, the server takes the CPU of a thread: N threads are compared with N - 1 threads and
//! a server. The threshold is the share from which on the server is always ahead of the ordinary lock by [`AHEAD`]. The
//! same against MCS is shown, but nothing follows from it: an adaptive lock is an ordinary one otherwise, never MCS.

use std::thread;
use std::time::Duration;

use flashlock_delegation::adapt::{Governor, Thresholds};
use flashlock_locks::mutex::queue::Mcs;
use flashlock_locks::parts::raw::Raw;
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_measure::costs::effort::Effort;
use flashlock_measure::embedded::Served;
use flashlock_measure::sections;
use flashlock_native::{Native, NoStats};
use flashlock_report::machine::Machine;
use flashlock_report::{date, table, units};
use serde::Serialize;

use crate::failure::Failure;
use crate::json;
use crate::screen::{HEADING, styled};

/// The kind of result; docs/cli/json.md describes its fields.
const SCHEMA: &str = "flashlock.delegation";
/// The version of its schema.
const VERSION: u32 = 1;
/// Delays between sections, in ns.
const DELAYS: [u32; 8] = [0, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];
/// A server is ahead if it is at least so many times as fast.
const AHEAD: f64 = 1.05;
/// The maximum number of threads. More would show nothing new.
const MOST: usize = 64;
/// A lock keeps its server down to this share of the use rate at the threshold.
const KEEPS: f64 = 0.5;

/// The measurements with one delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    delay_ns: u32,
    /// Sections per second under the ordinary lock, …
    ordinary: f64,
    /// … under MCS, …
    mcs: f64,
    /// … and with a server.
    served: f64,
    /// The share of time in sections, under the ordinary lock.
    share: f64,
    /// The server's use rate, over all scans.
    heat: f64,
}

/// The whole measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    threads: usize,
    rows: Vec<Row>,
    thresholds: Thresholds,
    /// The share of time in sections, under the ordinary lock, from which on a server is ahead of MCS.
    go_against_mcs: Option<f64>,
}

/// Its waiters poll, and then sleep, as those of the ordinary lock.
type AnMcs = Raw<Native<NoStats>, Mcs<SpinThenPark>>;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Found {
    /// Measures now.
    pub(super) fn measure(effort: Effort) -> Result<Self, Failure> {
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = cpus.clamp(2, MOST);
        let (times, long) = if effort.quick { (3, 50) } else { (5, 200) };
        let long = Duration::from_millis(long);
        let mut rows = Vec::new();
        for delay_ns in DELAYS {
            let mut all: [Vec<f64>; 5] = Default::default();
            for _ in 0..times {
                let governor = Governor::new(Thresholds::NEVER);
                let (ordinary, _lines) = sections::rate(Served::measured(&governor), threads, delay_ns, long);
                let share = governor.measure().locks.first().and_then(|lock| lock.share).unwrap_or(0.0);
                let (mcs, _lines) = sections::rate(AnMcs::FREE, threads, delay_ns, long);
                let (served, lines) = sections::rate(Served::new().map_err(Failure::new)?, threads - 1, delay_ns, long);
                let counted = lines.lock().statistics();
                let heat = counted.use_rate() * counted.busy_scans as f64 / counted.scans.max(1) as f64;
                for (all, value) in all.iter_mut().zip([ordinary, mcs, served, share, heat]) {
                    all.push(value);
                }
            }
            let [ordinary, mcs, served, share, heat] = all.map(median);
            rows.push(Row { delay_ns, ordinary, mcs, served, share, heat });
        }
        let thresholds = thresholds(&rows);
        let go_against_mcs = last_ahead(&rows, |row| row.mcs).map(|row| rounded(row.share));
        Ok(Self { threads, rows, thresholds, go_against_mcs })
    }

    /// The table of a configuration file, with a comment on its origin.
    pub(super) fn toml(&self, machine: &Machine, how: &str) -> Result<String, Failure> {
        let (version, date) = (env!("CARGO_PKG_VERSION"), date::now());
        let mut text = format!("# Measured by flashlock {version} ({how}) on {date}: {machine}\n[adaptive]\n");
        text.push_str(&toml::to_string(&self.thresholds).map_err(Failure::new)?);
        Ok(text)
    }

    /// The result as text.
    pub(super) fn text(&self, title: &str, width: u16) -> String {
        let heads = ["delay", "share", "ordinary", "mcs", "served", ": ordinary", ": mcs"];
        let mut table = table::new(heads, width);
        table::numbers(&mut table, [0, 1, 2, 3, 4, 5, 6]);
        for row in &self.rows {
            let [ordinary, mcs, served] =
                [row.ordinary, row.mcs, row.served].map(|rate| units::three_digits(rate / 1e6));
            let [to_ordinary, to_mcs] =
                [row.ordinary, row.mcs].map(|rate| format!("{:.2}", row.served / rate.max(1.0)));
            let (delay, share) = (format!("{} ns", row.delay_ns), format!("{:.0} %", 100.0 * row.share));
            table.add_row([delay, share, ordinary, mcs, served, to_ordinary, to_mcs]);
        }
        let told = match self.thresholds.go {
            Some(go) => {
                format!("a lock moves to a server when its threads spend {:.0} % of their time in sections", 100.0 * go)
            }
            None => "a server never pays here, so adaptive locks stay ordinary".to_owned(),
        };
        let against_mcs = match self.go_against_mcs {
            Some(go) => format!("a server is ahead of MCS from {:.0} % on", 100.0 * go),
            None => "a server is never ahead of MCS".to_owned(),
        };
        let (all, others) = (self.threads, self.threads - 1);
        let threads = format!(
            "sections per µs of {all} threads, or of {others} and a server, and the share of time in sections under \
             the ordinary lock; {told}; {against_mcs}"
        );
        let lines = table::field("-", &threads, 1, width);
        format!("{}\n\n{}\n{lines}", styled(HEADING, title), table::text(&table))
    }

    /// The result as JSON.
    pub(super) fn json(&self, machine: &Machine, quick: bool) -> Result<String, Failure> {
        #[derive(Serialize)]
        struct Output<'a> {
            quick: bool,
            #[serde(flatten)]
            found: &'a Found,
        }
        json::result(SCHEMA, VERSION, machine.clone(), &Output { quick, found: self })
    }
}

/// From the shortest delay on, as long as the server is ahead of the other lock: the last row.
fn last_ahead(rows: &[Row], other: impl Fn(&Row) -> f64) -> Option<&Row> {
    rows.iter().take_while(|row| row.served >= AHEAD * other(row)).last()
}

/// Derives the thresholds from rows of ascending delays. If a longer delay has the same share, the longer delay
/// decides.
fn thresholds(rows: &[Row]) -> Thresholds {
    let last = last_ahead(rows, |row| row.ordinary);
    let ns = |rate: f64| rounded(1e9 / rate.max(1.0));
    let hottest = rows.first().copied().unwrap_or_default();
    Thresholds {
        go: last.map(|row| rounded(row.share)),
        back: last.map_or(Thresholds::PAPER.back, |row| rounded(KEEPS * row.heat)),
        hand_off_ns: ns(hottest.ordinary),
        request_ns: ns(hottest.served),
    }
}

/// Two digits: more would suggest a precision that is not there.
fn rounded(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(delay_ns: u32, share: f64, ordinary: f64, served: f64) -> Row {
        Row { delay_ns, share, ordinary, mcs: 1.5 * ordinary, served, heat: share / 2.0 }
    }

    #[test]
    fn the_threshold_is_where_the_server_stops_being_ahead() {
        let rows = [row(0, 0.98, 2e6, 5e6), row(1_000, 0.8, 2e6, 4e6), row(3_000, 0.42, 1.9e6, 2.1e6)];
        let never = [row(10_000, 0.1, 1e6, 1.04e6), row(30_000, 0.05, 5e5, 6e5)];
        let found = thresholds(&[&rows[..], &never[..]].concat());
        let expected = Thresholds { go: Some(0.42), back: 0.11, hand_off_ns: 500.0, request_ns: 200.0 };
        assert_eq!(found, Thresholds { back: found.back, ..expected });
        assert!((found.back - 0.105).abs() < 0.01, "{found:?}");
        assert_eq!(last_ahead(&rows, |row| row.mcs).map(|row| row.share), Some(0.8), "MCS is faster");
        assert_eq!(last_ahead(&never, |row| row.mcs), None);
    }

    #[test]
    fn never_is_an_answer() {
        let rows = [row(0, 0.98, 5e6, 2e6), row(1_000, 0.5, 1e6, 2e6)];
        assert_eq!(thresholds(&rows).go, None);
        assert_eq!(thresholds(&[]).go, None);
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let rows = vec![row(0, 0.98, 5e6, 2e6)];
        let found = Found { threads: 2, thresholds: thresholds(&rows), rows, go_against_mcs: Some(0.7) };
        let text = found.toml(&Machine::default(), "calibrate --delegation").unwrap();
        assert!(text.contains("[adaptive]\ngo = \"never\"\n"), "{text}");
        #[derive(serde::Deserialize)]
        struct File {
            adaptive: Thresholds,
        }
        assert_eq!(toml::from_str::<File>(&text).unwrap().adaptive, found.thresholds);
    }
}
