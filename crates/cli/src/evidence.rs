//! Measures the figures by which the default lock decides on this machine.
//!
//! `flash` measures costs with its own code while it is in use (`crates/native/src/evidence.rs`). They determine how
//! long a thread waits in which way (`crates/locks/src/mutex/flash/evidence.rs`). Here, two threads give that code
//! something to measure, and this module shows the results.

#[cfg(test)]
use flashlock_locks::machine::SLEEP_COST;
use flashlock_locks::machine::{Special, Tunables};
use flashlock_locks::mutex::flash::evidence::{LONGEST_NAP, NAP, SPIN, patience, second_look};
use flashlock_measure::cpu;
use flashlock_measure::evidence::{hand_over, wake_up};
use flashlock_native::{Native, clock, evidence};
use flashlock_report::machine::Machine as Computer;
use flashlock_report::{table, units};
use serde::Serialize;

use crate::failure::Failure;
use crate::inspect::Finding;
use crate::json;
use crate::screen::{HEADING, styled};

/// The heading, wherever the figures are shown.
pub(crate) const TITLE: &str = "Costs by which the default lock decides";
/// The kind of result; docs/cli/json.md describes its fields.
const SCHEMA: &str = "flashlock.evidence";
/// The version of its schema.
const VERSION: u32 = 1;

/// A cost on this machine, and how the lock uses it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    what: &'static str,
    /// What it costs; `null` if that cannot be measured here.
    value: Option<f64>,
    unit: &'static str,
    /// The number with which the lock calculates.
    reckoned: f64,
    reckoned_unit: &'static str,
    /// The decision that depends on it.
    decides: &'static str,
}

/// A limit on how long a thread waits in one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Budget {
    what: &'static str,
    value: u32,
    unit: &'static str,
    /// Whether it follows from a cost. The others are the same on every machine.
    follows: bool,
    decides: &'static str,
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Evidence {
    costs: [Cost; 3],
    budgets: [Budget; 6],
}

impl Evidence {
    /// Measures the figures now, which takes some tens of milliseconds.
    pub(crate) fn measure() -> Self {
        let two = cpu::usable().unwrap_or_default();
        let two: Option<[u32; 2]> = two.get(..2).and_then(|two| two.try_into().ok());
        let tick = clock::ns_per_tick();
        let ns = |ticks: u32| tick.map(|ns| f64::from(ticks) * ns);
        let pause = evidence::pause_ticks();
        let (transfer, second) = two.and_then(hand_over).unwrap_or((None, second_look::<Native>()));
        let woken = two.and_then(wake_up).and_then(|()| evidence::wake_ns());
        let costs = [
            Cost {
                what: "pause",
                value: ns(pause),
                unit: "ns",
                reckoned: 1.0,
                reckoned_unit: "step",
                decides: "a polling thread counts time between two looks at the lock in pauses",
            },
            Cost {
                what: "line transfer",
                value: transfer.and_then(ns),
                unit: "ns",
                reckoned: evidence::transfer_cost(1).max(1).into(),
                reckoned_unit: "steps",
                decides: "a thread that finds the lock free waits and looks again; the time for that depends on how \
                          long a cache line takes from another CPU",
            },
            Cost {
                what: "wake-up",
                value: woken.map(|ns| f64::from(ns) / 1e3),
                unit: "µs",
                reckoned: <Native as Special>::sleep_cost().into(),
                reckoned_unit: "µs",
                decides: "how long a thread stays awake; a sleep costs the wake-up and the system call for it",
            },
        ];
        let budget = |what, value, unit, follows, decides| Budget { what, value, unit, follows, decides };
        let budgets = [
            budget(
                "second look",
                second,
                "steps",
                true,
                "the time between two looks: the lock's cache line travels to this CPU and back",
            ),
            budget(
                "patience",
                patience::<Native>(),
                "µs",
                true,
                "how long a newcomer offers its CPU before it sleeps: ten times a sleep's cost, from 100 to 1,000 µs",
            ),
            budget("polling", SPIN, "µs", false, "how long a newcomer polls before that"),
            budget(
                "nap",
                NAP,
                "µs",
                false,
                "how long the head sleeps at first while others use a hot lock; each further nap takes twice as long",
            ),
            budget("longest nap", LONGEST_NAP, "µs", false, "how long such a nap takes at most"),
            budget(
                "bound",
                Tunables::DEFAULT.bound_us,
                "µs",
                false,
                "after this time, the head is handed the lock (bound=)",
            ),
        ];
        Self { costs, budgets }
    }

