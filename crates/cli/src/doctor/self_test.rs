//! Tests every lock in a child process with the preload library: whether the functions come from the library, whether a
//! mutex excludes, whether a condition variable wakes, and whether operations are counted.

use std::cell::UnsafeCell;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use flashlock_locks::catalogue::rw::{RW_DEFAULT, RW_LOCKS};
use flashlock_locks::catalogue::{DEFAULT, LOCKS};
use flashlock_locks::machine::event::Event;
use flashlock_measure::pthread::{self, Cond, Mutex, RwLock, Semaphore, Spin};
use flashlock_native::settings;
use flashlock_native::stats::{self, Block, Totals};
use flashlock_report::units;
use serde::{Deserialize, Serialize};

use crate::elf::{self, Image};
use crate::failure::Failure;
use crate::inspect::Finding;
use crate::{preload, screen};

/// Acquisitions of each of the two threads.
const ROUNDS: u64 = 2000;
/// How often the two threads wake each other.
const PINGPONGS: u64 = 200;
/// A test that takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
const ADVICE: &str = "choose another lock, and please report this";
const TRY_AGAIN: &str = "remove what keeps the test from starting, and try again";

/// The child's report.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Functions of the library that are bound to another one.
    foreign: Vec<String>,
    /// The number of functions that are bound to the library.
    bound: usize,
    /// The count that the mutex protected.
    counted: u64,
    /// How often the threads woke each other.
    pingpongs: u64,
    /// The number that the readers-writer lock protected.
    written: u64,
    /// How often a reader saw a half-finished write.
    torn: u64,
    /// The count that the spinlock protected.
    spun: u64,
    /// How often the threads let each other continue by semaphores.
    permits: u64,
}

/// Tests all locks: each mutex lock with the default readers-writer lock, and the reverse.
pub(super) fn all(library: &Path) -> Vec<Finding> {
    let mutexes = LOCKS.iter().map(|lock| (lock.name, RW_DEFAULT.info().name, lock.name));
    let rws = RW_LOCKS.iter().map(|lock| (DEFAULT.info().name, lock.name, lock.name));
    let judged = |(mutex, rw, name)| match attempt(library, mutex, rw) {
        Ok(text) => Finding::ok(name, text),
        Err(Trouble::NotTried(why)) => Finding::warn(name, format!("not tried: {why}"), TRY_AGAIN),
        Err(Trouble::Fails(text)) => Finding::problem(name, text, ADVICE),
    };
    mutexes.chain(rws).map(judged).collect()
}

/// Why a lock did not pass.
enum Trouble {
    /// This system did not let the test start, which says nothing about the lock.
    NotTried(String),
    Fails(String),
}

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Fails(what)
    }
}

fn attempt(library: &Path, mutex: &str, rw: &str) -> Result<String, Trouble> {
    let not_tried = |error: std::io::Error| Trouble::NotTried(screen::reason(&error));
    // A lock works without counters, too; the system's own finding says that there are none.
    let counters = Block::create().ok();
    let me = std::env::current_exe().map_err(not_tried)?;
    let existing = std::env::var_os(preload::LD_PRELOAD);
    let value = preload::without_ours(existing.as_deref());
    let mut command = Command::new(me);
    match &counters {
        Some((descriptor, _)) => command.env(stats::ENV, descriptor.as_raw_fd().to_string()),
        None => command.env_remove(stats::ENV),
    };
    let child = command
        .arg("self-test")
        .env(preload::LD_PRELOAD, preload::prepend(library, Some(&value)))
        .env(preload::ENV_PATH, library)
        .env(settings::ENV, mutex)
        .env(settings::ENV_RW, rw)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_tried)?;
    let (output, complaint) = finish(child)?;
    let answer: Answer = serde_json::from_str(&output).map_err(|_| with("the test printed no result", &complaint))?;
    let totals = counters.map(|(_, block)| block.totals());
    Ok(judge(&answer, totals.as_ref()).map_err(|what| with(&what, &complaint))?)
}

/// The problem, with the child's messages about it.
fn with(what: &str, complaint: &str) -> String {
    let complaint = complaint.trim();
    if complaint.is_empty() { what.to_owned() } else { format!("{what}; its message: {complaint}") }
}

