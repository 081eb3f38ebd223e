//! The grid of cells, and which of them are looked at.
//!
//! A cell is a kind of critical section, some work outside it and a number of threads. One third of the grid is held
//! out: nobody looks at it while a lock is designed, so that it can tell afterwards whether the design fits more than
//! the cells it was made with. Which cells these are follows from a fixed seed.
//!
//! There is a grid for mutexes alone and a smaller one for threads that also wait on condition variables.

use serde::{Deserialize, Serialize};

use crate::statistics::Random;

/// What a grid is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grid {
    /// Threads that only take the lock.
    #[default]
    Mutexes,
    /// Threads that also wait on condition variables.
    Conditions,
}

impl Grid {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Mutexes, Self::Conditions];

    /// Its cells, in order.
    fn cells(self) -> Vec<Cell> {
        let sections = (0..SECTIONS.len()).filter(|section| SECTIONS[*section].grid == self);
        let outside = |section| (0..OUTSIDE.len()).map(move |outside| (section, outside));
        let threads = |(section, outside)| THREADS.into_iter().map(move |threads| Cell { section, outside, threads });
        let is_meant = |cell: &Cell| match self {
            Self::Mutexes => true,
            Self::Conditions => cell.threads > 1 && BESIDE_CONDITIONS_NS.contains(&cell.outside_ns()),
        };
        sections.flat_map(outside).flat_map(threads).filter(is_meant).collect()
    }

    /// Its cells in the order of the draw: those that are held out, then the others.
    fn drawn(self) -> [Vec<Cell>; 2] {
        let mut cells = self.cells();
        Random::new(SEED).shuffle(&mut cells);
        let open = cells.split_off(cells.len() / 3);
        [cells, open]
    }

    /// All cells that are held out, or all others, in order.
    pub fn all(self, held_out: bool) -> Vec<Cell> {
        let [held, open] = self.drawn();
        let mut cells = if held_out { held } else { open };
        cells.sort_unstable();
        cells
    }

    /// One cell in so many of those that are meant, in order; those whose names contain the text of the filter. The
    /// error says that there is none.
    pub fn chosen(self, one_in: usize, held_out: bool, filter: Option<&str>) -> Result<Vec<Cell>, String> {
        let [held, open] = self.drawn();
        let mut cells = if held_out { held } else { open };
        cells.truncate(cells.len() / one_in);
        cells.sort_unstable();
        if let Some(filter) = filter {
            cells.retain(|cell| matches(&cell.name(), filter));
        }
        if cells.is_empty() {
            let which = if held_out { "held out" } else { "not held out" };
            let examples = self.examples(held_out);
            return Err(format!("no cell of that name is chosen; there are, for example: {examples} (cells {which})"));
        }
        Ok(cells)
    }

    fn examples(self, held_out: bool) -> String {
        let [held, open] = self.drawn();
        let names = if held_out { held } else { open }.into_iter().take(3).map(Cell::name);
        names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
    }
}

/// What threads do in the lock.
#[derive(Debug)]
pub struct Section {
    /// What it belongs to.
    grid: Grid,
    /// Its name.
    pub name: &'static str,
    /// The argument of the program.
    pub argument: &'static str,
    /// About how long it takes, in ns: the mean, and the longest.
    mean_ns: f64,
    longest_ns: f64,
}

const fn section(name: &'static str, argument: &'static str, mean_ns: f64, longest_ns: f64) -> Section {
    Section { grid: Grid::Mutexes, name, argument, mean_ns, longest_ns }
}

/// Threads that wait for each other on condition variables. An operation takes a change of threads at worst.
const fn meeting(name: &'static str, argument: &'static str) -> Section {
    Section { grid: Grid::Conditions, name, argument, mean_ns: 2e3, longest_ns: 100e3 }
}

pub(super) const SECTIONS: [Section; 12] = [
    section("1 line", "lines=1", 10.0, 100.0),
    section("16 lines", "lines=16", 100.0, 2_000.0),
    section("1 µs", "work=1000", 1e3, 1e3),
    section("3 µs", "work=3000", 3e3, 3e3),
    section("10 µs", "work=10000", 10e3, 10e3),
    section("30 µs", "work=30000", 30e3, 30e3),
    section("mostly .3 µs", "mix", 500.0, 100e3),
    section("64 KiB", "lines=1024", 5e3, 100e3),
    section("250 µs", "work=250000", 250e3, 250e3),
    meeting("in turn", "turns"),
    meeting("bounded queue", "queue"),
    meeting("barrier", "barrier"),
];

