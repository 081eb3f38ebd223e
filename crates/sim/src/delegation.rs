//! # Servers that run the sections of other threads
//!
//! The runtime of `rcl` on the simulated computer. It neither makes nor manages threads; it only records which thread
//! is which. A server has one servicing thread, so sections must not block. The program makes the threads and decides
//! how long they live. It calls [`Servers::serve`] in threads of their own, on CPUs [set
//! apart](Simulation::reserve_cpu), and closes the servers when their clients have left.
//!
//! **An idle server's scan** costs no simulation time, however many clients it has, because its looks are not simulated
//! one by one.

use std::array;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashlock_locks::closure::rcl::{self, Head, Lock, Pass, Roster, Section, Slot, Worker};
use flashlock_locks::machine::Word as _;
use flashlock_locks::parts::wait::WaitPolicy;

use crate::machine::{Sim, Word};
use crate::program::{disable_preemption, now, thread_number};
use crate::simulation::{Placed, Simulation};

/// The maximum number of a server's clients.
pub const CLIENTS: usize = 1 << 12;
const EACH: usize = 32;

/// A server's parts, in simulated memory.
#[repr(C)]
struct Parts {
    head: Head<Sim>,
    slots: [Slot<Sim>; CLIENTS],
    worker: Worker<Sim>,
    live: Names,
    busy: Names,
}

/// On lines of their own, as pages are.
#[repr(C, align(64))]
struct Names([Word; CLIENTS / EACH]);

impl Names {
    fn new() -> Self {
        Self(array::from_fn(|_| Word::new(0)))
    }
}

/// The counts of a server, as in section 4.2 of the paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Scans that ran at least one section.
    pub busy_scans: u64,
    /// Scans that ran sections of several locks.
    pub mixed_scans: u64,
    /// Sections run.
    pub sections: u64,
}

impl Served {
    fn note(&mut self, pass: &Pass) {
        self.busy_scans += u64::from(pass.sections > 0);
        self.mixed_scans += u64::from(pass.mixed);
        self.sections += u64::from(pass.sections);
    }

    /// Sections per scan that runs any, divided by the machine's cores.
    pub fn use_rate(&self, cores: u32) -> f64 {
        self.sections as f64 / self.busy_scans as f64 / f64::from(cores)
    }

    /// The share of scans with sections of several locks, among those that run any section.
    pub fn false_serialization(&self) -> f64 {
        self.mixed_scans as f64 / self.busy_scans as f64
    }
}

struct One {
    parts: Placed<Parts>,
    served: Cell<Served>,
    /// The thread that serves.
    thread: Cell<Option<u32>>,
}

/// The servers of a simulation, numbered from 1.
pub struct Servers {
    all: Vec<One>,
    /// By server: for each thread, its client number there, if it has one.
    clients: Vec<RefCell<Vec<Option<u32>>>>,
}

impl Servers {
    /// Makes `count` servers. They are open, though no thread serves yet.
    pub fn new(simulation: &mut Simulation, count: u32) -> Rc<Self> {
        let parts = || Parts {
            head: Head::new(),
            slots: array::from_fn(|_| Slot::new()),
            worker: Worker::new(),
            live: Names::new(),
            busy: Names::new(),
        };
        let one = |number: u32| One {
            parts: simulation.place(&format!("server {number}"), parts()),
            served: Cell::default(),
            thread: Cell::new(None),
        };
        let all: Vec<One> = (1..=count).map(one).collect();
        let this = Self { clients: all.iter().map(|_| RefCell::default()).collect(), all };
        (1..=count).for_each(|number| this.server(number).open(number));
        Rc::new(this)
    }

    /// A free lock of this server.
    pub fn lock(number: u32) -> Lock<Sim> {
        Lock::of(number)
    }

    fn one(&self, number: u32) -> &One {
        &self.all[number as usize - 1]
    }

    /// The calling thread serves until the server is closed. It keeps its CPU, as a thread with a priority of its own
    /// does. Work before `from` or after `to`, in ns of virtual time, is not counted.
    pub fn serve<W: WaitPolicy>(&self, number: u32, (from, to): (u64, u64)) {
        let one = self.one(number);
        assert!(one.thread.replace(Some(thread_number())).is_none(), "a server has one thread");
        disable_preemption();
        self.server(number).work::<W, _>(0, self, |pass| {
            if pass.sections > 0 && (from..to).contains(&now()) {
                let mut served = one.served.get();
                served.note(pass);
                one.served.set(served);
            }
        });
    }

    /// Closes all servers.
    pub fn close(&self) {
        (1..=self.all.len() as u32).for_each(|number| self.server(number).close());
    }

    /// The counts of each server.
    pub fn served(&self) -> Vec<Served> {
        self.all.iter().map(|one| one.served.get()).collect()
    }

    /// Runs `inside` under a lock, in some thread, before this returns.
    pub fn run<W: WaitPolicy>(&self, lock: &Lock<Sim>, inside: &mut dyn FnMut()) {
        /// # Safety
        /// The context is a reference to a closure that nothing else uses meanwhile.
        unsafe fn call(context: *mut ()) {
            // SAFETY: the callers' promise.
            unsafe { (*context.cast::<&mut dyn FnMut()>())() }
        }
        let mut inside = inside;
        // SAFETY: `inside` lives until `exec` returns, and is not touched before. A panic ends the simulation.
        let section = unsafe { Section::new(call, (&raw mut inside).cast()) };
        // SAFETY: the lock is borrowed until all calls have returned.
        unsafe { rcl::exec::<Sim, W, Self>(lock, section, self) };
    }
}

// SAFETY: each simulated thread keeps its client number, and each server has one worker.
unsafe impl Roster<Sim> for Servers {
    fn server(&self, number: u32) -> rcl::Server<'_, Sim> {
        let parts = &self.one(number).parts;
        let (names, worker) = ((&parts.live.0[..], &parts.busy.0[..]), std::slice::from_ref(&parts.worker));
        // SAFETY: the parts were made for this server; `client` gives each thread a number (2), and one thread works
        // (1). No thread looks (3). It is opened when it is made, and only `work` passes (4).
        unsafe { rcl::Server::new(&parts.head, names, &parts.slots, worker) }
    }

    /// A thread takes a number with its first request and keeps it.
    fn client(&self, number: u32) -> u32 {
        let (clients, me) = (&self.clients[number as usize - 1], thread_number() as usize);
        if let Some(client) = clients.borrow().get(me).copied().flatten() {
            return client;
        }
        let client = self.server(number).join().expect("no more threads than a server has clients");
        let mut clients = clients.borrow_mut();
        let threads = clients.len().max(me + 1);
        clients.resize(threads, None);
        clients[me] = Some(client);
        client
    }

    fn worker(&self) -> Option<(u32, u32)> {
        let me = thread_number();
        let number = self.all.iter().position(|one| one.thread.get() == Some(me))?;
        Some((number as u32 + 1, 0))
    }
}
