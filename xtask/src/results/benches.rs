//! What is measured: programs of `tests/bench`, how they are called, and which of their figures count.

use flashlock_locks::catalogue::LockId;
use flashlock_report::results::{self, Better};

use crate::locks::Kind;

/// One results file.
pub(crate) struct Bench {
    /// The file's name, and the argument of `cargo xtask results`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// What its locks are for.
    pub(crate) kind: Kind,
    /// The program in `tests/bench`.
    pub(crate) program: &'static str,
    pub(crate) groups: Vec<Group>,
    /// The figure that is compared with glibc's.
    pub(crate) metric: Metric,
    /// Figures that are reported as they are.
    pub(crate) further: &'static [Metric],
    /// Whether a chart is drawn.
    pub(crate) charted: bool,
}

/// Cells that stand in one table.
pub(crate) struct Group {
    pub(crate) title: String,
    /// What the columns are.
    pub(crate) axis: &'static str,
    pub(crate) cells: Vec<Cell>,
}

/// One way of calling the program.
pub(crate) struct Cell {
    /// The column's heading; a number if a chart is drawn.
    pub(crate) heading: String,
    pub(crate) arguments: Vec<String>,
    /// The machine that the locks are to imagine.
    pub(crate) topology: Option<&'static str>,
}

/// A figure in what the program prints.
pub(crate) struct Metric {
    /// The field of the program's JSON.
    pub(crate) field: &'static str,
    /// What it is, with its unit.
    pub(crate) title: &'static str,
    /// What is good.
    pub(crate) better: Better,
}

impl Bench {
    /// All figures, the one that is compared first.
    pub(crate) fn metrics(&self) -> Vec<results::Metric> {
        let metric = |metric: &Metric| results::Metric {
            name: metric.field.to_owned(),
            title: metric.title.to_owned(),
            better: metric.better,
        };
        std::iter::once(&self.metric).chain(self.further).map(metric).collect()
    }

    /// The groups, as a results file describes them.
    pub(crate) fn described(&self) -> Vec<results::Group> {
        let group = |group: &Group| results::Group {
            title: group.title.clone(),
            axis: group.axis.to_owned(),
            cells: group.cells.iter().map(|cell| cell.heading.clone()).collect(),
            merit: self.metric.field.to_owned(),
        };
        self.groups.iter().map(group).collect()
    }
}

/// How many threads share the hot lock.
const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// How many cache lines a critical section writes.
const LINES: [u32; 2] = [1, 16];

pub(crate) fn all() -> [Bench; 6] {
    [pair(), hot(), million(), start(), rw_pair(), rw_hot()]
}

fn pair() -> Bench {
    let cell = |heading: &str, options: &[&str]| Cell {
        heading: heading.to_owned(),
        arguments: options.iter().map(|option| (*option).to_owned()).collect(),
        topology: None,
    };
    let group = |title: &str, kind: &str| Group {
        title: title.to_owned(),
        axis: "process",
        cells: vec![
            cell("second thread alive", &["--kind", kind]),
            cell("single thread", &["--kind", kind, "--single"]),
        ],
    };
    Bench {
        name: "pair",
        title: "Lock and unlock without contention",
        about: "One thread locks and unlocks one mutex, again and again, or a spinlock, or takes and gives the one \
                permit of a semaphore. While a process has one thread, glibc leaves out a mutex's atomic instructions, \
                and flashlock those of mutexes and semaphores; a second one, asleep, ends that.",
        kind: Kind::Mutex,
        program: "pair",
        groups: vec![
            group("One pair of lock and unlock", "default"),
            group("One pair of pthread_spin_lock and pthread_spin_unlock", "spin"),
            group("One pair of sem_wait and sem_post", "sem"),
        ],
        metric: Metric { field: "median_ns", title: "Time, ns", better: Better::Less },
        further: &[Metric { field: "min_ns", title: "Least time of a batch of 1,000 pairs, ns", better: Better::Less }],
        charted: false,
    }
}

