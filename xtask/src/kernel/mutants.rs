//! Seeded faults, each of which a gate must catch.

use anyhow::{Context, Result};

use super::build::{Bench, Image};
use super::gates::{bound_boot, check, image, longest_wait, tortured, waits, within_bound};
use super::guest::{Boot, Layout};
use super::judge::Console;
use crate::edit::Edit;
use crate::steps::Tally;

const CNA: &str = "kernel/locking/qspinlock_cna.h";

/// How a fault is detected.
#[derive(Clone, Copy, Debug)]
enum Finds {
    /// locktorture, our module or the kernel complains, or the guest does not come to its end.
    Torture,
    /// A thread waits for longer than the bound.
    Bound,
    /// Urgent waiters are served in another order.
    Urgent,
    /// Hand-offs do not stay on a node.
    Share,
}

struct Mutant {
    name: &'static str,
    edit: Edit,
    finds: Finds,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "the second queue becomes the main queue of a lock that looks free",
        edit: Edit { file: CNA, from: "to_cna(last)->self | _Q_LOCKED_VAL)) {", to: "to_cna(last)->self)) {" },
        finds: Finds::Torture,
    },
    Mutant {
        name: "a second queue that returns is lost",
        edit: Edit { file: CNA, from: "			last->next = next;\n			next = first;\n", to: "			last->next = first;\n" },
        finds: Finds::Torture,
    },
    Mutant {
        name: "the last waiter is culled, too",
        edit: Edit { file: CNA, from: "	if (!second)\n		return false;\n", to: "" },
        finds: Finds::Torture,
    },
    Mutant {
        name: "the ring is not closed again",
        edit: Edit { file: CNA, from: "		first->next = last->next;\n", to: "		first->next = NULL;\n" },
        finds: Finds::Torture,
    },
    Mutant {
        name: "the deadline never comes",
        edit: Edit { file: CNA, from: "		me->deadline = CNA_RETURN_NOW;\n		return 0;\n", to: "		return 0;\n" },
        finds: Finds::Bound,
    },
    Mutant {
        name: "each head sets the deadline anew",
        edit: Edit {
            file: CNA,
            from: "			to_cna(next)->deadline = me->deadline;\n",
            to: "			to_cna(next)->deadline = local_clock() + cna_threshold;\n",
        },
        finds: Finds::Bound,
    },
    Mutant {
        name: "urgent waiters are culled",
        edit: Edit {
            file: CNA,
            from: "urgent ? CNA_URGENT : numa_node_id()",
            to: "urgent ? numa_node_id() : numa_node_id()",
        },
        finds: Finds::Urgent,
    },
    Mutant {
        name: "each waiter is at home",
        edit: Edit {
            file: CNA,
            from: "	return nid == to_cna(head)->home ||",
            to: "	return nid != to_cna(head)->home ||",
        },
        finds: Finds::Share,
    },
];

const SPIN: &str = "torture spin 10 torture_type=spin_lock acq_writer_lim=5000\n";
/// Held for so long that another CPU runs meanwhile: locktorture seldom does, where one CPU after the other is
/// simulated.
const HELD: &str = "bound held 4 40\nbound sparse 6 30 100\n";

/// In µs: so that the bound is short, and a queue without one soon beyond it.
const THRESHOLD: u64 = 300;

impl Finds {
    const ALL: [Self; 4] = [Self::Torture, Self::Bound, Self::Urgent, Self::Share];

    /// Boots what shows such faults.
    fn boot(self, name: &str, bench: &Bench, image: &Image) -> Result<Console> {
        let boot = match self {
            Self::Torture => Boot::new(name, "", &format!("{SPIN}{HELD}")),
            Self::Bound => bound_boot(name, THRESHOLD, Layout::Crowded),
            Self::Urgent => Boot::new(name, "", "torture irq 5 torture_type=spin_lock_irq\n"),
            Self::Share => Boot::new(name, "", SPIN),
        };
        boot.run(bench, image)
    }

    /// What shows that there is one.
    fn found(self, console: &Console) -> Option<String> {
        complaint(console).or_else(|| match self {
            Self::Torture => None,
            Self::Bound => {
                let failed = within_bound(console, THRESHOLD, longest_wait).failed;
                (failed > 0).then(|| format!("{failed} waits beyond the bound"))
            }
            Self::Urgent => {
                let culled = console.run("irq").event("cna_set_aside");
                (culled > 10).then(|| format!("{culled} culled"))
            }
            Self::Share => {
                let share = console.run("spin").share();
                (share < 90.0).then(|| format!("{share:.2} % on a node"))
            }
        })
    }

    /// Nothing is found in an image without a fault. Otherwise, what is found in a mutant would prove nothing. The runs
    /// that are looked at must have taken place.
    fn control(self, bench: &Bench, image: &Image) -> Result<Tally> {
        let name = format!("control-{}", format!("{self:?}").to_lowercase());
        let console = self.boot(&name, bench, image)?;
        let found = self.found(&console);
        let mut tally = check(
            format!("{name}: nothing is found without a fault"),
            found.is_none(),
            found.unwrap_or_else(|| "nothing was noticed".to_owned()),
        );
        let run = match self {
            Self::Torture | Self::Share => "spin",
            Self::Urgent => "irq",
            Self::Bound => return Ok(tally),
        };
        tally += tortured(&format!("{name} {run}"), &console.run(run));
        if matches!(self, Self::Torture) {
            for run in ["held", "sparse"] {
                let found = waits(&console.run(run));
                tally += check(format!("{name}: {run}"), found.is_some(), format!("{found:?}"));
            }
        }
        Ok(tally)
    }
}

pub(crate) fn run(bench: &Bench) -> Result<Tally> {
    let mut tally = Tally::default();
    let sane = image(bench)?;
    for finds in Finds::ALL {
        tally += finds.control(bench, &sane)?;
    }
    for (index, mutant) in MUTANTS.iter().enumerate() {
        let image = match bench.image("", &[mutant.edit]) {
            Ok(image) => image.context("no image")?,
            // The others are tried all the same.
            Err(error) => {
                tally += check(format!("built: {}", mutant.name), false, format!("{error:#}"));
                continue;
            }
        };
        let console = mutant.finds.boot(&format!("mutant-{}", index + 1), bench, &image)?;
        let found = mutant.finds.found(&console);
        tally += check(
            format!("caught: {}", mutant.name),
            found.is_some(),
            found.unwrap_or_else(|| "nothing was noticed".to_owned()),
        );
    }
    // The kernel's own lock that does not exclude.
    let busted = Boot::new("busted", "", "torture busted 5 torture_type=lock_busted\n").run(bench, &sane)?;
    let found = complaint(&busted);
    tally += check("caught: lock_busted", found.is_some(), found.unwrap_or_else(|| "nothing was noticed".to_owned()));
    Ok(tally)
}

/// What gives a fault away, if anything.
pub(crate) fn complaint(console: &Console) -> Option<String> {
    if let Some(first) = console.complaints(&[]).first() {
        return Some((*first).to_owned());
    }
    if !console.is_done {
        return Some("the guest did not come to its end".to_owned());
    }
    for name in ["spin", "irq", "busted"] {
        if let Some(writes) = console.run(name).writes()
            && (writes.failed || writes.least == 0)
        {
            return Some(format!("{writes:?}"));
        }
    }
    None
}
