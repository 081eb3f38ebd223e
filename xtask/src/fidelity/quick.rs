//! `--quick`: the signs that a change of the simulator must not turn, whether the page is what its parts make, and
//! whether this simulator, with these locks, is the one that made it.

use std::fs;

use anyhow::Result;
use flashlock_report::units::three_digits;

use super::figure::Figure;
use super::page;
use super::point::{Effort, Setting};
use super::reasons;
use super::report::{Report, facts, outline};
use super::row::Group;
use super::runs::Runs;
use super::table;
use crate::steps::Tally;

/// Rows of which no run has more threads than this are run again: they take seconds.
const FEW: u32 = 2;
/// How far their figures may be from those of the page, as a share: the same simulator makes the same.
const NEAR: f64 = 0.01;

/// Which way something goes.
struct Sign {
    name: &'static str,
    /// Above 1 in the paper.
    figure: Figure,
}

fn signs() -> Vec<Sign> {
    let glance = |machine, workload| Setting::new(machine, workload).effort(Effort::Glance);
    let map = glance("2x18x2", "kvmap");
    let map_outside = map.with(&["--external", "700"]).millis(10.0);
    // Long enough for it to be altered with shuffle reduction at all.
    let altered = map_outside.millis(40.0);
    let array = glance("sparc-t5", "randarray").millis(40.0);
    let crowd = glance("8x24", "kvmap").millis(6.0);
    let (mcs, cna) = ("mcs:wait=spin", "cna:wait=spin");
    let gain = |setting: Setting, threads| Figure::speed_up(setting.under(cna, threads), setting.under(mcs, threads));
    let kernel = |setting: Setting| {
        Figure::speed_up(setting.under("qspin-cna:wait=spin,stay=0", 142), setting.under("qspin:wait=spin", 142))
    };
    let four = |workload| kernel(glance("4x18x2", workload));
    let buffers = glance("sparc-t5", "buffers").millis(20.0);
    let sign = |name, figure| Sign { name, figure };
    vec![
        sign("mcs_drops_from_one_thread_to_two", Figure::speed_up(map.under(mcs, 1), map.under(mcs, 2))),
        sign("cna_above_mcs_at_70_threads", gain(map, 70)),
        sign("cna_above_mcs_at_142_threads", gain(glance("4x18x2", "kvmap"), 142)),
        sign("cna_moves_fewer_lines_than_mcs", Figure::ratio("remote_lines", map.under(mcs, 70), map.under(cna, 70))),
        sign("cna_above_stock_in_locktorture", kernel(glance("4x18x2", "locktorture").millis(4.0))),
        sign("cna_above_stock_in_open1", four("open1")),
        sign("cna_above_stock_in_lock2", four("lock2")),
        sign("cna_above_stock_in_leveldb", four("leveldb-readrandom")),
        sign(
            "mcs_gains_by_a_second_thread_with_work_outside",
            Figure::speed_up(map_outside.under(mcs, 2), map_outside.under(mcs, 1)),
        ),
        sign(
            "shuffle_reduction_alters_the_queue_less",
            Figure::ratio(
                "alterations_per_1000",
                altered.under(cna, 4),
                altered.under("cna:wait=spin,reduction=256", 4),
            ),
        ),
        sign(
            "mcscr_above_mcs_at_32_threads",
            Figure::speed_up(array.under("mcscr:wait=stp", 32), array.under(mcs, 32)),
        ),
        sign(
            "mcscr_lets_fewer_threads_circulate",
            Figure::ratio("lwss", array.under(mcs, 32), array.under("mcscr:wait=stp", 32)),
        ),
        sign(
            "mcscr_uses_fewer_cpus",
            Figure::ratio("cpus_used", array.under(mcs, 32), array.under("mcscr:wait=stp", 32)),
        ),
        sign(
            "parking_above_spinning_on_too_few_cpus",
            Figure::speed_up(array.under("mcs:wait=stp", 256), array.under(mcs, 256)),
        ),
        sign(
            "newest_waiter_first_above_eldest_first_in_the_buffer_pool",
            Figure::speed_up(buffers.under("mcs:wait=spin,cond=lifo:1/1000", 64), buffers.under("mcs:wait=spin", 64)),
        ),
        sign("shfl_above_mcs_on_too_few_cpus", Figure::speed_up(crowd.under("shfl", 384), crowd.under(mcs, 384))),
    ]
}