fn hot() -> Bench {
    let cell = |lines: u32, threads: u32| Cell {
        heading: threads.to_string(),
        arguments: ["--threads", &threads.to_string(), "--lines", &lines.to_string()].map(str::to_owned).to_vec(),
        topology: None,
    };
    let group = |lines: u32| Group {
        title: format!("Critical section writes {lines} cache line{}", if lines == 1 { "" } else { "s" }),
        axis: "threads",
        cells: THREADS.iter().map(|&threads| cell(lines, threads)).collect(),
    };
    Bench {
        name: "hot",
        title: "One hot lock",
        about: "All threads take the same mutex: in it they read and write some shared cache lines, outside they pause \
                for about 100 cycles.",
        kind: Kind::Mutex,
        program: "hotlock",
        groups: LINES.iter().map(|&lines| group(lines)).collect(),
        metric: Metric { field: "ops_per_ms", title: "Critical sections per ms", better: Better::More },
        further: &[
            Metric {
                field: "fairness",
                title: "Share of the sections that fell to the busier half of the threads (0.5 is fair)",
                better: Better::Less,
            },
            Metric {
                field: "wait_p99_ns",
                title: "99th percentile of the wait for the lock, ns",
                better: Better::Less,
            },
            Metric { field: "cpu_seconds", title: "CPU time used, s", better: Better::Less },
        ],
        charted: true,
    }
}

/// Eight NUMA nodes, as the machine of the ShflLocks experiments has.
const EIGHT_NODES: &str = "8x24x1";

