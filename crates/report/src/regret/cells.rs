//! The grid of cells, and which of them are looked at.
//!
//! A cell is a kind of critical section, some work outside it and a number of threads. One third of the grid is held
//! out: nobody looks at it while a lock is designed, so that it can tell afterwards whether the design fits more than
//! the cells it was made with. Which cells these are follows from a fixed seed.

use crate::statistics::Random;

/// What threads do in the lock.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// The argument of the program.
    pub argument: &'static str,
    /// About how long it takes, in ns: the mean, and the longest.
    mean_ns: f64,
    longest_ns: f64,
}

const fn section(name: &'static str, argument: &'static str, mean_ns: f64, longest_ns: f64) -> Section {
    Section { name, argument, mean_ns, longest_ns }
}

pub(super) const SECTIONS: [Section; 9] = [
    section("1 line", "lines=1", 10.0, 100.0),
    section("16 lines", "lines=16", 100.0, 2_000.0),
    section("1 µs", "work=1000", 1e3, 1e3),
    section("3 µs", "work=3000", 3e3, 3e3),
    section("10 µs", "work=10000", 10e3, 10e3),
    section("30 µs", "work=30000", 30e3, 30e3),
    section("mostly .3 µs", "mix", 500.0, 100e3),
    section("64 KiB", "lines=1024", 5e3, 100e3),
    section("250 µs", "work=250000", 250e3, 250e3),
];

/// Work between two sections: its name, and its length in ns.
pub(super) const OUTSIDE: [(&str, u32); 5] = [("0", 0), (".1", 100), (".25", 250), ("2", 2000), ("20", 20_000)];

pub(super) const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 64, 256];

/// What the draw follows from. It must not change: the cells held out would no longer be so.
const SEED: u64 = 20;

/// One of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Places in [`SECTIONS`] and [`OUTSIDE`].
    section: usize,
    outside: usize,
    /// How many threads take the lock.
    pub threads: u32,
}

impl Cell {
    /// What threads do in the lock.
    pub fn section(self) -> &'static Section {
        &SECTIONS[self.section]
    }

    /// Work between two sections, in ns.
    pub fn outside_ns(self) -> u32 {
        OUTSIDE[self.outside].1
    }

    /// `1 line, .25 µs outside, 4 threads`: what `--filter` looks at, and what a file of runs calls it.
    pub fn name(self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!("{}, {} µs outside, {} {threads}", self.section().name, OUTSIDE[self.outside].0, self.threads)
    }

    /// How long a run measures: every thread shall have some turns, both of the lock and of the scheduler.
    pub fn window_ms(self) -> u64 {
        let threads = f64::from(self.threads);
        let turns_ms = 8.0 * threads * self.section().mean_ns / 1e6;
        turns_ms.max(2.0 * threads).clamp(100.0, 1000.0) as u64
    }

    /// The longest that a thread may wait, in ms: with n others and sections of length s, 2 · (n + 2) · (s + 1 ms) +
    /// 100 ms.
    pub fn allowed_wait_ms(self) -> f64 {
        let others = f64::from(self.threads - 1);
        2.0 * (others + 2.0) * (self.section().longest_ns / 1e6 + 1.0) + 100.0
    }

    /// The cells of one thread that say what is physically possible here: with the work outside, and without.
    pub fn alone(self) -> [Self; 2] {
        [Self { threads: 1, ..self }, Self { threads: 1, outside: 0, ..self }]
    }
}

/// The whole grid, in order.
fn grid() -> Vec<Cell> {
    let outside = |section| (0..OUTSIDE.len()).map(move |outside| (section, outside));
    let pairs = (0..SECTIONS.len()).flat_map(outside);
    pairs
        .flat_map(|(section, outside)| THREADS.into_iter().map(move |threads| Cell { section, outside, threads }))
        .collect()
}

/// The grid in the order of the draw: those that are held out, then the others.
fn drawn() -> [Vec<Cell>; 2] {
    let mut cells = grid();
    Random::new(SEED).shuffle(&mut cells);
    let open = cells.split_off(cells.len() / 3);
    [cells, open]
}