/// Work between two sections: its name, and its length in ns.
pub(super) const OUTSIDE: [(&str, u32); 5] = [("0", 0), (".1", 100), (".25", 250), ("2", 2000), ("20", 20_000)];

/// Those of [`OUTSIDE`] that are in the grid of condition variables.
const BESIDE_CONDITIONS_NS: [u32; 3] = [0, 2000, 20_000];

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

    /// What it belongs to.
    pub fn grid(self) -> Grid {
        self.section().grid
    }

    /// The cells of one thread that say what is physically possible here: with the work outside, and without. None if
    /// threads wait for each other.
    pub fn alone(self) -> Option<[Self; 2]> {
        let alone = [Self { threads: 1, ..self }, Self { threads: 1, outside: 0, ..self }];
        (self.grid() == Grid::Mutexes).then_some(alone)
    }
}

/// Whether a name contains a text, from the beginning of a word on: `3 µs` is not meant by `mostly .3 µs`.
fn matches(name: &str, text: &str) -> bool {
    name.match_indices(text).any(|(at, _)| at == 0 || name[..at].ends_with(' ') || text.starts_with(' '))
}

/// The cell of that name.
pub fn named(name: &str) -> Option<Cell> {
    Grid::ALL.into_iter().flat_map(Grid::cells).find(|cell| cell.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_is_held_out_and_always_the_same() {
        let (held, open) = (Grid::Mutexes.all(true), Grid::Mutexes.all(false));
        assert_eq!((held.len(), open.len()), (105, 210));
        assert!(held.iter().all(|cell| !open.contains(cell)));
        // What nobody has looked at must remain the same.
        let names: String = held.iter().map(|cell| cell.name()).collect();
        let sum = names.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        assert_eq!(sum, 3325848410);
    }

    #[test]
    fn each_section_and_each_number_of_threads_is_held_out_and_not() {
        for grid in Grid::ALL {
            for side in [grid.all(true), grid.all(false)] {
                let has = |is: &dyn Fn(&Cell) -> bool| side.iter().any(is);
                assert!(grid.cells().iter().all(|one| has(&|cell| cell.section == one.section)));
                assert!(grid.cells().iter().all(|one| has(&|cell| cell.threads == one.threads)));
            }
        }
        assert_eq!(Grid::Conditions.cells().len(), 54);
    }

    #[test]
    fn smaller_extents_are_part_of_larger_ones() {
        for (grid, held_out) in Grid::ALL.into_iter().flat_map(|grid| [(grid, false), (grid, true)]) {
            let of = |one_in| grid.chosen(one_in, held_out, None).expect("cells");
            let (quick, third, all) = (of(9), of(3), of(1));
            assert!(quick.len() * 9 <= all.len() && third.len() * 3 == all.len());
            assert!(quick.iter().all(|cell| third.contains(cell)) && third.iter().all(|cell| all.contains(cell)));
        }
    }

    #[test]
    fn cells_are_found_by_their_names_and_filters_never_reach_those_held_out() {
        for cell in Grid::ALL.into_iter().flat_map(Grid::cells) {
            assert_eq!(named(&cell.name()), Some(cell));
        }
        assert_eq!(named("1 line"), None);
        let some = Grid::Mutexes.chosen(1, false, Some("1 line, 0 µs outside")).expect("cells");
        assert!(
            some.iter().all(|cell| !Grid::Mutexes.drawn()[0].contains(cell) && cell.name().starts_with("1 line, 0 µs"))
        );
        assert!(Grid::Mutexes.chosen(1, false, Some("7 lines")).is_err());
    }

    #[test]
    fn filters_begin_with_a_word() {
        assert!(matches("3 µs, .25 µs outside, 4 threads", "3 µs, .25 µs") && matches("a, 4 threads", "4 threads"));
        assert!(!matches("mostly .3 µs, 0 µs outside, 64 threads", "3 µs") && !matches("a, 64 threads", "4 threads"));
    }

    #[test]
    fn windows_and_bounds() {
        let cell = named("250 µs, 0 µs outside, 64 threads").expect("a cell");
        assert_eq!((cell.window_ms(), cell.alone().expect("only the mutex")[0].window_ms()), (128, 100));
        let window = |name: &str| named(name).map(Cell::window_ms);
        assert_eq!(window("250 µs, 2 µs outside, 256 threads"), Some(512));
        assert_eq!(window("1 line, 2 µs outside, 256 threads"), Some(512));
        assert_eq!(named("in turn, 2 µs outside, 2 threads").map(Cell::alone), Some(None));
        assert!((cell.allowed_wait_ms() - (2.0 * 65.0 * 1.25 + 100.0)).abs() < 1e-9);
    }
}
