//! Malthusian Locks (Dice, EuroSys 2017): sections 6.7 and 6.11, figures 10 and 14: which waiters are called.

use super::{MCS, MCSCR, MCSCR_STP, USUAL};
use crate::figure::Figure;
use crate::point::{Effort, Setting};
use crate::row::{Goal, Group, Paper, Row};

const MESSAGES: Setting = Setting::new("sparc-t5", "messages").millis(10.0).effort(Effort::Light).medians();
const BUFFERS: Setting = Setting::new("sparc-t5", "buffers").millis(20.0).effort(Effort::Light).medians();
const BUFFERS_SEM: Setting = Setting::new("sparc-t5", "buffers-sem").millis(20.0).effort(Effort::Light).medians();
/// Prepended always, and but for one in 1,000 and in 10.
const LIFO: &str = "mcs:wait=spin,cond=lifo:0";
const MOSTLY: &str = "mcs:wait=spin,cond=lifo:1/1000";
const TENTH: &str = "mcs:wait=spin,cond=lifo:1/10";
const MOSTLY_SEM: &str = "mcs:wait=spin,sem=lifo:1/1000";

pub(crate) fn groups() -> Vec<Group> {
    vec![messages(), buffers()]
}

fn messages() -> Group {
    let each = |lock, paper: f64| {
        let figure = Figure::value("acquisitions", MESSAGES.under(lock, 16));
        Row::test(
            format!("Acquisitions per message: `{lock}`"),
            Paper::number(paper),
            Goal::within(paper, USUAL),
            figure,
        )
    };
    Group {
        title: "Producers and consumers, section 6.7",
        about: "Malthusian Locks, section 6.7 and figure 10. Machine `sparc-t5`, workload `messages`: 3 consumers, 13 \
                producers.",
        rows: vec![
            each(MCS, 3.0),
            each(MCSCR, 2.0),
            each(MCSCR_STP, 2.0),
            Row::test(
                "Messages: MCSCR-S / MCS-S",
                Paper::words("CR is better"),
                Goal::above(1.0),
                Figure::speed_up(MESSAGES.under(MCSCR, 16), MESSAGES.under(MCS, 16)),
            ),
        ],
    }
}

fn buffers() -> Group {
    let order = |what: &str, words: &str, goal, of, to| {
        Row::test(what, Paper::words(words), goal, Figure::speed_up(BUFFERS.under(of, 64), BUFFERS.under(to, 64)))
    };
    Group {
        title: "Buffer pool, figure 14",
        about: "Malthusian Locks, section 6.11. Machine `sparc-t5`, workloads `buffers` and `buffers-sem`, 64 threads, \
                MCS, all waiters poll; P is the probability that a waiter is put at the end.",
        rows: vec![
            order("Throughput: P = 1/10 / P = 1", "more", Goal::above(1.0), TENTH, MCS),
            order("Throughput: P = 1/1000 / P = 1/10", "more", Goal::above(1.0), MOSTLY, TENTH),
            order(
                "Throughput: P = 0 / P = 1/1000",
                "\"most of the throughput advantage\"",
                Goal::from(0.95, 1.1),
                LIFO,
                MOSTLY,
            ),
            Row::test(
                "Throughput: P = 1/1000, by a semaphore / by a condition variable",
                Paper::words("\"effectively identical\""),
                Goal::within(1.0, USUAL),
                Figure::speed_up(BUFFERS_SEM.under(MOSTLY_SEM, 64), BUFFERS.under(MOSTLY, 64)),
            ),
        ],
    }
}
