//! What cannot be true of a machine, whatever was measured: on one that others use, too, measurements go wrong now and then.

use flashlock_report::units::three_digits;
use flashlock_sim::Description;

/// What is farther takes longer. Where the two are nearly the same thing, it may be so much faster: that is noise.
const NOISE: f64 = 1.25;

/// Whether loads take the longer, the farther what they find is: L1, L2, last level, memory.
pub(super) fn in_order(loads: [Option<f64>; 4]) -> bool {
    let known: Vec<f64> = loads.into_iter().flatten().collect();
    known.is_sorted_by(|near, far| near < far)
}

/// All that cannot be true of a description, in words.
pub(super) fn doubts(found: &Description) -> Vec<String> {
    let (latency, os) = (&found.latency_ns, &found.scheduler);
    let loads = [
        ("an L1 load", latency.l1),
        ("an L2 load", latency.l2),
        ("a last-level load", latency.llc[0]),
        ("a memory load", latency.dram[0]),
    ];
    let said = |(near, a): (&str, f64), (far, b): (&str, f64)| {
        format!("{near} takes {} ns, and {far} {}", three_digits(a), three_digits(b))
    };
    let mut doubts: Vec<String> =
        loads.windows(2).filter(|pair| pair[0].1 >= pair[1].1).map(|pair| said(pair[0], pair[1])).collect();
    if latency.transfer[0] <= latency.l1 {
        doubts
            .push(said(("an L1 load", latency.l1), ("a load of what another core has modified", latency.transfer[0])));
    }
    for (name, list) in [
        ("a last-level load", &latency.llc),
        ("a load of a modified line", &latency.transfer),
        ("a memory load", &latency.dram),
    ] {
        let nearer = list.windows(2).position(|pair| pair[0] > NOISE * pair[1]);
        doubts.extend(nearer.map(|at| {
            let (near, far) = (format!("{name} at distance {at}"), format!("at distance {}", at + 1));
            said((&near, list[at]), (&far, list[at + 1]))
        }));
    }
    for (name, value) in [
        ("a context switch", os.switch_us),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_that_are_known_are_plausible() {
        for name in Description::names() {
            assert_eq!(doubts(&Description::find(name).unwrap()), [""; 0], "{name}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let mut machine = Description::find("2x18x2").unwrap();
        machine.latency_ns.llc = vec![100.0, 65.0];
        machine.scheduler.switch_us = 0.0;
        machine.latency_ns.transfer = vec![85.0, 55.0];
        let expected = [
            "a last-level load takes 100 ns, and a memory load 96.0",
            "a last-level load at distance 0 takes 100 ns, and at distance 1 65.0",
            "a load of a modified line at distance 0 takes 85.0 ns, and at distance 1 55.0",
            "a context switch takes no time",
        ];
        assert_eq!(doubts(&machine), expected);
        assert!(in_order([Some(1.0), None, Some(2.0), Some(3.0)]) && in_order([None; 4]));
        assert!(!in_order([Some(1.0), Some(5.0), Some(120.0), Some(100.0)]));
    }
}
