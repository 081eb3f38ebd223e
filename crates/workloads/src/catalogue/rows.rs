//! The list of workloads. A row is `(Variant, "name", runner => the page's start, { facts })`; the facts are fields of
//! [`WorkloadInfo`].

use super::{Arrays, Parameter, Runner, Traits, WorkloadInfo};
use crate::buffer_pool::Buffers;
use crate::directory::Files;
use crate::key_value::Mix;
use crate::lock_torture::Habits;
use crate::rand_array::Reads;
use crate::{buffer_pool, directory, key_value, lock_torture, producer_consumer, rand_array, sections, shared_lines};

const CNA: &str = "CNA (EuroSys'19)";
const CNA_PATCH: &str = "will-it-scale; CNA's kernel patch (v10)";
const MALTHUSIAN: &str = "Malthusian Locks (EuroSys'17)";
const RCL: &str = "Remote Core Locking (USENIX ATC'12)";
const SHFL_LOCKS: &str = "ShflLocks (SOSP'19), thesis defence";

/// The threads' buffers, and those of the pool.
const POOL: Arrays = Arrays { shared: Buffers::PAPER.count, lines: Buffers::PAPER.lines() };

const LINES: Parameter = Parameter {
    name: "lines",
    unit: "lines",
    least: 1,
    most: 1000,
    default: 1,
    meaning: "shared lines that a section reads and writes",
    paper: "1 to 30",
    section: "4.1",
    said: None,
};

