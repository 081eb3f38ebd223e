//! The signs that a change of the simulator must not turn, whether the page is what its parts make, and
//! whether this simulator, with these locks, is the one that made it.

use std::io;

use anyhow::Result;
use flashlock_report::units::three_digits;

use crate::figure::Figure;
use crate::point::{Effort, Setting};
use crate::report::outline;
use crate::row::Group;
use crate::runs::Runs;
use crate::{Report, Simulator, reasons, table};

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

/// What was found, or what is wrong.
type Outcome = Result<String, String>;

/// A check that was made.
pub struct Check {
    /// What was checked.
    pub name: String,
    /// What was found, or what is wrong.
    pub outcome: Outcome,
}

/// Checks all of it: signs, the report of `docs/results/fidelity.json`, and the page, `docs/fidelity.md`.
pub fn check(simulator: &impl Simulator, report: &Result<Report>, page: io::Result<String>) -> Result<Vec<Check>> {
    let (signs, groups) = (signs(), table::groups());
    let again = rows_of_few(&groups);
    let figures = signs.iter().map(|sign| &sign.figure).chain(again.iter().map(|(_, _, figure)| *figure));
    let runs = Runs::make(figures.flat_map(|figure| &figure.points), simulator)?;
    let way = |figure: &Figure| match figure.evaluate(&runs)?.value {
        ratio if ratio > 1.0 => Ok(format!("{ratio:.2}")),
        ratio => Err(format!("{ratio:.2} is not above 1")),
    };
    let signs = signs.iter().map(|sign| Check { name: sign.name.to_owned(), outcome: way(&sign.figure) });
    let rows = again.iter().map(|&(title, what, figure)| {
        let page = report.as_ref().ok().and_then(|report| report.ours(title, what));
        Check { name: format!("as_on_the_page: {title}: {what}"), outcome: as_on_the_page(figure, &runs, page) }
    });
    let outcome = match report {
        Ok(report) => page_is_up_to_date(report, page, simulator),
        Err(error) => Err(format!("{error:#}")),
    };
    Ok(signs.chain(rows).chain([Check { name: "the_page_is_up_to_date".to_owned(), outcome }]).collect())
}

/// Rows with few threads: of which table, what they are called, and what they show.
fn rows_of_few(groups: &[Group]) -> Vec<(&'static str, &str, &Figure)> {
    let all = groups.iter().flat_map(|group| group.rows.iter().map(|row| (group.title, row)));
    let figures = all.filter_map(|(title, row)| Some((title, row.what.as_str(), row.figure.as_ref()?)));
    figures.filter(|(_, _, figure)| figure.points.iter().all(|point| point.threads <= FEW)).collect()
}

/// Whether a row comes out as the page says.
fn as_on_the_page(figure: &Figure, runs: &Runs, page: Option<f64>) -> Outcome {
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

/// Whether the page shows what the JSON says, and the JSON has the rows of the table.
fn page_is_up_to_date(report: &Report, page: io::Result<String>, simulator: &impl Simulator) -> Outcome {
    if report.outline() != outline(&table::groups()) {
        return Err("docs/results/fidelity.json has other rows than the table: run cargo xtask fidelity".to_owned());
    }
    let missing = reasons::missing(report, reasons::WRITTEN);
    if let [(title, what), ..] = missing[..] {
        let more = missing.len() - 1;
        return Err(format!("reasons.md does not say why '{what}' of '{title}' misses; and {more} others"));
    }
    let anew = report.clone().in_todays_words(simulator).map_err(|error| format!("{error:#}"))?;
    match page {
        Ok(_) if anew != *report => {
            Err("docs/results/fidelity.json has other words than the table and the machines' files: run cargo xtask \
                 fidelity --render"
                .to_owned())
        }
        Ok(page) if page == report.page() => Ok(format!("{} rows", report.outline().len())),
        Ok(_) => {
            Err("docs/fidelity.md differs from what is made of its parts: run cargo xtask fidelity --render".to_owned())
        }
        Err(error) => Err(format!("docs/fidelity.md: {error}")),
    }
}
