//! # Servicing threads, and the thread that manages them
//!
//! The manager looks once per time-out. It also looks at once when a servicing thread announces that it is about to
//! sleep inside a section. If the thread that serves is stuck, the manager elects another one, or makes one. So a
//! section that blocks elsewhere holds up the others for one time-out, two at most. If no thread can be made, the
//! manager itself grants locks and closes the server, once per time-out: what waits for these does not wait for a
//! thread.
//!
//! Both sleep when there is nothing to do. The servicing thread sleeps after its spin budget. The manager sleeps when
//! it has found the server asleep for [`QUIET`] looks; the servicing thread calls it when it wakes up.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use flashlock_locks::closure::rcl::turn::elect_by_priority;
use flashlock_locks::closure::rcl::{Look, Watch};
use flashlock_locks::parts::wait::SpinThenPark;
use flashlock_native::{clock, futex, sys};

use crate::fifo;
use crate::here::{Here, as_worker};
use crate::host::Host;
use crate::server::{Options, Scheduling};
use crate::start::start;

/// After so many looks at a sleeping server the manager sleeps, too.
const QUIET: u32 = 10;
/// How long the manager naps (µs) between looks while a new thread starts.
const COMES_WITHIN: u32 = 1_000;

/// Opens a server: makes the manager's thread, and then what it manages. If the system refuses the thread, nothing was
/// used up.
pub(crate) fn open(options: Options) -> io::Result<(&'static Host, JoinHandle<()>)> {
    let (told, tells) = channel();
    let manager = start("rcl-manager".to_owned(), move || manage(&tells))?;
    // If there is no server, the channel closes, and the thread ends.
    let host = Host::open(options)?;
    told.send(host).expect("the manager waits for it");
    Ok((host, manager))
}

/// What the manager's thread runs.
fn manage(tells: &Receiver<&'static Host>) {
    if let Ok(host) = tells.recv() {
        Manager { host, watch: Watch::default(), workers: Vec::new(), told: false }.live();
    }
}

struct Manager {
    host: &'static Host,
    watch: Watch,
    workers: Vec<JoinHandle<()>>,
    /// Whether the user was warned that threads are short.
    told: bool,
}

impl Manager {
    fn live(mut self) {
        let host = self.host;
        fifo::like_main_thread();
        // Servicing threads ask only if the manager, which must outrank them, was granted it.
        let real_time = host.options.scheduling == Scheduling::RealTime && fifo::ask(fifo::MANAGER);
        host.may_be_fifo.store(real_time, Relaxed);
        let timeout = host.options.timeout;
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut asleep = 0;
        loop {
            // First, and Acquire: a call that comes later changes the bell, and what was said before it is seen.
            let bell = host.bell.0.load(Acquire);
            if host.core.is_closed() {
                break;
            }
            match host.core.look(&mut self.watch, clock::now(), ns) {
                Look::Fine => {}
                Look::Elected(worker) => self.elected(worker),
                Look::Wanted => self.make(),
            }
            if host.core.is_closed() {
                continue; // By this thread, perhaps: then nobody calls it.
            }
            asleep = if host.core.is_asleep() { asleep + 1 } else { 0 };
            if asleep < QUIET || !host.core.falls_quiet() {
                futex::park(&host.bell.0, bell, Some(clock::after(timeout)));
            } else {
                futex::park(&host.bell.0, bell, None);
                host.core.ends_quiet();
                asleep = 0;
            }
        }
        for worker in self.workers {
            worker.join().expect("sections do not unwind into servicing threads");
        }
    }

    fn elected(&mut self, worker: u32) {
        let host = self.host;
        host.elections.fetch_add(1, Relaxed);
        self.rank(Some(worker));
    }

    /// Takes real-time priority from all workers but `first`, which is about to serve, and gives it to the one that
    /// serves.
    fn rank(&self, first: Option<u32>) {
        let host = self.host;
        if !host.is_fifo.load(Relaxed) {
            return;
        }
        let id = |worker: u32| host.ids[worker as usize].load(Relaxed);
        elect_by_priority(host.threads(), first.map_or(0, id), fifo::steps_down);
        // A worker may have taken the turn meanwhile, and asked for its priority before this thread has lowered it. The
        // kernel serialises both calls. If the worker's came first, its turn is visible here, and it is raised again.
        // Otherwise its own call came last.
        if let Some(serving) = host.core.serving() {
            fifo::steps_up(id(serving));
        }
    }