fn million() -> Bench {
    let cell = |heading: &str, arguments: &[&str]| Cell {
        heading: heading.to_owned(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        topology: None,
    };
    let imagined = |heading, arguments: &[&str]| Cell { topology: Some(EIGHT_NODES), ..cell(heading, arguments) };
    let group = |title: &str, axis, cells| Group { title: title.to_owned(), axis, cells };
    let here = vec![cell("1,000,000 mutexes, 64 threads", &[])];
    let there = vec![
        imagined("one of eight", &["--threads", "8", "--calm"]),
        imagined("all eight", &["--threads", "8", "--calm", "--everywhere"]),
    ];
    Bench {
        name: "million",
        title: "Memory of a million mutexes",
        about: "A million mutexes, each locked at least once by one of 64 threads, and some of them with contention. \
                And on an imagined machine of eight NUMA nodes (`FLASHLOCK_TOPOLOGY=8x24x1`), with one thread on each, \
                each locked once from one node, or once from each: the experiment of the ShflLocks thesis defence, \
                slides 31, 32 and 78, with mutexes in the place of files. There a hierarchical lock is several times \
                as large as others, because its paper makes it whole at initialisation. Here `hmcs`, `cst` and the \
                cohort locks take their side blocks when a thread first waits. So in bytes of a lock that nobody has \
                waited for: `shfl` < `hmcs` and `cst` < glibc's.",
        kind: Kind::Mutex,
        program: "million",
        groups: vec![
            group("Resident memory", "", here),
            group("Resident memory, eight NUMA nodes", "each mutex is locked from", there),
        ],
        metric: Metric { field: "vm_rss_kib", title: "Resident memory of the process, KiB", better: Better::Less },
        further: &[
            Metric {
                field: "extra_bytes_per_mutex",
                title: "Bytes for each mutex beyond the 40 of `pthread_mutex_t`, threads included",
                better: Better::Less,
            },
            Metric {
                field: LOCK_BYTES,
                title: "Bytes of a lock: of its state in the mutex (glibc: 40), and beyond",
                better: Better::Less,
            },
        ],
        charted: false,
    }
}

fn start() -> Bench {
    let cell = Cell { heading: "true".to_owned(), arguments: Vec::new(), topology: None };
    Bench {
        name: "start",
        title: "Start of a program",
        about: "A program that does nothing, `true`, is started and ends, again and again. What flashlock adds is for \
                the most part the dynamic linker's: a library more to open, to map and to relocate. It is the same \
                whichever lock is chosen.",
        kind: Kind::Mutex,
        program: "start",
        groups: vec![Group { title: "One start".to_owned(), axis: "program", cells: vec![cell] }],
        metric: Metric { field: "median_us", title: "Time, µs", better: Better::Less },
        further: &[Metric { field: "min_us", title: "Least time, µs", better: Better::Less }],
        charted: false,
    }
}

/// The figure that [`lock_bytes`] makes.
pub(crate) const LOCK_BYTES: &str = "lock_bytes";
/// Of `pthread_mutex_t`: glibc's lock is all of it.
const MUTEX_BYTES: u32 = 40;

/// Of a program that says how many bytes a mutex takes beyond its own: the bytes of a lock as such.
pub(crate) fn lock_bytes(lock: &str, beyond: f64) -> f64 {
    let name = lock.split(':').next().unwrap_or(lock);
    beyond + f64::from(LockId::from_name(name).map_or(MUTEX_BYTES, |lock| lock.info().bytes))
}

fn rw_pair() -> Bench {
    let cell = |heading: &str, what: &str| Cell {
        heading: heading.to_owned(),
        arguments: ["--kind", what].map(str::to_owned).to_vec(),
        topology: None,
    };
    let cells = vec![cell("read", "read"), cell("write", "write")];
    let title = "One pair of lock and unlock, a second thread alive";
    Bench {
        name: "rw-pair",
        title: "Readers-writer lock and unlock without contention",
        about: "One thread locks and unlocks one readers-writer lock, again and again, while another one is asleep.",
        kind: Kind::Rw,
        program: "pair",
        groups: vec![Group { title: title.to_owned(), axis: "acquired to", cells }],
        metric: Metric { field: "median_ns", title: "Time, ns", better: Better::Less },
        further: &[Metric { field: "min_ns", title: "Least time of a batch of 1,000 pairs, ns", better: Better::Less }],
        charted: false,
    }
}

/// Of so many sections one writes.
const WRITE_ONE_IN: [u32; 2] = [100, 10];

fn rw_hot() -> Bench {
    let cell = |one_in: u32, threads: u32| Cell {
        heading: threads.to_string(),
        arguments: ["--threads", &threads.to_string(), "--lines", "1", "--write-one-in", &one_in.to_string()]
            .map(str::to_owned)
            .to_vec(),
        topology: None,
    };
    let group = |one_in: u32| Group {
        title: format!("One critical section in {one_in} writes"),
        axis: "threads",
        cells: THREADS.iter().map(|&threads| cell(one_in, threads)).collect(),
    };
    Bench {
        name: "rw-hot",
        title: "One hot readers-writer lock",
        about: "All threads take the same readers-writer lock, mostly to read: in it they read, or write, a shared \
                cache line, outside they pause for about 100 cycles.",
        kind: Kind::Rw,
        program: "hotrw",
        groups: WRITE_ONE_IN.iter().map(|&one_in| group(one_in)).collect(),
        metric: Metric { field: "ops_per_ms", title: "Critical sections per ms", better: Better::More },
        further: &[
            Metric {
                field: "write_wait_p99_ns",
                title: "99th percentile of a writer's wait for the lock, ns",
                better: Better::Less,
            },
            Metric {
                field: "read_wait_p99_ns",
                title: "99th percentile of a reader's wait for the lock, ns",
                better: Better::Less,
            },
            Metric { field: "cpu_seconds", title: "CPU time used, s", better: Better::Less },
        ],
        charted: true,
    }
}

#[cfg(test)]
mod tests {
    use flashlock_report::results::Results;

    use super::*;
    use crate::workspace;

    #[test]
    fn the_locks_measured_have_the_sizes_of_the_catalogue() {
        let file = workspace::path("docs/results/million.json");
        let results = Results::read(&file).expect("the results are there");
        for point in &results.points {
            assert!(!point.runs.is_empty(), "{}, {}: no run", point.lock, point.cell);
            for run in &point.runs {
                let of_state = run.values[LOCK_BYTES] - run.values["extra_bytes_per_mutex"];
                let now = lock_bytes(&point.lock, 0.0);
                assert!((of_state - now).abs() < 0.01, "{}: {of_state} bytes when measured, {now} now", point.lock);
            }
        }
    }

    #[test]
    fn a_lock_that_nobody_waited_for_is_smaller_than_glibcs_also_if_hierarchical() {
        let file = workspace::path("docs/results/million.json");
        let results = Results::read(&file).expect("the results are there");
        let bytes = |lock: &str, cell: &str| {
            let point = results.points.iter().find(|point| point.lock == lock && point.cell == cell).expect("measured");
            let runs: Vec<f64> = point.runs.iter().map(|run| run.values[LOCK_BYTES]).collect();
            assert!(!runs.is_empty(), "{lock}, {cell}: no run");
            (runs.iter().copied().fold(f64::INFINITY, f64::min), runs.into_iter().fold(0.0, f64::max))
        };
        let order = [["shfl", "hmcs"], ["shfl", "cst"], ["hmcs", "glibc"], ["cst", "glibc"]];
        for (pair, cell) in order.iter().flat_map(|pair| ["one of eight", "all eight"].map(|cell| (pair, cell))) {
            let [less, more] = pair.map(|lock| bytes(lock, cell));
            assert!(less.1 < more.0, "{cell}: {pair:?}: {less:?}, {more:?}");
        }
    }
}
