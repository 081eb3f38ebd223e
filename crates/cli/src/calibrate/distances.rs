//! Measures what depends on distance: transfers of lines between CPUs, and accesses to other nodes.

use flashlock_measure::costs::effort::free_memory;
use flashlock_measure::costs::pairs::{self, Remote, Travel};
use flashlock_report::statistics::Spread;
use flashlock_report::units;
use flashlock_sim::description::{Latency, Siblings};

use super::measure::Session;
use super::{order, shape};

impl Session {
    /// Measures the transfers between all these pairs of CPUs, or a sample. `between` names the pairs, `of` says what
    /// the figure is the median of.
    fn travels(&mut self, between: &str, all: &[[u32; 2]], of: &'static str) -> Vec<Travel> {
        let pairs = shape::sample(all, self.effort.pairs());
        let (wanted, rounds) = (pairs.len(), self.effort.rounds_of(pairs.len()));
        let travel = |(number, pair): (usize, &[u32; 2])| {
            self.step(&format!("lines between CPUs, {between}: pair {} of {wanted}", number + 1));
            pairs::travel(rounds, *pair)
        };
        let travels: Vec<Travel> = pairs.iter().enumerate().filter_map(travel).collect();
        let (all, measured) = (all.len(), travels.len());
        if measured < all {
            self.sheet.remark(format!("lines between CPUs, {between}: {measured} of {all} pairs"));
        }
        if measured > 0 {
            let pairs = format!("{} of {}", units::count(measured as u64), units::count(all as u64));
            self.sheet.tell(format!("pairs, {between}"), measured as f64, "pairs", pairs, of);
        }
        travels
    }

    /// Measures transfers at this distance: the median over pairs of CPUs.
    pub(super) fn lines(&mut self, distance: u32) {
        let how = "of CPUs of different cores; the figures of lines between CPUs are their medians";
        let travels = self.travels(&format!("distance {distance}"), &self.shape.all_pairs(distance), how);
        let of_pairs = |of: fn(&Travel) -> f64| middle(travels.iter().map(of));
        let Self { found, sheet, .. } = self;
        let latency = &mut found.latency_ns;
        let at = distance as usize;
        let distances = latency.transfer.len();
        let name = |what| order::named(what, at, distances);
        let how = "random walk through 16 KiB that the other CPU has just written";
        sheet.put(name(order::TRANSFER), of_pairs(|all| all.load), "ns", how, &mut latency.transfer[at]);
        let clean = middle(travels.iter().filter_map(|all| all.clean));
        let how = "the same, but the other CPU has dropped it from all caches, then read it";
        sheet.put(name(order::CLEAN), clean, "ns", how, &mut latency.clean[at]);
        let measured = found.measured_ns.get_or_insert_default();
        let how = "a modified line with compare-and-swap";
        sheet.note(name("modified line, CAS"), of_pairs(|all| all.cas), how, distance, &mut measured.cas);
        let shared = of_pairs(|all| all.shared).and_then(|ns| upgrade(latency, ns));
        let how = "compare-and-swap on lines that both CPUs have read, minus an atomic addition without its load";
        sheet.put(name(order::UPGRADE), shared, "ns", how, &mut latency.upgrade[at]);
        let how = "half a round trip of a word that both change by CAS";
        let hand_off = of_pairs(|all| all.hand_off);
        sheet.note(name("hand-off"), hand_off, how, distance, &mut measured.cas_ping_pong);
        let how = "the same, but each polls and then stores";
        let stores = of_pairs(|all| all.stores);
        sheet.note(name("hand-off by stores"), stores, how, distance, &mut measured.store_ping_pong);
        if distance > 0 {
            self.remote(distance);
        }
    }