/// Waits for the child, but not for ever. Returns its output.
fn finish(mut child: Child) -> Result<(String, String), String> {
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("hangs: two threads did not finish in {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(format!("cannot be waited for: {}", screen::reason(&error))),
        }
    };
    // Both outputs have at most a few lines, which fit into the pipes, so they can be read after the end.
    let (mut output, mut complaint) = (String::new(), String::new());
    if let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) {
        let _ = out.read_to_string(&mut output);
        let _ = err.read_to_string(&mut complaint);
    }
    if status.success() { Ok((output, complaint)) } else { Err(with(&format!("failed: {status}"), &complaint)) }
}

/// `totals`: what was counted; `None` if nothing can be counted here.
fn judge(answer: &Answer, totals: Option<&Totals>) -> Result<String, String> {
    if let Some(function) = answer.foreign.first() {
        return Err(format!("{function} is not replaced by the preload library"));
    }
    if answer.counted != 2 * ROUNDS {
        return Err(format!("does not exclude: {} of {} increments remained", answer.counted, 2 * ROUNDS));
    }
    if answer.written != 2 * ROUNDS || answer.torn > 0 {
        return Err(format!(
            "the readers-writer lock does not exclude: {} of {} writes remained, {} reads were torn",
            answer.written,
            2 * ROUNDS,
            answer.torn
        ));
    }
    if answer.pingpongs != PINGPONGS {
        return Err(format!("condition variables fail: {} of {PINGPONGS} wake-ups", answer.pingpongs));
    }
    if answer.spun != 2 * ROUNDS {
        return Err(format!("spinlocks do not exclude: {} of {} increments remained", answer.spun, 2 * ROUNDS));
    }
    if answer.permits != PINGPONGS {
        return Err(format!("semaphores fail: {} of {PINGPONGS} permits", answer.permits));
    }
    let Some(totals) = totals else {
        return Ok(format!("works: {} functions, {PINGPONGS} wake-ups; not counted", answer.bound));
    };
    let acquired = totals.of(Event::Acquire);
    if totals.of(Event::GlibcUnknown) > 0 || (totals.processes > 0 && acquired == 0) {
        return Err("not used: this glibc is unknown to this version of flashlock, so all locks stay glibc's".into());
    }
    let rw = totals.of(Event::RwRead) + totals.of(Event::RwWrite);
    if acquired < 2 * ROUNDS || totals.of(Event::CondWait) == 0 || rw < 4 * ROUNDS {
        return Err(format!(
            "is not counted: {acquired} acquisitions of mutexes were seen, {rw} of readers-writer locks"
        ));
    }
    let (spun, posted) = (totals.of(Event::SpinAcquire), totals.of(Event::SemPost));
    if spun < 2 * ROUNDS || posted < PINGPONGS {
        return Err(format!(
            "is not counted: {spun} acquisitions of spinlocks, {posted} posts to semaphores were seen"
        ));
    }
    Ok(format!("works: {} functions, {} acquisitions, {PINGPONGS} wake-ups", answer.bound, units::count(acquired + rw)))
}

/// Runs the hidden verb: in the child, with the preload library.
pub(crate) fn child() -> Result<u8, Failure> {
    let library = preload::find()?;
    let functions = match elf::read(&library) {
        Ok(Image::Elf(elf)) => elf.exports,
        _ => return Err(Failure::new(format_args!("{} is not a library", library.display()))),
    };
    let is_ours = |function: &&String| {
        pthread::provider(function)
            .is_some_and(|file| Path::new(&file).canonicalize().is_ok_and(|file| file == library))
    };
    let locking =
        |name: &&String| ["pthread_", "__pthread_", "mtx_", "cnd_", "sem_"].iter().any(|p| name.starts_with(p));
    let (bound, foreign): (Vec<_>, Vec<_>) = functions.iter().filter(locking).partition(is_ours);
    let (written, torn) = read_and_write();
    let answer = Answer {
        bound: bound.len(),
        foreign: foreign.into_iter().cloned().collect(),
        counted: count(),
        pingpongs: ping_pong(),
        written,
        torn,
        spun: spin(),
        permits: pass_permits(),
    };
    screen::emit(&serde_json::to_string(&answer).map_err(Failure::new)?)?;
    Ok(0)
}

struct Counter {
    mutex: Mutex,
    value: UnsafeCell<u64>,
}