/// Whether a name contains a text, from the beginning of a word on: `3 µs` is not meant by `mostly .3 µs`.
fn matches(name: &str, text: &str) -> bool {
    name.match_indices(text).any(|(at, _)| at == 0 || name[..at].ends_with(' ') || text.starts_with(' '))
}

/// All cells that are held out, or all others, in the grid's order.
pub fn all(held_out: bool) -> Vec<Cell> {
    let [held, open] = drawn();
    let mut cells = if held_out { held } else { open };
    cells.sort_unstable();
    cells
}

/// One cell in so many of those that are meant, in the grid's order; those whose names contain the text of the filter.
/// The error says that there is none.
pub fn chosen(one_in: usize, held_out: bool, filter: Option<&str>) -> Result<Vec<Cell>, String> {
    let [held, open] = drawn();
    let mut cells = if held_out { held } else { open };
    cells.truncate(cells.len() / one_in);
    cells.sort_unstable();
    if let Some(filter) = filter {
        cells.retain(|cell| matches(&cell.name(), filter));
    }
    if cells.is_empty() {
        let which = if held_out { "held out" } else { "not held out" };
        let examples = examples(held_out);
        return Err(format!("no cell of that name is chosen; there are, for example: {examples} (cells {which})"));
    }
    Ok(cells)
}

fn examples(held_out: bool) -> String {
    let [held, open] = drawn();
    let names = if held_out { held } else { open }.into_iter().take(3).map(Cell::name);
    names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

/// The cell of that name.
pub fn named(name: &str) -> Option<Cell> {
    grid().into_iter().find(|cell| cell.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_is_held_out_and_always_the_same() {
        let (held, open) = (all(true), all(false));
        assert_eq!((held.len(), open.len()), (105, 210));
        assert!(held.iter().all(|cell| !open.contains(cell)));
        // What nobody has looked at must remain the same.
        let names: String = held.iter().map(|cell| cell.name()).collect();
        let sum = names.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        assert_eq!(sum, 3325848410);
        // Each kind of section and each number of threads is on both sides.
        for section in 0..SECTIONS.len() {
            assert!([&held, &open].iter().all(|cells| cells.iter().any(|cell| cell.section == section)));
        }
        for threads in THREADS {
            assert!([&held, &open].iter().all(|cells| cells.iter().any(|cell| cell.threads == threads)));
        }
    }

    #[test]
    fn smaller_extents_are_part_of_larger_ones() {
        for held_out in [false, true] {
            let of = |one_in| chosen(one_in, held_out, None).expect("cells");
            let (quick, third, all) = (of(9), of(3), of(1));
            assert!(quick.len() * 9 <= all.len() && third.len() * 3 == all.len());
            assert!(quick.iter().all(|cell| third.contains(cell)) && third.iter().all(|cell| all.contains(cell)));
        }
    }

    #[test]
    fn cells_are_found_by_their_names_and_filters_never_reach_those_held_out() {
        for cell in grid() {
            assert_eq!(named(&cell.name()), Some(cell));
        }
        assert_eq!(named("1 line"), None);
        let some = chosen(1, false, Some("1 line, 0 µs outside")).expect("cells");
        assert!(some.iter().all(|cell| !drawn()[0].contains(cell) && cell.name().starts_with("1 line, 0 µs")));
        assert!(chosen(1, false, Some("7 lines")).is_err());
    }

    #[test]
    fn filters_begin_with_a_word() {
        assert!(matches("3 µs, .25 µs outside, 4 threads", "3 µs, .25 µs") && matches("a, 4 threads", "4 threads"));
        assert!(!matches("mostly .3 µs, 0 µs outside, 64 threads", "3 µs") && !matches("a, 64 threads", "4 threads"));
    }

    #[test]
    fn windows_and_bounds() {
        let cell = named("250 µs, 0 µs outside, 64 threads").expect("a cell");
        assert_eq!((cell.window_ms(), cell.alone()[0].window_ms()), (128, 100));
        let window = |name: &str| named(name).map(Cell::window_ms);
        assert_eq!(window("250 µs, 2 µs outside, 256 threads"), Some(512));
        assert_eq!(window("1 line, 2 µs outside, 256 threads"), Some(512));
        assert!((cell.allowed_wait_ms() - (2.0 * 65.0 * 1.25 + 100.0)).abs() < 1e-9);
    }
}
