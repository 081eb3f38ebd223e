//! Shuffling (Kashyap's thesis defence on SOSP 2019's ShflLocks).

use super::{SHFL, TAS};
use crate::figure::Figure;
use crate::point::{Effort, Setting};
use crate::row::{Goal, Group, Paper, Row};

const MAP: Setting =
    Setting::new("8x24", "kvmap").with(&["--place", "packed"]).millis(10.0).effort(Effort::Many).medians();

/// Time enough for the first of each NUMA node to make its part of `cst-rw`.
const LISTS: Setting = Setting::new("8x24", "readdir").with(&["--place", "packed"]).millis(10.0).medians();
const CST: &str = "cst";
/// Where nobody waits, it does what the kernel's mutex does: one exchange to acquire, one to release.
const FUTEX: &str = "futex";
const SHFL_RW: &str = "shfl-rw";
const CST_RW: &str = "cst-rw";
const STOCK_RW: &str = "futex-rw";

pub(crate) fn groups() -> Vec<Group> {
    vec![shuffling()]
}

fn shuffling() -> Group {
    let keeps = |what: &str, words: &str, lock, of, to| {
        Row::test(
            what,
            Paper::words(words),
            Goal::above(0.9),
            Figure::speed_up(MAP.under(lock, of), MAP.under(lock, to)),
        )
    };
    let scale = |what: &str, of, to| keeps(what, "\"maintain performance\"", SHFL, of, to);
    let cst = |what: &str, of, to| keeps(what, "\"Maintains throughput\"", CST, of, to);
    let readers = |what: &str, words: &str, of, to, threads| {
        let figure = Figure::speed_up(LISTS.under(of, threads), LISTS.under(to, threads));
        Row::test(what, Paper::words(words), Goal::above(1.0), figure)
    };
    let open = |what: &str, words: &str, why| Row::open(what, Paper::words(words), why);
    Group {
        title: "Shuffling",
        about: "Scaling Synchronization Primitives (thesis defence), slides 25 to 32 and 74 to 81: creating files in \
                one directory with 192 cores in 8 sockets. The slides have numbers of memory (31, 32, 78), but none of \
                throughput. Slides 79 and 80: a directory is listed (`readdir`). The kernel's blocking locks, \
                \"stock\", do not exist here. For the mutex stands `futex`, and only with one thread: where nobody \
                waits, either takes one atomic operation to acquire and one to release. For the semaphore stands \
                `futex-rw`: readers of either count themselves in one word, but the kernel's add to it, where these \
                compare and swap, which fails while others come; so which is faster is compared, but by how much stock \
                is slower is not the kernel's. Machine `8x24`; the map stands in for the file system, `shfl` is the \
                blocking ShflLock; with `--place packed`, so that the first 24 threads are those of one socket. Of the \
                map six seeds, for they differ by a fifth; of `readdir` two.",
        rows: vec![
            scale("96 threads / 24 threads", 96, 24),
            scale("192 threads / 24 threads", 192, 24),
            scale("384 threads / 192 threads", 384, 192),
            Row::test(
                "ShflLock / test-and-set, 1 thread",
                Paper::words("\"TAS acquire and release\""),
                Goal::near(1.0, 0.05),
                Figure::speed_up(MAP.under(SHFL, 1), MAP.under(TAS, 1)),
            ),
            open(
                "Stock lock beyond one socket",
                "collapses",
                "the kernel's mutex, whose waiters queue and poll before they sleep, does not exist here, and `futex`, \
                whose waiters only sleep, does not stand for it where they wait",
            ),
            cst("CST, 96 threads / 24 threads", 96, 24),
            cst("CST, 192 threads / 24 threads", 192, 24),
            cst("CST, 384 threads / 192 threads", 384, 192),
            Row::test(
                "CST / stock, 1 thread",
                Paper::words("\"poor\""),
                Goal::below(0.95),
                Figure::speed_up(MAP.under(CST, 1), MAP.under(FUTEX, 1)),
            ),
            readers("Readers-writer locks: ShflLock / stock, 24 threads", "\"better\"", SHFL_RW, STOCK_RW, 24),
            readers("Readers-writer locks: ShflLock / stock, 96 threads", "\"better\"", SHFL_RW, STOCK_RW, 96),
            readers("Readers-writer locks: ShflLock / stock, 192 threads", "\"better\"", SHFL_RW, STOCK_RW, 192),
            readers("Readers-writer locks: CST / ShflLock, 96 threads", "\"better\"", CST_RW, SHFL_RW, 96),
            readers("Readers-writer locks: CST / ShflLock, 192 threads", "\"better\"", CST_RW, SHFL_RW, 192),
            open("Exim, 1 to 192 threads", "a curve", "this workload does not exist yet"),
        ],
    }
}
