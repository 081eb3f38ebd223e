//! # What a simulated thread can do besides using locks
//!
//! Only simulated threads may call these functions, except [`now`].

use crate::access::spend;
use crate::ps;
use crate::simulation::{suspend, with};
use crate::thread::Use;

/// The acting thread computes. This takes `ns` at the base clock when alone on the core, and longer otherwise.
pub fn compute(ns: f64) {
    let time = with(|kernel| {
        let time = ps(ns * kernel.slowness());
        kernel.progresses(time);
        time
    });
    spend(time, Use::Compute);
}

/// The acting thread is busy for exactly `ns`.
pub fn delay(ns: f64) {
    with(|kernel| kernel.progresses(ps(ns)));
    spend(ps(ns), Use::Compute);
}

/// The acting thread sleeps for `ns` plus the timer's slack.
pub fn nap(ns: f64) {
    with(|kernel| {
        let time = ps(ns) + kernel.os.slack;
        kernel.progresses(time);
        kernel.sleep(0, Some(kernel.now + time));
    });
    suspend();
}

/// The cost of a step through a linked structure, except its load: a comparison, and a branch that is often
/// mispredicted.
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

/// How long the acting thread has spent its time on `usage`, in ns.
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

/// Until [`enable_preemption`], the acting thread cannot lose its CPU, like a thread in a kernel while it holds a spin
/// lock. It may still yield or sleep.
pub fn disable_preemption() {
    with(|kernel| kernel.keep_cpu(true));
}

/// The acting thread can lose its CPU again: at once if its slice is over.
pub fn enable_preemption() {
    if with(|kernel| kernel.keep_cpu(false)) {
        suspend();
    }
}

/// Records what the acting thread waits for, such as a lock, or nothing. The report of a run that hangs shows it.
pub fn wants(what: Option<&'static str>) {
    with(|kernel| kernel.me().wants = what);
}

/// Records that the acting thread has acquired `what`, and waits for nothing.
pub fn takes(what: &'static str) {
    with(|kernel| {
        let me = kernel.me();
        me.wants = None;
        me.has.push(what);
    });
}

/// Records that the acting thread has released `what`.
pub fn gives_back(what: &'static str) {
    with(|kernel| {
        let has = &mut kernel.me().has;
        if let Some(at) = has.iter().rposition(|other| *other == what) {
            has.remove(at);
        }
    });
}
