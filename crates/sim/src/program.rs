//! # What a simulated thread does, beside what locks ask for
//!
//! To be called by simulated threads only, but for [`now`].

use crate::access::spend;
use crate::ps;
use crate::simulation::{suspend, with};
use crate::thread::Use;

/// The acting thread computes for so long, at the base clock and alone on its core; longer otherwise.
pub fn compute(ns: f64) {
    let time = with(|kernel| {
        let time = ps(ns * kernel.slowness());
        kernel.progresses(time);
        time
    });
    spend(time, Use::Compute);
}

/// The acting thread is busy until so much time has passed.
pub fn delay(ns: f64) {
    with(|kernel| kernel.progresses(ps(ns)));
    spend(ps(ns), Use::Compute);
}

/// The acting thread sleeps for so long, and for the timer's slack.
pub fn nap(ns: f64) {
    with(|kernel| {
        let time = ps(ns) + kernel.os.slack;
        kernel.progresses(time);
        kernel.sleep(0, Some(kernel.now + time));
    });
    suspend();
}

/// What a step through a linked structure costs, beside its load: a comparison, and a branch that is often guessed
/// wrong.
pub fn step() {
    let ns = with(|kernel| kernel.machine.clock.step_ns);
    compute(ns);
}

/// Virtual time, in ns.
pub fn now() -> u64 {
    with(|kernel| kernel.now / 1000)
}

/// The number of the acting thread, in order of [`Simulation::spawn`](crate::Simulation::spawn).
pub fn thread_number() -> u32 {
    with(|kernel| kernel.current.expect("a simulated thread is acting"))
}

/// Gives the acting thread a priority, which locks may ask for. The simulated scheduler treats all threads alike.
pub fn set_priority(priority: i32) {
    with(|kernel| kernel.me().priority = priority);
}

/// For how long the acting thread has used its time so, in ns.
pub fn thread_time(usage: Use) -> u64 {
    with(|kernel| kernel.me().times[usage as usize] / 1000)
}

/// The CPU that the acting thread is on.
pub fn thread_cpu() -> u32 {
    with(|kernel| kernel.me().cpu)
}

/// The NUMA node that the acting thread is on.
pub fn thread_node() -> u32 {
    with(|kernel| {
        let core = kernel.my_core();
        kernel.shape.node(core)
    })
}

/// From now on the acting thread does not lose its CPU, whoever wants it, as kernels' threads do not around a spin
/// lock. It may still give it up, and sleep.
pub fn disable_preemption() {
    with(|kernel| kernel.keep_cpu(true));
}

/// The acting thread may lose its CPU again: at once, if its slice is over.
pub fn enable_preemption() {
    if with(|kernel| kernel.keep_cpu(false)) {
        suspend();
    }
}

/// The acting thread wants this from now on, a lock; or nothing. Should the run hang, that is said of it.
pub fn wants(what: Option<&'static str>) {
    with(|kernel| kernel.me().wants = what);
}

/// It has this, and wants nothing else.
pub fn takes(what: &'static str) {
    with(|kernel| {
        let me = kernel.me();
        me.wants = None;
        me.has.push(what);
    });
}

/// It has this no more.
pub fn gives_back(what: &'static str) {
    with(|kernel| {
        let has = &mut kernel.me().has;
        if let Some(at) = has.iter().rposition(|other| *other == what) {
            has.remove(at);
        }
    });
}
