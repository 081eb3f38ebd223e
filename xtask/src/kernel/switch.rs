//! When CNA is in use, and what the kernel prints about it.

use anyhow::Result;

use super::build::Bench;
use super::gates::{check, image, sound, tortured, used};
use super::guest::{Boot, Layout};
use super::judge::Console;
use crate::steps::Tally;

/// What all begins with that it prints. The kernel's command line does not have the colon.
const PRINTED: &str = "numa_spinlock:";

/// One boot of `switch`.
struct Switch {
    name: &'static str,
    append: &'static str,
    layout: Layout,
    /// The CPU says that there is a hypervisor.
    knows: bool,
    is_used: bool,
    /// `None`: nothing about spinlocks.
    prints: Option<&'static str>,
}

/// Most boots are on four nodes, by default.
const USED: Switch = Switch {
    name: "",
    append: "",
    layout: Layout::Interleaved,
    knows: false,
    is_used: true,
    prints: Some("for up to 1000 us"),
};
const UNUSED: Switch = Switch { is_used: false, prints: None, ..USED };

pub(crate) const BAD_MODE: Option<&str> = Some("Malformed early option 'numa_spinlock'");
const BAD_THRESHOLD: Option<&str> = Some("Malformed early option 'numa_spinlock_threshold_us'");

const SWITCHES: [Switch; 9] = [
    Switch { name: "auto-one-node", layout: Layout::One, ..UNUSED },
    Switch { name: "on-one-node", append: "numa_spinlock=on", layout: Layout::One, ..USED },
    Switch { name: "auto-guest", knows: true, ..UNUSED },
    Switch { name: "on-guest", append: "numa_spinlock=on", knows: true, ..USED },
    Switch { name: "threshold", append: "numa_spinlock_threshold_us=250", prints: Some("for up to 250 us"), ..USED },
    // What the kernel does not understand changes nothing.
    Switch { name: "bad-mode", append: "numa_spinlock=yes", prints: BAD_MODE, ..USED },
    Switch { name: "no-mode", append: "numa_spinlock", prints: BAD_MODE, ..USED },
    Switch { name: "bad-threshold", append: "numa_spinlock_threshold_us=1000001", prints: BAD_THRESHOLD, ..USED },
    Switch { name: "no-threshold", append: "numa_spinlock_threshold_us", prints: BAD_THRESHOLD, ..USED },
];

/// When CNA is in use, and what is printed.
pub(crate) fn run(bench: &Bench) -> Result<Tally> {
    let image = image(bench)?;
    let mut tally = Tally::default();
    for Switch { name, append, layout, knows, is_used, prints } in SWITCHES {
        let plan = "torture spin 2 torture_type=spin_lock\n";
        let console = Boot { layout, knows, ..Boot::new(name, append, plan) }.run(bench, &image)?;
        tally += sound(&console, &[]);
        tally += tortured(name, &console.run("spin"));
        tally += used(&console, is_used);
        let (is_ok, found) = printed(&console, prints);
        tally += check(format!("{name}: what is printed"), is_ok, found);
        let handoffs = console.run("spin").handoffs();
        // A guest's simple locks have no queue.
        let queues = !knows || is_used;
        tally += check(
            format!("{name}: whether waiters queue"),
            (handoffs > 1000) == queues,
            format!("{handoffs} hand-offs"),
        );
    }
    Ok(tally)
}

/// Whether the console has this text, or with `None` no line of the switch's; and what it has.
pub(crate) fn printed(console: &Console, wanted: Option<&str>) -> (bool, String) {
    let lines: Vec<&str> =
        console.text.lines().filter(|line| line.contains(wanted.unwrap_or(PRINTED))).map(str::trim).collect();
    let found = if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") };
    (lines.is_empty() == wanted.is_none(), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_not_be_printed_is_noticed() {
        let quiet = Console::new("x", "Kernel command line: numa_spinlock=off\n");
        assert!(printed(&quiet, None).0 && !printed(&quiet, BAD_MODE).0);
        let loud = Console::new("x", "[ 0.1] numa_spinlock: waiters of the same NUMA node first, for up to 1000 us\n");
        assert!(!printed(&loud, None).0 && printed(&loud, USED.prints).0);
    }
}