    /// The figures as text.
    pub(crate) fn text(&self, width: u16) -> String {
        let mut costs = table::new(["cost", "measured", "the lock uses", "what for"], width);
        table::numbers(&mut costs, [1, 2]);
        for cost in &self.costs {
            costs.add_row([cost.what, &cost.here(), &cost.reckoned(), cost.decides]);
        }
        let mut budgets = table::new(["limit", "here", "what it is"], width);
        table::numbers(&mut budgets, [1]);
        for budget in &self.budgets {
            let fixed = if budget.follows { "" } else { " (the same on every machine)" };
            budgets.add_row([budget.what, &budget.here(), &format!("{}{fixed}", budget.decides)]);
        }
        format!("{}\n\n{}\n{}", styled(HEADING, TITLE), table::text(&costs), table::text(&budgets))
    }

    /// The figures as JSON: a result of its own, even if other things were measured as well.
    pub(crate) fn json(&self) -> Result<String, Failure> {
        json::result(SCHEMA, VERSION, Computer::here(None), self)
    }

    /// For `flashlock doctor`: the costs, and the limits that follow from them.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let costs = self.costs.iter().map(|cost| {
            let text = format!("{} (the lock uses {}): {}", cost.here(), cost.reckoned(), cost.decides);
            Finding::ok(cost.what, text)
        });
        let budgets = self.budgets.iter().filter(|budget| budget.follows);
        let budgets = budgets.map(|budget| Finding::ok(budget.what, format!("{}: {}", budget.here(), budget.decides)));
        costs.chain(budgets).collect()
    }
}

impl Cost {
    fn here(&self) -> String {
        let measured = |value| format!("{} {}", units::three_digits(value), self.unit);
        self.value.map_or_else(|| "not measured".to_owned(), measured)
    }

    fn reckoned(&self) -> String {
        format!("{:.0} {}", self.reckoned, self.reckoned_unit)
    }
}

impl Budget {
    fn here(&self) -> String {
        format!("{} {}", units::count(self.value.into()), self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_lock_reckons_with_is_what_it_has_measured() {
        let evidence = Evidence::measure();
        let [pause, line, wake_up] = &evidence.costs;
        let two = cpu::usable().is_some_and(|cpus| cpus.len() >= 2);
        assert_eq!((line.value.is_some(), wake_up.value.is_some()), (two, two), "{evidence:?}");
        assert_eq!(pause.value.is_some(), clock::ns_per_tick().is_some());
        if let Some(us) = wake_up.value {
            // The wake-up call has a cost, too, and the numbers are limited.
            assert!((10.0..=100.0).contains(&wake_up.reckoned) && (us < 10.0 || wake_up.reckoned >= us.min(99.0)));
        } else {
            assert_eq!(wake_up.reckoned, f64::from(SLEEP_COST));
        }
        let [second, patience, ..] = &evidence.budgets;
        assert_eq!(f64::from(patience.value), (wake_up.reckoned * 10.0).clamp(100.0, 1000.0));
        assert!(second.value >= 1 && patience.follows);
    }

    #[test]
    fn tables_fit_and_have_units() {
        let evidence = Evidence::measure();
        for width in [80, 120] {
            let text = anstream::adapter::strip_str(&evidence.text(width)).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
            for word in ["pause", "step", "wake-up", "patience", "bound", "1,000 µs"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
    }
}