define_workloads! {
    (Kvmap, "kvmap", run => key_value::start(run), {
        summary: "A search tree behind one lock, as in CNA (EuroSys 2019), section 7.1.1",
        does: "looks up, inserts and removes random keys of a search tree behind one lock: 1,024 keys, \
               `--lookups` 80 % (the rest is half inserts, half removes), `--external` ns of work outside the \
               lock",
        paper: CNA, section: "7.1.1, figures 6 to 10",
        millis: 4.0, brief_millis: 2.0,
        parameters: &[
            Parameter {
                name: "lookups", unit: "percent", least: 0, most: 100,
                default: Mix::PAPER.lookups,
                meaning: "lookups among 100 operations; the others are half inserts, half removes",
                paper: "80", section: "7.1.1",
                said: Some("% lookups"),
            },
            Parameter {
                name: "external", unit: "ns", least: 0, most: 1_000_000,
                default: Mix::PAPER.external,
                meaning: "work outside the lock, between two operations",
                paper: "0; more in figure 9, but not how much", section: "7.1.1",
                said: Some(" ns of work outside"),
            },
        ],
        traits: Traits::PLAIN,
    }),
    (Randarray, "randarray", run => rand_array::start(run), {
        summary: "Random reads of a shared array and of private ones, as in Malthusian Locks (EuroSys 2017), \
                  section 6.1",
        does: "under one lock, 100 reads from random places of a shared array of 1 MiB; outside, 400 from a \
               private one",
        paper: MALTHUSIAN, section: "6.1, figures 3 and 4",
        millis: 10.0, brief_millis: 3.0,
        parameters: &[],
        traits: Traits {
            arrays: Arrays { shared: 1, lines: Reads::PAPER.lines() },
            ..Traits::PLAIN
        },
    }),
    (Locktorture, "locktorture", run => lock_torture::start(run, Habits::PAPER), {
        summary: "The kernel's lock torture: random delays in the section, as in CNA, section 7.2.1",
        does: "the kernel's test of its spin lock: now and then a delay in the section, hardly any work \
               outside. Delays of 100 ms are replaced by a thousand times as many of 100 µs",
        paper: CNA, section: "7.2.1, figure 13",
        millis: 20.0, brief_millis: 4.0,
        parameters: &[],
        traits: Traits { in_kernel: true, ..Traits::PLAIN },
    }),
    (Lockstat, "lockstat", run => lock_torture::start(run, Habits::LOCKSTAT), {
        summary: "The same with lock statistics: shared lines are written after each acquisition",
        does: "the same as `locktorture`, and two shared lines of statistics are written in each section",
        paper: CNA, section: "7.2.1, figure 14",
        millis: 20.0, brief_millis: 4.0,
        parameters: &[],
        traits: Traits { in_kernel: true, ..Traits::PLAIN },
    }),
    (Open1, "open1", run => sections::start(run, &sections::OPEN1), {
        summary: "will-it-scale's open1, with threads: two locks. Lengths follow from one thread's speed; the \
                  number of lines is guessed",
        does: "opens and closes a file: two locks, of which that of the table of open files is busier",
        paper: CNA_PATCH, section: "cover letter",
        millis: 4.0, brief_millis: 2.0,
        parameters: &[],
        traits: Traits { in_kernel: true, ..Traits::PLAIN },
    }),
    (Lock2, "lock2", run => sections::start(run, &sections::LOCK2), {
        summary: "will-it-scale's lock2, with threads: one lock",
        does: "locks and unlocks a file through `fcntl`: one lock",
        paper: CNA_PATCH, section: "cover letter",
        millis: 4.0, brief_millis: 2.0,
        parameters: &[],
        traits: Traits { in_kernel: true, ..Traits::PLAIN },
    }),
    (LeveldbReadrandom, "leveldb-readrandom", run => {
        sections::start(run, &sections::LEVELDB_READRANDOM)
    }, {
        summary: "leveldb's readrandom: its database lock",
        does: "reads random keys of a LevelDB: the lock of the database",
        paper: CNA_PATCH, section: "cover letter",
        millis: 4.0, brief_millis: 2.0,
        parameters: &[],
        traits: Traits::PLAIN,
    }),
    (Buffers, "buffers", run => buffer_pool::start_with_condition(run), {
        summary: "Five buffers for all threads; threads wait on a condition variable, as in Malthusian Locks, \
                  section 6.11",
        does: "takes one of five buffers of 1 MiB from a pool, waiting for it on a condition variable; \
               exchanges 500 random words with a private one; gives it back; updates 5,000 private words",
        paper: MALTHUSIAN, section: "6.11, figure 14",
        millis: 40.0, brief_millis: 3.0,
        parameters: &[],
        traits: Traits { waits_inside: true, arrays: POOL, ..Traits::PLAIN },
    }),
    (BuffersSem, "buffers-sem", run => buffer_pool::start_with_permits(run), {
        summary: "The same; threads wait on a semaphore",
        does: "the same as `buffers`, but waits on a semaphore",
        paper: MALTHUSIAN, section: "6.11, figure 14",
        millis: 40.0, brief_millis: 3.0,
        parameters: &[],
        traits: Traits { waits_inside: true, arrays: POOL, ..Traits::PLAIN },
    }),
    (Messages, "messages", run => producer_consumer::start(run), {
        summary: "A queue of 10,000 messages, three consumers (with fewer than six threads, half of them), and \
                  producers, as in Malthusian Locks, section 6.7",
        does: "three threads (with fewer than six, half of them; at least two are needed) take messages from a \
               queue of 10,000, the others put them in: one lock, two condition variables. An operation is a \
               message",
        paper: MALTHUSIAN, section: "6.7, figure 10",
        millis: 10.0, brief_millis: 10.0,
        parameters: &[],
        traits: Traits { fewest_threads: 2, waits_inside: true, ..Traits::PLAIN },
    }),
    (Readdir, "readdir", run => directory::start(run), {
        summary: "Threads list a shared directory, or replace a file in it (only with --lookups below 100), as \
                  in ShflLocks' slides 79 and 80: for readers-writer locks",
        does: "lists the 64 files of a shared directory under its lock for reading. `--lookups` of 100 \
               operations list it (100); the others replace a file under the lock for writing. By default under the \
               readers-writer locks; a mutex excludes readers, too",
        paper: SHFL_LOCKS, section: "slides 79 and 80; the number of files is assumed",
        millis: 4.0, brief_millis: 2.0,
        parameters: &[Parameter {
            name: "lookups", unit: "percent", least: 0, most: 100,
            default: Files::USUAL.lists,
            meaning: "lists of the directory among 100 operations; the others replace a file",
            paper: "100", section: "slides 79 and 80",
            said: Some("% lists"),
        }],
        traits: Traits { has_readers: true, ..Traits::PLAIN },
    }),
    (RclLines, "rcl-lines", run => shared_lines::start_lines(run), {
        summary: "Sections that follow a chain of shared lines (--lines) and write them, with a delay between \
                  sections (--delay), as in RCL (USENIX ATC 2012), section 4.1",
        does: "under one lock, follows a chain of `--lines` shared lines (1) and writes them; outside, \
               `--delay` cycles (100)",
        paper: RCL, section: "4.1",
        millis: 20.0, brief_millis: 4.0,
        parameters: &[
            LINES,
            Parameter {
                name: "delay", unit: "cycles", least: 0, most: 100_000_000,
                default: shared_lines::HIGH_CONTENTION,
                meaning: "work between two sections, in cycles of the machine's clock; drawn uniformly, up \
                          to an eighth more or less",
                paper: "100 (high contention) to 2,000,000 (low)", section: "4.1",
                said: None,
            },
        ],
        traits: Traits::PLAIN,
    }),
    (RclLocks, "rcl-locks", run => shared_lines::start_locks(run), {
        summary: "The same with eleven locks, two of them hot, as in RCL, figure 13",
        does: "the same as `rcl-lines` with eleven locks, two of them hot; the delay outside is drawn",
        paper: RCL, section: "4.2, figure 13",
        // Ten time slices: there are more threads than CPUs.
        millis: 30.0, brief_millis: 10.0,
        parameters: &[Parameter { paper: "not given", section: "4.2", ..LINES }],
        traits: Traits::PLAIN,
    }),
    (OneInSix, "one-in-six", run => sections::start(run, &sections::ONE_IN_SIX), {
        summary: "1 µs under the lock, 5 µs outside: the example of Malthusian Locks, section 1",
        does: "1 µs under the lock, 5 µs outside",
        paper: MALTHUSIAN, section: "1, an example",
        millis: 20.0, brief_millis: 10.0,
        parameters: &[],
        traits: Traits::PLAIN,
    }),
}