    /// Measures transfers between the hardware threads of a core. The simulation gives them one cache, and does not use
    /// these figures.
    pub(super) fn siblings(&mut self) {
        let all = self.shape.siblings();
        if all.is_empty() {
            return;
        }
        let how = "of hardware threads of one core; the figures of siblings are their medians";
        let travels = self.travels("siblings", &all, how);
        let of_pairs = |of: fn(&Travel) -> f64| middle(travels.iter().map(of));
        let measured = || {
            Some(Siblings {
                load: of_pairs(|all| all.load)?,
                cas: of_pairs(|all| all.cas)?,
                cas_ping_pong: of_pairs(|all| all.hand_off)?,
                store_ping_pong: of_pairs(|all| all.stores)?,
            })
        };
        let Some(found) = measured() else { return self.sheet.miss("lines between siblings") };
        let found = self.found.measured_ns.get_or_insert_default().siblings.insert(found);
        for (what, ns, how) in [
            ("load", &mut found.load, "of a line that the other hardware thread of the core has just written"),
            ("CAS", &mut found.cas, "the same with compare-and-swap"),
            ("hand-off", &mut found.cas_ping_pong, "half a round trip of a word that both change by CAS"),
            ("hand-off by stores", &mut found.store_ping_pong, "the same, but each polls and then stores"),
        ] {
            self.sheet.put(format!("siblings: {what}"), Some(*ns), "ns", how, ns);
        }
    }

    /// Measures a CPU's accesses to a node at this distance.
    fn remote(&mut self, distance: u32) {
        let (effort, pairs) = (self.effort, self.shape.pairs(distance, 2));
        let Self { found, sheet, .. } = self;
        let [l2, llc] = [found.cache.l2, found.cache.llc].map(|cache| cache.kib as usize * 1024);
        let (within, memory) = ((4 * l2).min(llc / 2), effort.memory(llc, free_memory()).ok());
        let seen = pairs.iter().filter_map(|&pair| pairs::remote(effort, pair, within, memory));
        let seen: Vec<Remote> = seen.collect();
        let latency = &mut found.latency_ns;
        let at = distance as usize;
        let distances = latency.llc.len();
        let name = |what| order::named(what, at, distances);
        let load = middle(seen.iter().map(|remote| remote.llc));
        sheet.put(name(order::LLC), load, "ns", "data that the other CPU wrote, 4 times its L2", &mut latency.llc[at]);
        let load = middle(seen.iter().filter_map(|remote| remote.dram));
        sheet.put(name(order::DRAM), load, "ns", "memory that the other CPU allocated", &mut latency.dram[at]);
    }
}

/// What making a shared line one's own takes, in ns, if a compare-and-swap on one takes `ns`. The simulation adds the
/// operation, but no load: invalidating the other copies takes its place.
pub(super) fn upgrade(latency: &Latency, ns: f64) -> Option<f64> {
    Some(ns - latency.rmw).filter(|ns| *ns > 0.0)
}

/// The median.
fn middle(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect();
    Spread::of(&numbers).map(|all| all.median)
}

#[cfg(test)]
mod tests {
    use flashlock_native::topology::Topology;

    use super::*;
    use flashlock_measure::costs::effort::Effort;
    use flashlock_measure::cpu;

    /// On a machine that seems to have one core with two hardware threads, whatever CPUs these really are.
    #[test]
    fn siblings_are_measured_where_there_are_any() {
        let of = |threads| {
            let machine = Topology::imagined([1, 1, threads]).expect("a machine");
            let mut session = Session::new(Effort { quick: true }, &machine).expect("a session");
            session.siblings();
            (session.found.measured_ns.and_then(|all| all.siblings), session.sheet.text("t", "d", 80))
        };
        let can_be_had = (0..2).all(|cpu| cpu::on(cpu, || ()).is_some());
        let (found, text) = of(2);
        assert_eq!(found.is_some(), can_be_had);
        assert_eq!(text.contains("siblings: hand-off by stores"), can_be_had, "{text}");
        assert_eq!(text.contains("lines between siblings"), !can_be_had, "{text}");
        assert!(found.is_none_or(|all| all.cas_ping_pong > 0.0 && all.store_ping_pong > 0.0));
        let (found, text) = of(1);
        assert!(found.is_none() && !text.contains("siblings"), "{text}");
    }
}