// SAFETY: only the mutex's holder touches the value, which is what is being tested.
unsafe impl Sync for Counter {}

impl Counter {
    fn new() -> Self {
        Self { mutex: Mutex::new(), value: UnsafeCell::new(0) }
    }

    /// The value. The caller holds the mutex, or is alone.
    fn get(&self) -> u64 {
        // SAFETY: the callers' promise; if the mutex does not exclude, a torn value only harms the count.
        unsafe { self.value.get().read_volatile() }
    }

    /// Adds one. The caller holds the mutex.
    fn increment(&self) {
        // SAFETY: as above.
        unsafe { self.value.get().write_volatile(self.get() + 1) };
    }
}

fn count() -> u64 {
    let counter = Counter::new();
    let work = || {
        for _ in 0..ROUNDS {
            if counter.mutex.lock() {
                counter.increment();
                counter.mutex.unlock();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    counter.get()
}

/// Two threads write and read two numbers. Returns the first number at the end, and how often the two differed.
fn read_and_write() -> (u64, u64) {
    let (lock, numbers, torn) = (RwLock::new(), [Counter::new(), Counter::new()], AtomicU64::new(0));
    let work = || {
        for _ in 0..ROUNDS {
            if lock.write() {
                numbers.iter().for_each(Counter::increment);
                lock.unlock();
            }
            if lock.read() {
                torn.fetch_add(u64::from(numbers[0].get() != numbers[1].get()), Relaxed);
                lock.unlock();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    (numbers[0].get(), torn.into_inner())
}

/// Two threads increment under a spinlock. Returns how many increments were kept.
fn spin() -> u64 {
    let (lock, counter) = (Spin::new(), Counter::new());
    let work = || {
        for _ in 0..ROUNDS {
            if lock.lock() {
                counter.increment();
                lock.unlock();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    counter.get()
}

/// Two threads let each other continue, each by a semaphore. Returns how often.
fn pass_permits() -> u64 {
    let (turns, counter) = ([Semaphore::new(1), Semaphore::new(0)], Counter::new());
    let play = |me: usize| {
        for _ in 0..PINGPONGS / 2 {
            if turns[me].wait() {
                counter.increment();
                turns[1 - me].post();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    counter.get()
}

/// Two threads take turns. Returns the number of turns.
fn ping_pong() -> u64 {
    let table = Counter::new();
    let turns = [Cond::new(), Cond::new()];
    let play = |me: u64| {
        table.mutex.lock();
        loop {
            let turn = table.get();
            if turn >= PINGPONGS {
                turns[1 - me as usize].signal();
                break;
            }
            if turn % 2 != me {
                turns[me as usize].wait(&table.mutex);
                continue;
            }
            table.increment();
            turns[1 - me as usize].signal();
        }
        table.mutex.unlock();
    };
    thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    table.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let (written, torn) = read_and_write();
        Answer {
            foreign: vec![],
            bound: 9,
            counted: count(),
            pingpongs: ping_pong(),
            written,
            torn,
            spun: spin(),
            permits: pass_permits(),
        }
    }

    #[test]
    fn glibcs_own_locks_pass_and_are_not_counted() {
        let totals = Block::create().unwrap().1.totals();
        assert!(judge(&answer(), Some(&totals)).unwrap_err().contains("is not counted"));
    }

    #[test]
    fn a_lock_that_cannot_be_counted_is_judged_by_what_it_does() {
        assert!(judge(&answer(), None).unwrap().ends_with("200 wake-ups; not counted"));
        let lossy = Answer { counted: 1, ..answer() };
        assert!(judge(&lossy, None).unwrap_err().contains("does not exclude"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut totals = Block::create().unwrap().1.totals();
        totals.processes = 1;
        assert!(judge(&answer(), Some(&totals)).unwrap_err().contains("this glibc is unknown"));
        let lossy = Answer { counted: 1, ..answer() };
        assert!(judge(&lossy, Some(&totals)).unwrap_err().contains("does not exclude"));
        let torn = Answer { torn: 1, ..answer() };
        assert!(judge(&torn, Some(&totals)).unwrap_err().contains("1 reads were torn"));
        let foreign = Answer { foreign: vec!["cnd_wait".into()], ..answer() };
        assert!(judge(&foreign, Some(&totals)).unwrap_err().contains("cnd_wait is not replaced"));
    }
}