/// Checks all of it.
pub(super) fn check(fresh: bool) -> Result<Tally> {
    let (signs, groups) = (signs(), table::groups());
    let again = rows_of_few(&groups);
    let figures = signs.iter().map(|sign| &sign.figure).chain(again.iter().map(|(_, _, figure)| *figure));
    let points: Vec<_> = figures.flat_map(|figure| figure.points.iter().copied()).collect();
    let runs = Runs::make(&points, fresh)?;
    let mut tally = Tally::default();
    for Sign { name, figure } in &signs {
        let found = figure.evaluate(&runs).map(|ours| ours.value);
        tally += told(
            name,
            match found {
                Ok(ratio) if ratio > 1.0 => Ok(format!("{ratio:.2}")),
                Ok(ratio) => Err(format!("{ratio:.2} is not above 1")),
                Err(how) => Err(how),
            },
        );
    }
    let report = Report::read();
    for &(title, what, figure) in &again {
        let page = report.as_ref().ok().and_then(|report| report.ours(title, what));
        tally += told(&format!("as_on_the_page: {title}: {what}"), as_on_the_page(figure, &runs, page));
    }
    tally += told("the_page_is_up_to_date", page_is_up_to_date());
    Ok(tally)
}

/// Rows with few threads: of which table, what they are called, and what they show.
fn rows_of_few(groups: &[Group]) -> Vec<(&'static str, &str, &Figure)> {
    let all = groups.iter().flat_map(|group| group.rows.iter().map(|row| (group.title, row)));
    let figures = all.filter_map(|(title, row)| Some((title, row.what.as_str(), row.figure.as_ref()?)));
    figures.filter(|(_, _, figure)| figure.points.iter().all(|point| point.threads <= FEW)).collect()
}

/// Whether a row comes out as the page says.
fn as_on_the_page(figure: &Figure, runs: &Runs, page: Option<f64>) -> Result<String, String> {
    let (now, page) = (figure.evaluate(runs)?.value, page.ok_or("the page has no figure of it")?);
    if (now - page).abs() <= NEAR * page.abs() {
        Ok(three_digits(now))
    } else {
        Err(format!(
            "{}, and not {}: the page was made by another simulator, or with other locks; run cargo xtask fidelity",
            three_digits(now),
            three_digits(page)
        ))
    }
}

/// One line for each check, as the test programs print it.
fn told(name: &str, outcome: Result<String, String>) -> Tally {
    match outcome {
        Ok(what) => {
            println!("ok {name}: {what}");
            Tally::PASSED
        }
        Err(why) => {
            println!("not ok {name}: {why}");
            Tally::FAILED
        }
    }
}

/// Whether the page shows what the JSON says, and the JSON has the rows of the table.
fn page_is_up_to_date() -> Result<String, String> {
    let report = Report::read().map_err(|error| format!("{error:#}"))?;
    if report.outline() != outline(&table::groups()) {
        return Err("docs/results/fidelity.json has other rows than the table: run cargo xtask fidelity".to_owned());
    }
    let missing = reasons::missing(&report, reasons::WRITTEN);
    if let [(title, what), ..] = missing[..] {
        let more = missing.len() - 1;
        return Err(format!("reasons.md does not say why '{what}' of '{title}' misses; and {more} others"));
    }
    let anew = report.clone().told_anew(&table::groups(), facts).map_err(|error| format!("{error:#}"))?;
    match fs::read_to_string(page::file()) {
        Ok(_) if anew != report => {
            Err("docs/results/fidelity.json has other words than the table and the machines' files: run cargo xtask \
                 fidelity --render"
                .to_owned())
        }
        Ok(page) if page == page::render(&report) => Ok(format!("{} rows", report.outline().len())),
        Ok(_) => {
            Err("docs/fidelity.md differs from what is made of its parts: run cargo xtask fidelity --render".to_owned())
        }
        Err(error) => Err(format!("docs/fidelity.md: {error}")),
    }
}
