//! Puts figures in order. Farther accesses must not take less time: such a description cannot be simulated. Nearly
//! equal figures are sometimes measured in the wrong order, and copied figures may not fit the measured ones. This
//! module puts them in order, and the sheet says so.

use flashlock_report::units::three_digits;
use flashlock_sim::Description;
use flashlock_sim::description::Latency;

use super::DEFAULTS;
use super::sheet::{Sheet, rounded};

/// The sheet's names: loads that hit the first level, …
pub(super) const L1: &str = "L1 load";
/// … the second, …
pub(super) const L2: &str = "L2 load";
/// … the last, …
pub(super) const LLC: &str = "last-level load";
/// … and memory; …
pub(super) const DRAM: &str = "memory load";
/// … of lines that another core has modified, …
pub(super) const TRANSFER: &str = "modified line, load";
/// … or owns exclusively; …
pub(super) const CLEAN: &str = "unwritten line, load";
/// … and making a shared line one's own.
pub(super) const UPGRADE: &str = "shared line made own";

/// A list by distance.
type List = fn(&mut Latency) -> &mut Vec<f64>;
/// All lists.
const LISTS: [(&str, List); 5] = [
    (LLC, |all| &mut all.llc),
    (TRANSFER, |all| &mut all.transfer),
    (CLEAN, |all| &mut all.clean),
    (UPGRADE, |all| &mut all.upgrade),
    (DRAM, |all| &mut all.dram),
];

/// A figure's name in the sheet, with its distance if there are several.
pub(super) fn named(what: &str, distance: usize, distances: usize) -> String {
    if distances == 1 { what.to_owned() } else { format!("{what}, distance {distance}") }
}

/// Puts all latencies in order that must be in order. `usual` is the machine from which values were copied.
pub(super) fn settle(found: &mut Description, usual: &Description, sheet: &mut Sheet) {
    levels(&mut found.latency_ns, &usual.latency_ns, sheet);
    for (what, list) in LISTS {
        if what == CLEAN {
            // Modified lines, which come before, are already in order.
            alone(&mut found.latency_ns, &usual.latency_ns, sheet);
        }
        by_distance(what, list(&mut found.latency_ns), sheet);
    }
}

/// The levels of the caches, and memory. If a copied figure is not above the figure before it, it is raised: it becomes
/// as much greater than that one as on the machine from which it was copied. Of the measured figures, only L2 is
/// raised, because the others may be wrong ([`super::plausible`]).
fn levels(latency: &mut Latency, usual: &Latency, sheet: &mut Sheet) {
    let distances = latency.llc.len();
    let names = [L1.to_owned(), L2.to_owned(), named(LLC, 0, distances), named(DRAM, 0, distances)];
    let usual = [usual.l1, usual.l2, usual.llc[0], usual.dram[0]];
    let all = [&mut latency.l1, &mut latency.l2, &mut latency.llc[0], &mut latency.dram[0]];
    let mut near = 0.0;
    for (at, (name, value)) in names.iter().zip(all).enumerate() {
        if !sheet.has(name) && *value <= near {
            let more = usual[at] - usual[at - 1];
            let to = rounded(near + more);
            let [there, nearer, to_be, more] = [*value, near, to, more].map(three_digits);
            sheet.remark(format!(
                "{name}: not measured, and the {there} ns of {DEFAULTS} are no more than the {nearer} of {}. {to_be} \
                 ns are used instead, because it takes {more} ns more on {DEFAULTS}",
                names[at - 1]
            ));
            *value = to;
        }
        if at == 1 && *value < near {
            sheet.raise(name, near, "a second-level load takes no less time than a first-level load");
            *value = near;
        }
        near = *value;
    }
}

/// Lines that another core owns exclusively, if they were not measured but modified lines were: their ratio is the same
/// as on the other machine.
fn alone(latency: &mut Latency, usual: &Latency, sheet: &mut Sheet) {
    let distances = latency.clean.len();
    if !(0..distances).any(|at| sheet.has(&named(TRANSFER, at, distances))) {
        return;
    }
    for at in 0..distances {
        let (name, modified) = (named(CLEAN, at, distances), named(TRANSFER, at, distances));
        if sheet.has(&name) {
            continue;
        }
        let there = at.min(usual.clean.len() - 1);
        latency.clean[at] = rounded(latency.transfer[at] * usual.clean[there] / usual.transfer[there]);
        sheet.remark(format!(
            "{name}: not measured, assumed to be {} ns, the same share of {modified} as on {DEFAULTS}",
            three_digits(latency.clean[at])
        ));
    }
}

