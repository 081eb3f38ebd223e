//! # RCL: a server thread runs the sections of all its clients
//!
//! Clients post their sections to a server, and one of its threads runs them one after another.
//!
//! **Use it** when a lock is hot, its sections touch several shared cache lines, and there is a CPU to spare for the
//! server. **Rather not** when the lock is mostly free, when sections are long, or when the program needs every CPU: a
//! busy server takes one. If there are fewer clients than CPUs, `wait=umwait` lets the CPUs of waiting clients rest,
//! which saves power. A section runs in another thread than its client: [what differs inside a
//! section](../delegation.md#2-turn-its-sections-into-functions).
//!
//! **Problem.** Under a lock that is handed from thread to thread, the protected data travel with it, and so does the
//! cache line of the hand-off. **Idea.** One thread, the server, runs all sections. A client writes its request into a
//! cache line of its own, and waits there. The server reads these lines one after another, and runs the requests that
//! it finds. The protected data stay in its cache. **Source.** Lozi, David, Thomas, Lawall & Muller, *Remote Core
//! Locking*, USENIX ATC 2012, section 2.1 and algorithms 1 to 3.
//!
//! This module is the protocol: its words, and which thread may write each of them when. It creates no threads; the
//! crate `flashlock-delegation` does.
//!
//! | file | holds |
//! |---|---|
//! | [`word`] | the lock's word: ordinary or delegated, free or held |
//! | [`names`] | client numbers: small, recycled, so that the server looks at few lines |
//! | [`slot`] | a client's line, and both ends of it |
//! | [`server`] | a server's words; posting, waking, closing |
//! | [`worker`] | the words of a servicing thread |
//! | [`turn`] | which of a server's threads serves; elections |
//! | [`scan`] | what a servicing thread does |
//! | [`client`] | what a client does |
//! | [`releases`] | releasing a lock, and giving it to a server |
//! | [`roster`] | what the runtime is asked |
//!
//! **Departures.**
//! 1. **One servicing thread at a time has the turn, and only it takes locks.** The paper lets all servicing threads of
//!    a core scan, and relies on atomics that are local to the core. Here the turn passes from a thread that is stuck
//!    in a section to another thread, by an election. So taking a lock is a load and a store wherever threads run:
//!    nothing depends on affinity, cpusets, or a core that stays online.
//! 2. A thread that goes to sleep pays for the synchronisation. It announces that it will sleep, makes every other
//!    thread of the process pass a barrier ([`heavy_fence`](crate::machine::Special::heavy_fence)), looks again, and
//!    then sleeps. So posting a request and answering it are plain stores:
//!    [`light_fence`](crate::machine::Special::light_fence) is no instruction where the system has such a barrier.
//! 3. A lock may be ordinary: then its word is a small mutex, and clients run their sections themselves. A section
//!    under the lock moves it to a server, to another server, or back ([`client::assign`]). A server answers a request
//!    for a lock that is no longer its own with "moved"; the client asks again.
//! 4. A servicing thread that cannot take a nested lock at once asks for the lock, not for a section. The server
//!    *grants* it, and the thread runs its section itself. So nested sections run in place, and a wait on a condition
//!    variable gets its lock back. If all workers are in sections and no thread can be made, the manager grants
//!    ([`Server::stand_in`]). So a section that waits for a lock does not wait for a worker.
//! 5. **No backup thread.** The paper's has the lowest priority on the server's core. It runs, and wakes the manager at
//!    once, when all servicing threads are blocked in the system. Here the servicing thread that is about to sleep in
//!    this library calls the manager. Other blocking, such as reading from a pipe, is noticed by the manager's
//!    time-out: one, two at most. That needs no priorities, and so also holds without real-time scheduling.
//!
//! ## Adaptation
//! The paper's future work (section 6): a lock starts ordinary, goes to a server when that pays, and comes back. The
//! crate `flashlock-delegation` decides (`adapt`). Departure 3 makes it possible. A *governor* measures once in 100 ms,
//! and says where each lock is to be. It moves no lock. The thread that runs a section of the lock checks that at the
//! section's end, and, as the holder, moves the lock by `client::assign`. So no thread waits for a lock only to move
//! it.
//!
//! | it goes | when |
//! |---|---|
//! | to a server | its sections take the threshold's share of time, a server is faster, and a CPU can be spared |
//! | back | the server's use rate, over all scans, is low; or it does less than it did as an ordinary lock; or no CPU can be spared any more |
//! | to another server | more than a fifth of the scans of a busy server run sections of several locks (false serialization) |
//!
//! Each reason must hold for three windows. A lock that came back rests for two seconds, and twice as long each time.
//! The share is the paper's (section 2.2): the time to acquire, run and release, divided by the time of the threads. It
//! is sampled. What a server gains follows from four numbers: the time of a hand-off of the ordinary lock, the time of
//! a request to a server, and how long sections take with their cache lines at hand and without. Long sections
//! therefore count against a server; many cache lines count for it. `flashlock calibrate --delegation` measures the
//! thresholds of a machine. The result may be "never".
//!
//! **Missing.** The governor does not see cache misses, nor which CPUs other processes use, and it does not choose the
//! CPU of a server. Decisions have not been measured on a machine with CPUs to spare. The simulator does not adapt.
//!
//! ## Faults of the published algorithms
//! Each is repaired here. The models run the printed lines with and without the repair, and find each fault
//! (`crates/model/tests/shared/rcl_printed.rs`).
//!
//! - **(a)** Algorithm 1, lines 14 and 15: `code` is cleared, then the lock is released through the slot, which may
//!   hold the next request by then. Here the lock is released first, through a saved pointer. A request that another
//!   thread may meet meanwhile is marked as busy: otherwise it would be run twice.
//! - **(b)** Lines 11 to 13: another thread may have run the request before the lock was taken; then a null pointer is
//!   called. Here only the thread with the turn takes locks, and it looks at no slot whose request is still being run.
//! - **(c)** Lines 20 to 24: a thread that suspends still counts as free. In the end no thread is added, and all
//!   wait. Here there is no count. Free threads are those on the list in `turn`. An election takes one of these, or
//!   asks for a new one.
//! - **(d)** Line 6: `is_alive` is set once a scan, so that a long scan looks stuck. Here `at` changes with each
//!   section.
//! - **(e)** Algorithm 3, `elect`: to lower and raise a thread's priority moves it to the *end* of the FIFO queue. Here
//!   all others step back ([`turn::elect_by_priority`]): they are scheduled like any thread until they have the turn
//!   again. So a section that has lost the turn and polls does not keep the CPU from the thread that serves, also if
//!   that one sleeps in between. Without FIFO scheduling, the elected thread is woken, and the others do not have the
//!   turn.
//!
//! ## State, and which thread writes it
//! ```text
//!   client                                   server (the thread with the turn)
//!   slot: lock, function, context            word:  (S, FREE) -> (S, HELD)
//!   slot.code: EMPTY -> RUN    ────────────> at: outside -> inside
//!   [light fence] sleep? wake                the section
//!                                            at: inside -> outside; [light fence] still my turn?
//!                                            word:  (S, HELD) -> (S, FREE)
//!   slot.code = EMPTY?         <──────────── slot.code: RUN -> EMPTY; [light fence] asleep? wake
//! ```
//!
//! ## Invariants
//! 1. At most one thread of a server has the turn: the one that `turn` names, a worker or the manager. Only it changes
//!    the word of a lock of that server from FREE, and only it begins to act on a request.
//! 2. `turn` names another thread only when the previous one is inside a section, or gives the turn up. A thread looks
//!    at `turn` between two sections, after a fence, and the fence of the manager (which elects) is heavy. So a thread
//!    that lost its turn in a section begins no other section.
//! 3. A slot whose request is being run by a thread without the turn is marked in `busy`. The mark is set before
//!    another thread has the turn, and stays until the request was answered. Meanwhile no other thread looks at the
//!    slot, or at its lock for that request.
//! 4. Only the holder of a lock changes a word that is (S, HELD). Any number of threads may change one that is (0, ·),
//!    by exchanges.
//! 5. A slot's request is written by its client while `code` is EMPTY or MOVED, and answered by the thread that has
//!    acted on it.
//! 6. The lock is released before its request is answered: when `exec` returns, no other thread accesses the lock for
//!    that request.
//! 7. A server does not sleep while there is something that it can do: it looks again after it has announced that it
//!    will sleep.
//! 8. A closed server (`turn` says so) acts on no request, except those that are marked. The first client of each of
//!    its locks that notices makes that lock ordinary. A client that has posted a request, and then finds the server
//!    closed, waits until `turn` is CLOSED. If its request is not marked then, and not answered, nobody will act on it.
//!
//! ## Orderings
//! | access | ordering | pairs with | why |
//! |---|---|---|---|
//! | `code` = RUN, GRANT | Release | the load in `waiting`, Acquire | the request, and what it refers to |
//! | `code` = EMPTY, MOVED | Release | the load in `wait`, Acquire | what the section did; the lock was released |
//! | `word` to FREE | Release | the load in `waiting`, the ordinary CAS: Acquire | hands on the section |
//! | `at` | Release | the load in `revoke`, Acquire | the lock that is held, and the slot |
//! | `turn` exchanges | AcqRel | each other; the loads, Acquire | `busy`, and what the previous thread had written |
//! | `busy` cleared | Release | the load in `each_client`, Acquire | the answer |
//! | `code`, then `sleep`; `sleep`, then all codes | light, heavy fence | each other | a request wakes the server |
//! | `code`, then `asleep`; `asleep`, then `code` | light, heavy fence | each other | an answer wakes its client |
//! | `at`, then `turn`; `turn`, then `at` | light, heavy fence | each other | invariant 2 |
//! | `live` taken / given | AcqRel | each other | the slot's last use |
//! | `range` exchanges | AcqRel | each other | a thread that lowers it has seen all numbers that were taken before |
//! | where an adaptive lock is wanted | Release | the load at the end of a section, Acquire | there is such a server |
//!
//! **Cannot:** give up a request; run a section of the same lock inside a section; serve requests first come, first
//! served (the order is that of the slots, round by round, so each is served within one scan).

pub mod client;
pub mod names;
pub mod releases;
pub mod roster;
pub mod scan;
pub mod server;
pub mod slot;
pub mod turn;
pub mod word;
pub mod worker;

pub use client::{Section, acquire, assign, exec, release};
pub use roster::Roster;
pub use scan::Pass;
pub use server::{Head, Server};
pub use slot::Slot;
pub use turn::{Look, Watch};
pub use word::Lock;
pub use worker::Worker;

#[cfg(doc)]
use crate::machine::Machine;
