//! Measures the operating system: calls, wake-ups, switches, sleeps.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_native::{futex, sys};
use flashlock_report::statistics::Spread;

use super::effort::Effort;
use super::own::median;
use crate::cpu;

/// If a thread has not read the clock for so long, it was not running.
const GAP_NS: u64 = 500_000;

/// How long a CPU is idle, in µs, before it is woken up.
pub const IDLE_US: [u32; 3] = [0, 50, 500];

/// How long a thread takes at most, in µs, from saying that it is about to sleep until it sleeps. If it takes longer,
/// the attempt does not count.
const FALL_ASLEEP_US: u32 = 20;

/// How long a thread sleeps, in µs, to find out for how long it really does.
pub const SLEEP_US: u32 = 200;

/// A futex call that finds nothing to do, in µs.
pub fn syscall(effort: Effort) -> Option<f64> {
    let word = AtomicU32::new(0);
    let calls = effort.steps() / 64;
    median(effort, || {
        let start = Instant::now();
        for _ in 0..calls {
            futex::wake(&raw const word, 1);
        }
        start.elapsed().as_nanos() as f64 / 1e3 / calls as f64
    })
}

/// A wake-up, in µs.
#[derive(Clone, Copy, Debug)]
pub struct WakeUp {
    /// The waker's call.
    pub call: f64,
    /// From before that call until the woken thread runs.
    pub latency: f64,
}

/// Wakes a thread on the second CPU from the first (which may be the same) after it has slept for so long.
pub fn wake_up(effort: Effort, [waker, sleeper]: [u32; 2], idle_us: u32) -> Option<WakeUp> {
    let rounds = effort.rounds();
    let epoch = Instant::now();
    let now = || epoch.elapsed().as_nanos() as u64;
    let (word, woken, asleep) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU32::new(0));
    let sleep = || {
        for round in 1..=rounds {
            // Release pairs with the Acquire in the waker's `until`.
            asleep.store(round, Release);
            while word.load(Acquire) < round {
                futex::park(&word, round - 1, None);
            }
            woken.store(now(), Release);
        }
    };
    let wake = || {
        let round = |round| {
            until(|| asleep.load(Acquire) >= round);
            // It is about to sleep. Give it time to do so, and then to be idle.
            rest(FALL_ASLEEP_US + idle_us, waker != sleeper);
            let start = now();
            word.store(round, Release);
            let slept = futex::wake(&raw const word, 1) > 0;
            let called = now() - start;
            until(|| woken.load(Acquire) > start);
            let latency = woken.load(Acquire).saturating_sub(start);
            slept.then_some((called as f64 / 1e3, latency as f64 / 1e3))
        };
        (1..=rounds).filter_map(round).collect::<Vec<_>>()
    };
    [waker, sleeper].iter().all(|&cpu| cpu::on(cpu, || ()).is_some()).then_some(())?;
    let times = thread::scope(|scope| {
        let sleeper = scope.spawn(|| cpu::on(sleeper, sleep));
        let times = cpu::on(waker, wake);
        sleeper.join().ok()??;
        times
    })?;
    let middle =
        |of: fn(&(f64, f64)) -> f64| Spread::of(&times.iter().map(of).collect::<Vec<_>>()).map(|all| all.median);
    Some(WakeUp { call: middle(|time| time.0)?, latency: middle(|time| time.1)? })
}

/// The time to switch from one thread to another on a CPU, in µs. Two threads yield to each other, and count how often
/// the other has been running meanwhile. The cost of yielding to no thread is subtracted. (Futexes would not do: a
/// wake-up may switch at once, so its time and the switch's cannot be separated.)
pub fn switch(effort: Effort, cpu: u32) -> Option<f64> {
    let yields = effort.rounds() * 50;
    let (last, switches) = (AtomicU32::new(0), AtomicU32::new(0));
    let play = |mine: u32| {
        for _ in 0..yields {
            sys::yield_now();
            if last.swap(mine, Relaxed) != mine {
                switches.fetch_add(1, Relaxed);
            }
        }
    };
    cpu::on(cpu, || {
        let start = Instant::now();
        play(0);
        let alone = start.elapsed();
        let start = Instant::now();
        thread::scope(|scope| {
            // Threads inherit the CPU.
            scope.spawn(|| play(1));
            play(0);
        });
        let together = start.elapsed().saturating_sub(alone * 2);
        let switches = switches.load(Relaxed);
        (switches > yields / 2).then(|| together.as_nanos() as f64 / 1e3 / f64::from(switches))
    })?
}

/// How long a thread runs while another waits for its CPU, in µs. `None` if the two never took turns.
pub fn slice(effort: Effort, cpu: u32) -> Option<f64> {
    let stop = AtomicBool::new(false);
    let gaps = cpu::on(cpu, || {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let gaps = gaps(effort.slices());
            stop.store(true, Relaxed);
            gaps
        })
    })?;
    Spread::of(&gaps).map(|gaps| gaps.median)
}

/// The times for which this thread did not run, in µs, as it observes them itself.
fn gaps(time: Duration) -> Vec<f64> {
    let start = Instant::now();
    let mut last = start;
    let mut gaps = Vec::new();
    while last - start < time {
        let now = Instant::now();
        let gap = (now - last).as_nanos() as u64;
        if gap > GAP_NS {
            gaps.push(gap as f64 / 1e3);
        }
        last = now;
    }
    gaps
}

/// How much longer than asked a sleep of [`SLEEP_US`] takes, in µs: the timer's slack, waking the CPU, and the switch
/// to the thread.
pub fn oversleep(effort: Effort) -> Option<f64> {
    median(effort, || {
        let start = Instant::now();
        sys::nap(SLEEP_US);
        (start.elapsed().as_nanos() as f64 / 1e3 - f64::from(SLEEP_US)).max(0.0)
    })
}

/// Lets another thread sleep for so many µs. A timer rings tens of µs too late, so a thread with a CPU of its own
/// looks at the clock. On the other thread's CPU it must sleep, because that one needs the CPU to begin with.
fn rest(us: u32, has_own_cpu: bool) {
    if !has_own_cpu {
        return sys::nap(us);
    }
    let (start, time) = (Instant::now(), Duration::from_micros(us.into()));
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Waits, and yields meanwhile: on one CPU, the other thread needs it.
fn until(done: impl Fn() -> bool) {
    while !done() {
        sys::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_not_idle_for_as_long_as_a_timer_takes() {
        let took = |has_own_cpu| {
            let one = |_| {
                let start = Instant::now();
                rest(FALL_ASLEEP_US, has_own_cpu);
                start.elapsed().as_micros()
            };
            (0..50).map(one).min().expect("fifty")
        };
        let (clock, timer) = (took(true), took(false));
        assert!((20..40).contains(&clock) && timer >= 20, "{clock} µs by the clock, {timer} µs by a timer");
    }
}
