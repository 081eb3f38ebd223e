//! Measures the costs of the operating system.

use flashlock_measure::costs::effort::Effort;
use flashlock_measure::costs::kernel;
use flashlock_measure::cpu;
use flashlock_sim::description::Scheduler;

use super::measure::{Session, TRIES};
use super::sheet::Sheet;

impl Session {
    /// The cost of a system call, in µs.
    pub(super) fn calls(&mut self, home: Option<u32>) -> f64 {
        let effort = self.effort;
        let Self { found, sheet, .. } = self;
        let os = &mut found.scheduler;
        let here = |measure: fn(Effort) -> Option<f64>| cpu::on(home?, || measure(effort))?;
        sheet.put("system call", here(kernel::syscall), "µs", "a futex wake-up without a sleeper", &mut os.syscall_us);
        let syscall = os.syscall_us;
        // If it is less than the calls alone, the measurement failed.
        let switch = home.and_then(|cpu| (0..TRIES).find_map(|_| kernel::switch(effort, cpu).filter(|us| *us > 0.0)));
        let how = "two threads of one CPU that yield to each other, minus the calls";
        sheet.put("context switch", switch, "µs", how, &mut os.switch_us);
        let slice = home.and_then(|cpu| kernel::slice(effort, cpu)).filter(|us| *us >= 1.0);
        sheet.put(
            "time slice",
            slice,
            "µs",
            "how long each of two busy threads of one CPU does not run",
            &mut os.slice_us,
        );
        syscall
    }

    pub(super) fn wake_ups(&mut self, home: Option<u32>, syscall: f64) {
        let effort = self.effort;
        let pair = (0..=self.shape.farthest()).find_map(|distance| self.shape.pairs(distance, 1).first().copied());
        let here = || home.map(|home| [home, home]);
        let Self { found, sheet, .. } = self;
        let os = &mut found.scheduler;
        let woken = |idle| kernel::wake_up(effort, pair.or_else(here)?, idle);
        let wakes: Vec<_> = kernel::IDLE_US.iter().map(|&idle| (idle, woken(idle))).collect();
        if let Some(local) = home.and_then(|home| kernel::wake_up(effort, [home, home], 0)) {
            sheet.show(
                "wake-up on one CPU",
                (local.call - syscall).max(0.0),
                "µs",
                "the same, of a thread on the waker's CPU",
            );
        }
        let call =
            wakes.first().and_then(|(_, wake)| wake.as_ref()).map(|wake| wake.call - syscall).filter(|us| *us > 0.0);
        sheet.put("wake-up", call, "µs", "a futex wake-up of a sleeping thread, minus the call", &mut os.wake_us);
        if pair.is_none() || wakes.iter().any(|(_, wake)| wake.is_none()) {
            sheet.miss("how long an idle CPU takes to wake up (a second core is needed)");
            return;
        }
        let busy = os.switch_us + syscall;
        let latency = |wake: kernel::WakeUp| (wake.latency - busy).max(0.0);
        let wakes: Vec<_> = wakes.into_iter().filter_map(|(idle, wake)| Some((idle, latency(wake?)))).collect();
        os.idle_us = idle(&wakes, sheet);
    }

    /// The slack of timers. Switches and wake-ups must be known.
    pub(super) fn timed_sleeps(&mut self, home: Option<u32>) {
        let effort = self.effort;
        let late = home.and_then(|home| cpu::on(home, || kernel::oversleep(effort))?);
        let Self { found, sheet, .. } = self;
        let os = &mut found.scheduler;
        let slack = late.map(|late| slack(os, f64::from(kernel::SLEEP_US), late));
        let how = "by how much a sleep of 200 µs is too long, minus the CPU's wake-up and the switch";
        sheet.put("timer slack", slack, "µs", how, &mut os.timer_slack_us);
    }
}

/// The timer's slack, in µs, if a sleep of `asked` µs lasts `late` µs too long. What the simulation adds by itself
/// is part of that: the switch to the thread, and the wake-up of its CPU, which was idle while the timer ran.
fn slack(os: &Scheduler, asked: f64, late: f64) -> f64 {
    let without = |wake_up: f64| (late - os.switch_us - wake_up).max(0.0);
    // Which wake-up it was depends on the slack, which depends on the wake-up: the longest one that the timer reaches.
    let reached = |&(idle, wake_up): &(f64, f64)| Some(without(wake_up)).filter(|slack| asked + slack >= idle);
    os.idle_us.iter().rev().find_map(reached).unwrap_or_else(|| without(0.0))
}

/// The cost of waking a CPU that was idle for so many µs, in order: `(idle, latency)`.
fn idle(wakes: &[(u32, f64)], sheet: &mut Sheet) -> Vec<(f64, f64)> {
    let mut longest = 0.0;
    let mut one = |&(idle, latency): &(u32, f64)| {
        let name = format!("idle CPU, after {idle} µs");
        let mut us = 0.0;
        sheet.put(&name, Some(latency), "µs", "from wake-up to running, minus call and switch", &mut us);
        if us < longest {
            sheet.raise(&name, longest, "a CPU that was idle for longer does not wake up sooner");
        }
        longest = us.max(longest);
        (f64::from(idle), longest)
    };
    wakes.iter().map(&mut one).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use flashlock_sim::{self as sim, Description, Options, Simulation};

    use super::*;

    /// How long a sleep of 200 µs takes a simulated machine, in µs.
    fn simulated_sleep(machine: &Description) -> f64 {
        let took = Rc::new(Cell::new(0));
        let told = Rc::clone(&took);
        let mut simulation = Simulation::new(machine, Options::default());
        simulation.spawn(move || {
            let begin = sim::now();
            sim::nap(200e3);
            told.set(sim::now() - begin);
        });
        simulation.run().expect("it ends");
        took.get() as f64 / 1e3
    }

    #[test]
    fn a_simulated_sleep_takes_as_long_as_a_measured_one() {
        let mut machine = Description::find("2x18x2").expect("a machine");
        machine.scheduler.switch_us = 2.0;
        machine.scheduler.idle_us = vec![(0.0, 1.0), (50.0, 4.0), (500.0, 30.0)];
        for late in [6.0, 62.0, 200.0, 400.0] {
            machine.scheduler.timer_slack_us = slack(&machine.scheduler, 200.0, late);
            let took = simulated_sleep(&machine);
            assert!((took - 200.0 - late).abs() < 0.01, "{took} µs instead of {}", 200.0 + late);
        }
        // The parts were measured too long, or there are none.
        assert_eq!(slack(&machine.scheduler, 200.0, 5.0), 0.0);
        machine.scheduler.idle_us.clear();
        assert_eq!(slack(&machine.scheduler, 200.0, 62.0), 60.0);
    }

    #[test]
    fn who_was_idle_for_longer_does_not_wake_up_sooner() {
        let mut sheet = Sheet::default();
        assert_eq!(idle(&[(0, 27.7), (50, 25.1), (500, 30.0)], &mut sheet), [(0.0, 27.7), (50.0, 27.7), (500.0, 30.0)]);
        let text = sheet.text("This machine", "2x2", 140);
        assert!(text.contains("25.1 µs") && text.matches("; raised to 27.7 µs").count() == 1, "{text}");
        assert!(sheet.source("2x2").contains("idle CPU, after 50 µs: measured 25.1 µs, raised to 27.7 µs"), "{text}");
    }
}
