//! Detects figures that cannot be true of a machine. On a shared machine, measurements sometimes go wrong.

use flashlock_report::units::three_digits;
use flashlock_sim::Description;
use flashlock_sim::description::Measured;

use super::order;

/// Farther accesses take longer. If two are nearly the same, the farther one may be faster by this factor: that is
/// noise.
const NOISE: f64 = 1.25;
/// A hand-off takes a few transfers of its line. If it takes more than this, a thread lost its CPU in one of the two
/// measurements.
const TRAVELS: f64 = 20.0;

/// Whether loads take longer the farther the data are: L1, L2, last level, memory.
pub(super) fn in_order(loads: [Option<f64>; 4]) -> bool {
    let known: Vec<f64> = loads.into_iter().flatten().collect();
    known.is_sorted_by(|near, far| near < far)
}

/// All impossible properties of a description, in words. Loads and transfers count only if they were measured, because
/// otherwise measuring again would not help. `was_measured` takes names of the sheet.
pub(super) fn doubts(found: &Description, was_measured: impl Fn(&str) -> bool) -> Vec<String> {
    let (latency, os) = (&found.latency_ns, &found.scheduler);
    let distances = latency.llc.len();
    let measured = |what: &str, at: usize| was_measured(&order::named(what, at, distances));
    let loads = [
        ("an L1 load", latency.l1, was_measured(order::L1)),
        ("an L2 load", latency.l2, was_measured(order::L2)),
        ("a last-level load", latency.llc[0], measured(order::LLC, 0)),
        ("a memory load", latency.dram[0], measured(order::DRAM, 0)),
    ];
    let loads: Vec<(&str, f64)> = loads.into_iter().filter(|load| load.2).map(|load| (load.0, load.1)).collect();
    let said = |(near, a): (&str, f64), (far, b): (&str, f64)| {
        format!("{near} takes {} ns, and {far} {}", three_digits(a), three_digits(b))
    };
    let mut doubts: Vec<String> =
        loads.windows(2).filter(|pair| pair[0].1 >= pair[1].1).map(|pair| said(pair[0], pair[1])).collect();
    if latency.transfer[0] <= latency.l1 && was_measured(order::L1) && measured(order::TRANSFER, 0) {
        doubts.push(said(
            ("an L1 load", latency.l1),
            ("a load of a line that another core has modified", latency.transfer[0]),
        ));
    }
    for (name, what, list) in [
        ("a last-level load", order::LLC, &latency.llc),
        ("a load of a modified line", order::TRANSFER, &latency.transfer),
        ("a load of another core's unwritten line", order::CLEAN, &latency.clean),
        ("making a shared line one's own", order::UPGRADE, &latency.upgrade),
        ("a memory load", order::DRAM, &latency.dram),
    ] {
        let wrong = |at: &usize| list[*at] > NOISE * list[at + 1] && measured(what, *at) && measured(what, at + 1);
        doubts.extend((0..list.len() - 1).find(wrong).map(|at| {
            let (near, far) = (format!("{name} at distance {at}"), format!("at distance {}", at + 1));
            said((&near, list[at]), (&far, list[at + 1]))
        }));
    }
    for (name, list) in found.measured_ns.iter().flat_map(hand_overs) {
        let is_too_long = |(at, ns): &(u32, f64)| *ns > TRAVELS * latency.transfer[*at as usize];
        let known = |(at, _): &(u32, f64)| measured(order::TRANSFER, *at as usize);
        doubts.extend(list.iter().copied().filter(known).find(is_too_long).map(|(at, ns)| {
            let load = ("a load of a line that another core has modified", latency.transfer[at as usize]);
            said(load, (name, ns))
        }));
    }
    for (name, value) in [
        ("a context switch", os.switch_us),
        // It is a difference, and the subtracted part was measured too long.
        ("waking an idle CPU", os.idle_us.last().map_or(1.0, |(_, us)| *us)),
        ("a system call", os.syscall_us),
        ("an atomic addition", latency.rmw),
        ("a pause", latency.pause),
    ] {
        if value <= 0.0 {
            doubts.push(format!("{name} takes no time"));
        }
    }
    doubts
}

/// The measured hand-offs of a word between two CPUs, with their names.
fn hand_overs(measured: &Measured) -> [(&'static str, &[(u32, f64)]); 2] {
    [("a hand-off", &measured.cas_ping_pong), ("a hand-off by stores", &measured.store_ping_pong)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_that_are_known_are_plausible() {
        for name in Description::names() {
            assert_eq!(doubts(&Description::find(name).unwrap(), |_| true), [""; 0], "{name}");
        }
    }

    #[test]
    fn hand_overs_that_others_interrupted_are_named() {
        let mut machine = Description::find("2x18x2").unwrap();
        let measured = Measured {
            cas: vec![(0, 60.0), (1, 120.0)],
            cas_ping_pong: vec![(0, 90.0), (1, 150.0)],
            store_ping_pong: vec![(0, 80.0), (1, 19_000.0)],
            siblings: None,
        };
        machine.measured_ns = Some(measured);
        let expected = "a load of a line that another core has modified takes 113 ns, and a hand-off by stores 19,000";
        assert_eq!(doubts(&machine, |_| true), [expected]);
        assert_eq!(doubts(&machine, |what| !what.starts_with(order::TRANSFER)), [""; 0]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let mut machine = Description::find("2x18x2").unwrap();
        machine.latency_ns.llc = vec![100.0, 65.0];
        machine.scheduler.switch_us = 0.0;
        machine.scheduler.idle_us = vec![(0.0, 0.0), (50.0, 0.0)];
        machine.latency_ns.transfer = vec![85.0, 55.0];
        machine.latency_ns.upgrade = vec![85.0, 54.0];
        let expected = [
            "a last-level load takes 100 ns, and a memory load 96.0",
            "a last-level load at distance 0 takes 100 ns, and at distance 1 65.0",
            "a load of a modified line at distance 0 takes 85.0 ns, and at distance 1 55.0",
            "making a shared line one's own at distance 0 takes 85.0 ns, and at distance 1 54.0",
            "a context switch takes no time",
            "waking an idle CPU takes no time",
        ];
        assert_eq!(doubts(&machine, |_| true), expected);
        // Copied figures cannot be measured again.
        assert_eq!(doubts(&machine, |what| !what.starts_with(order::LLC)), expected[2..]);
        assert_eq!(doubts(&machine, |what| what == order::L1), expected[4..]);
        assert!(in_order([Some(1.0), None, Some(2.0), Some(3.0)]) && in_order([None; 4]));
        assert!(!in_order([Some(1.0), Some(5.0), Some(120.0), Some(100.0)]));
    }
}