    /// All workers are stuck: makes one more, if the limit allows it.
    fn make(&mut self) {
        let (host, me) = (self.host, self.workers.len() as u32);
        let number = host.core.number();
        let made = if me < host.options.threads {
            start(format!("rcl-{number}-{me}"), move || work(host, me))
        } else {
            Err(io::Error::other("as many as there may be"))
        };
        match made {
            Ok(worker) => {
                self.workers.push(worker);
                if me > 0 {
                    host.elections.fetch_add(1, Relaxed);
                }
                loop {
                    // Also if it serves already: the worker that it replaces steps down.
                    self.rank(Some(me));
                    if host.core.serving().is_some() || host.core.is_closed() {
                        break;
                    }
                    sys::nap(COMES_WITHIN);
                }
            }
            Err(error) => {
                host.short.fetch_add(1, Relaxed);
                if !std::mem::replace(&mut self.told, true) {
                    // Not by `eprintln!`: a section may hold the lock of the standard error while it waits for another
                    // lock.
                    let text = match me {
                        0 => format!(
                            "flashlock: server {number}: no servicing thread can be made ({error}). Requests wait \
                             until one can be, or the server is closed."
                        ),
                        _ => format!(
                            "flashlock: server {number}: all {me} servicing threads are in sections that have not \
                             ended for a while, and another thread cannot be made ({error}). Requests wait until one \
                             of these sections ends. If the sections wait for each other, allow more threads \
                             (Options::threads)."
                        ),
                    };
                    sys::warn_line(&[text.as_bytes()]);
                }
                // A section that has not ended may wait for a lock that is free.
                match host.core.stand_in() {
                    Look::Elected(worker) => self.elected(worker),
                    Look::Fine | Look::Wanted => self.rank(None),
                }
            }
        }
    }
}

/// What a servicing thread runs.
fn work(host: &'static Host, me: u32) {
    host.ids[me as usize].store(flashlock_native::thread::id(), Relaxed);
    let real_time = host.may_be_fifo.load(Relaxed);
    // Until it is where it is to be, it has the manager's priority: the worker that it is to replace may not leave the
    // CPU.
    if let Some(cpu) = host.options.cpu {
        fifo::pin(cpu);
    }
    let granted = real_time && fifo::ask(fifo::WORKER);
    if real_time {
        host.is_fifo.store(granted, Relaxed);
    }
    if !granted {
        fifo::like_main_thread();
    }
    serve(host, me);
    host.call_manager(); // The server is closed: the manager must see that.
}

/// The calling thread, a worker, has the turn. If it lost the turn before, it was made an ordinary thread.
pub(crate) fn serves(host: &Host) {
    if host.is_fifo.load(Relaxed) && !fifo::ask(fifo::WORKER) {
        host.is_fifo.store(false, Relaxed);
    }
}

/// The calling thread is that worker, until the server is closed.
fn serve(host: &'static Host, me: u32) {
    // With its own priority, which it has only while it serves; or with that of the process's main thread.
    let real_time = host.may_be_fifo.load(Relaxed) || fifo::is_real_time();
    let (counts, mut breath) = (&host.counts[me as usize], fifo::Breath::default());
    as_worker(host.core.number(), me, || {
        host.core.work::<SpinThenPark, _>(me, &Here, |pass| {
            counts.note(pass, || host.core.clients());
            if real_time {
                breath.take(pass.sections);
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use flashlock_locks::closure::rcl::{Lock, slot};

    use super::*;
    use crate::Machine;

    const TIMEOUT: u64 = 1_000;

    /// A section in which the manager looks, at these times.
    struct Looked {
        host: &'static Host,
        watch: Watch,
        at: Vec<u64>,
        found: Vec<Look>,
    }

    /// # Safety
    /// The context is a [`Looked`].
    unsafe fn look(context: *mut ()) {
        // SAFETY: the callers' promise; nothing else accesses it meanwhile.
        let Looked { host, watch, at, found } = unsafe { &mut *context.cast() };
        *found = at.iter().map(|now| host.core.look(watch, *now, TIMEOUT)).collect();
    }

    /// The manager looks once a time-out. A section loses the turn at the second look that finds it, and so within two
    /// time-outs. That another one was found before does not count. The clock is made up.
    #[test]
    fn a_section_that_does_not_end_loses_the_turn_at_the_second_look() {
        let host = Host::open(Options { threads: 1, ..Options::default() }).expect("memory");
        let (core, lock) = (host.core, Lock::<Machine>::of(host.core.number()));
        let client = core.join().expect("the first client");
        let mut looked = Looked { host, watch: Watch::default(), at: Vec::new(), found: Vec::new() };
        assert!(core.await_turn(0));
        for (at, expected) in [
            (vec![0, TIMEOUT - 1], vec![Look::Fine, Look::Fine]),
            (vec![TIMEOUT, 2 * TIMEOUT - 1, 2 * TIMEOUT], vec![Look::Fine, Look::Fine, Look::Wanted]),
        ] {
            looked.at = at;
            let is_lost = expected.contains(&Look::Wanted);
            // SAFETY: the number is this thread's, and has no request. What the section uses stays where it is.
            assert!(unsafe { core.post(client, (slot::RUN, &lock), (look, (&raw mut looked).cast())) });
            as_worker(core.number(), 0, || assert_eq!(core.pass(0, &Here).lost, is_lost));
            assert_eq!(looked.found, expected);
        }
    }
}