/// One list. Copied figures are lowered to measured figures that are farther. Then figures that are lower than a nearer
/// one are raised to it.
fn by_distance(what: &str, list: &mut [f64], sheet: &mut Sheet) {
    let names: Vec<String> = (0..list.len()).map(|at| named(what, at, list.len())).collect();
    let mut least = f64::INFINITY;
    for (name, ns) in names.iter().zip(&mut *list).rev() {
        if sheet.has(name) {
            least = least.min(*ns);
        } else if *ns > least {
            *ns = least;
            sheet.remark(format!(
                "{name}: not measured, lowered to the value for farther accesses: {} ns",
                three_digits(least)
            ));
        }
    }
    let mut near = 0.0;
    for (name, ns) in names.iter().zip(list) {
        if *ns < near {
            *ns = near;
            match sheet.has(name) {
                true => sheet.raise(name, near, "a farther access takes no less time than a nearer one"),
                false => {
                    sheet.remark(format!(
                        "{name}: not measured, raised to the value for nearer accesses: {} ns",
                        three_digits(near)
                    ));
                }
            }
        }
        near = *ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine from which figures are copied, with these measured ones: name, distance, ns.
    fn settled(distances: usize, measured: &[(&str, usize, f64)]) -> (Description, String) {
        let usual = Description::find(DEFAULTS).unwrap();
        let (mut found, mut sheet) = (usual.clone(), Sheet::default());
        found.topology.packages = if distances == 1 { 1 } else { 2 };
        if distances == 3 {
            found.topology.packages = 3;
            found.topology.distances = vec![vec![0, 1, 2], vec![1, 0, 1], vec![2, 1, 0]];
        }
        for (_, list) in LISTS {
            let list = list(&mut found.latency_ns);
            let last = *list.last().unwrap();
            list.resize(distances, last);
        }
        for (what, at, ns) in measured {
            let latency = &mut found.latency_ns;
            let (name, value) = match LISTS.iter().find(|(name, _)| name == what) {
                Some((_, list)) => (named(what, *at, distances), &mut list(latency)[*at]),
                None => (what.to_string(), if *what == L1 { &mut latency.l1 } else { &mut latency.l2 }),
            };
            sheet.put(name, Some(*ns), "ns", "a test", value);
        }
        settle(&mut found, &usual, &mut sheet);
        Description::parse(&found.text()).unwrap_or_else(|error| panic!("{error}"));
        (found, sheet.source(DEFAULTS))
    }

    /// Whatever is measured, the file can be read. Minutes of measuring were once lost because it could not.
    #[test]
    fn what_is_farther_and_came_out_lower_is_raised() {
        let measured: Vec<_> = LISTS
            .iter()
            .flat_map(|(what, _)| [(*what, 0, 100.0), (*what, 1, 130.0), (*what, 2, 120.0)])
            .chain([(L1, 0, 2.0), (L2, 0, 1.9)])
            .collect();
        let (found, source) = settled(3, &measured);
        for (what, list) in LISTS {
            assert_eq!(*list(&mut found.latency_ns.clone()), [100.0, 130.0, 130.0], "{what}");
            let remark = format!("{what}, distance 2: measured 120 ns, raised to 130 ns, because a farther");
            assert!(source.contains(&remark), "{source}");
        }
        assert_eq!((found.latency_ns.l1, found.latency_ns.l2), (2.0, 2.0));
        assert!(source.contains("L2 load: measured 1.90 ns, raised to 2.00 ns"), "{source}");
        let rising: Vec<_> = LISTS.iter().flat_map(|(what, _)| [(*what, 0, 100.0), (*what, 1, 130.0)]).collect();
        assert!(!settled(2, &rising).1.contains("Note"));
    }

    #[test]
    fn what_was_copied_gives_way_to_what_was_measured() {
        // Memory that was not measured, behind a last level that was: 2x26x2 has 20 and 78.
        let (found, source) = settled(1, &[(LLC, 0, 125.0)]);
        assert_eq!((found.latency_ns.llc[0], found.latency_ns.dram[0]), (125.0, 183.0));
        assert!(
            source.contains("and the 78.0 ns of 2x26x2 are no more than the 125 of last-level load. 183 ns"),
            "{source}"
        );
        // Nodes of one core each: no node has a second core.
        let (found, source) = settled(2, &[(TRANSFER, 1, 40.0), (LLC, 0, 125.0), (UPGRADE, 0, 200.0)]);
        assert_eq!(found.latency_ns.transfer, [40.0, 40.0]);
        assert_eq!(found.latency_ns.clean, [34.0, 34.0]);
        assert_eq!((found.latency_ns.llc[1], found.latency_ns.upgrade[1]), (125.0, 200.0));
        assert!(source.contains("modified line, load, distance 0: not measured, lowered"), "{source}");
        assert!(source.contains("last-level load, distance 1: not measured, raised"), "{source}");
    }
}
