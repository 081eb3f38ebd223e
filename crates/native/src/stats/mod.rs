//! # Counters in shared memory
//!
//! `flashlock run --stats` uses this module to count events in a program. It makes an anonymous file
//! ([`Block::create`]), passes its descriptor to the program, and reads the file after the program has ended, however
//! it ended. The preload maps the file ([`attach`]) and counts into one of several shards, so that threads do not
//! contend for one cache line. The descriptor's number comes from the environment and is not trusted. The preload
//! writes only to an anonymous file that can neither grow nor shrink, and that has the right size and the right first
//! words.
//!
//! | module | holds |
//! |---|---|
//! | [`objects`] | the counts of each object |
//! | [`about`](mod@about) | which object the calling thread is using |
//! | [`modules`] | which files the addresses of a process belong to |

mod about;
mod modules;
mod objects;

use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use flashlock_locks::machine::event::Event;

pub use about::{Scope, about, begin, made};
pub use modules::Mapped;
pub use objects::{Kind, ObjectTotals, Site, Use};

use modules::Modules;
use objects::{Objects, Sums};

use crate::{sys, thread};

/// The environment variable that holds the number of the descriptor.
pub const ENV: &str = "FLASHLOCK_STATS_FD";
const MAGIC: u64 = u64::from_le_bytes(*b"flashlck");
const VERSION: u32 = 3;
const SHARDS: usize = 32;
/// Buckets of the wait histogram: four for each power of two of nanoseconds, up to 2^40 ns (18 minutes).
pub const BUCKETS: usize = 160;
const EVENTS: usize = Event::ALL.len();
const USES: usize = Use::ALL.len();
const SEALS: i32 = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// The shared memory, version [`VERSION`].
#[repr(C)]
pub struct Block {
    magic: AtomicU64,
    version: AtomicU32,
    /// How many processes have attached so far.
    processes: AtomicU32,
    shards: [Shard; SHARDS],
    modules: Modules,
}

#[repr(C, align(64))]
struct Shard {
    events: [AtomicU64; EVENTS],
    waits: [[AtomicU64; BUCKETS]; USES],
    waited_ns: [AtomicU64; USES],
    /// Waits that have begun and not ended.
    waiting: [AtomicU64; USES],
    objects: Objects,
}

/// Sums over all shards.
#[derive(Clone, Debug)]
pub struct Totals {
    /// How many processes counted.
    pub processes: u32,
    /// Counts of events, in the order of [`Event::ALL`].
    pub events: [u64; EVENTS],
    /// Contended acquisitions by waiting time (see [`bucket_floor`]), in the order of [`Use::ALL`].
    pub waits: [[u64; BUCKETS]; USES],
    /// Total waiting time for each use, in ns, including waits that ended without an acquisition.
    pub waited_ns: [u64; USES],
    /// Waits that have begun and not ended, for each use.
    pub waiting: [u64; USES],
}

impl Totals {
    /// The count of one event.
    pub fn of(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// The total time that threads waited for one use, in ns.
    pub fn waited_ns(&self, what: Use) -> u64 {
        self.waited_ns[what as usize]
    }

    /// How many waits for one use have begun and not ended. Their time is not counted.
    pub fn waiting(&self, what: Use) -> u64 {
        // If a signal handler forks during a wait, two processes end it.
        self.waiting[what as usize].cast_signed().max(0).cast_unsigned()
    }

    /// The wait histogram of one use.
    pub fn waits_of(&self, what: Use) -> &[u64; BUCKETS] {
        &self.waits[what as usize]
    }
}

static ATTACHED: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());
/// The number of this process among those that attached. A forked child keeps its parent's number, and has the same
/// addresses.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The histogram bucket of a wait.
pub fn bucket(ns: u64) -> usize {
    let ns = ns.max(4);
    let power = ns.ilog2() as usize;
    let quarter = (ns >> (power - 2)) as usize & 3;
    ((power - 2) * 4 + quarter).min(BUCKETS - 1)
}

/// The shortest wait, in ns, of a bucket (0 for the first).
pub fn bucket_floor(index: usize) -> u64 {
    if index == 0 { 0 } else { (4 + (index as u64 & 3)) << (index / 4) }
}

impl Block {
    /// Makes a block in a new anonymous file. Returns its descriptor, which programs started from here inherit, and the
    /// block.
    pub fn create() -> io::Result<(OwnedFd, &'static Block)> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"flashlock-stats".as_ptr(), libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is ours.
        let sized = unsafe {
            // If the block exceeds the limit on the size of files (`ulimit -f`), the default action would end this
            // process before it could say so. When the signal is ignored, there is an error.
            let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let sized = libc::ftruncate(fd.as_raw_fd(), size_of::<Block>() as libc::off_t) == 0;
            libc::signal(libc::SIGXFSZ, before);
            sized && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
        };
        if !sized {
            return Err(io::Error::last_os_error());
        }
        let block = map(fd.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        block.version.store(VERSION, Relaxed);
        block.magic.store(MAGIC, Release);
        Ok((fd, block))
    }

    /// The counts so far.
    pub fn totals(&self) -> Totals {
        let processes = self.processes.load(Relaxed);
        let mut totals = Totals {
            processes,
            events: [0; EVENTS],
            waits: [[0; BUCKETS]; USES],
            waited_ns: [0; USES],
            waiting: [0; USES],
        };
        for shard in &self.shards {
            for (sum, count) in totals.events.iter_mut().zip(&shard.events) {
                *sum += count.load(Relaxed);
            }
            for (sum, count) in totals.waits.iter_mut().flatten().zip(shard.waits.iter().flatten()) {
                *sum += count.load(Relaxed);
            }
            for (sum, count) in totals.waited_ns.iter_mut().zip(&shard.waited_ns) {
                *sum += count.load(Relaxed);
            }
            for (sum, count) in totals.waiting.iter_mut().zip(&shard.waiting) {
                *sum = sum.wrapping_add(count.load(Relaxed));
            }
        }
        totals
    }

    /// The counts of each object so far, longest total wait first.
    pub fn objects(&self) -> Vec<ObjectTotals> {
        let mut sums = Sums::default();
        self.shards.iter().for_each(|shard| sums.add(&shard.objects));
        sums.sorted()
    }

    /// The code that the processes mapped from files, as far as it was recorded.
    pub fn modules(&self) -> Vec<Mapped> {
        self.modules.list()
    }
}

/// Maps the block behind a descriptor. It is never unmapped.
fn map(fd: i32) -> Option<&'static Block> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe {
        sys::syscall(libc::SYS_mmap, [0, size_of::<Block>(), prot, libc::MAP_SHARED as usize, fd as usize, 0])
    };
    // SAFETY: the mapping is as large as a block, is never unmapped, and all-zero words are a valid block.
    (address > 0).then(|| unsafe { &*(address as *const Block) })
}

/// Counts into the block behind this descriptor from now on. Returns whether it is a flashlock block. Several threads
/// may call this at once: one of them attaches. If the process already counts into a block, it keeps that one.
pub fn attach(fd: i32) -> bool {
    if !ATTACHED.load(Relaxed).is_null() {
        return true;
    }
    let Some(block) = is_trusted(fd).then(|| map(fd)).flatten() else { return false };
    let fresh = core::ptr::from_ref(block).cast_mut();
    let is_ours = block.magic.load(Acquire) == MAGIC && block.version.load(Relaxed) == VERSION;
    // Release pairs with the Acquire in `shard`.
    let won = is_ours && ATTACHED.compare_exchange(core::ptr::null_mut(), fresh, Release, Relaxed).is_ok();
    if won {
        PROCESS.store(block.processes.fetch_add(1, Relaxed), Relaxed);
    } else {
        // SAFETY: mapped just now, and seen by no other thread.
        unsafe { sys::syscall(libc::SYS_munmap, [fresh as usize, size_of::<Block>(), 0, 0, 0, 0]) };
    }
    is_ours
}

/// Whether the descriptor is an anonymous file that cannot grow or shrink, and has the right size.
fn is_trusted(fd: i32) -> bool {
    let mut size = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: F_GET_SEALS takes no argument; fstat writes a stat. Only a sealable anonymous file answers the first.
    unsafe {
        are_enough(sys::syscall(libc::SYS_fcntl, [fd as usize, libc::F_GET_SEALS as usize, 0, 0, 0, 0]))
            && sys::syscall(libc::SYS_fstat, [fd as usize, size.as_mut_ptr() as usize, 0, 0, 0, 0]) == 0
            && size.assume_init().st_size == size_of::<Block>() as libc::off_t
    }
}

/// Whether these seals (or minus an error number) fix the size. There may be more seals: where the administrator
/// forbids executable anonymous files, the kernel adds one.
fn are_enough(seals: isize) -> bool {
    seals >= 0 && seals & SEALS as isize == SEALS as isize
}

#[inline]
fn attached() -> Option<&'static Block> {
    // SAFETY: `ATTACHED` is null or a block that is never unmapped.
    unsafe { ATTACHED.load(Acquire).as_ref() }
}

#[inline]
fn shard() -> Option<&'static Shard> {
    // Not all processes start at the same shard.
    let place = thread::place().wrapping_add(PROCESS.load(Relaxed));
    Some(&attached()?.shards[place as usize % SHARDS])
}

/// Records where the program and its libraries are mapped, if this process counts. Call it at load time.
pub fn prepare() {
    if let Some(block) = attached() {
        block.modules.prepare(PROCESS.load(Relaxed));
    }
}

/// Counts an event for the process and, if it concerns the object that the calling thread is using, for that object.
pub fn count(event: Event) {
    if let Some(shard) = shard() {
        shard.events[event as usize].fetch_add(1, Relaxed);
        about::count(event, shard);
    }
}

/// Counts a wait for the object that the calling thread is using, or for a mutex if no object is known. It ended with
/// an acquisition.
pub fn count_wait(ns: u64) {
    if let Some(shard) = shard() {
        let what = shard.waited(ns);
        shard.waits[what as usize][bucket(ns)].fetch_add(1, Relaxed);
    }
}

/// Counts a wait that ended without an acquisition: only its time, because the histogram is of acquisitions.
fn count_wait_in_vain(ns: u64) {
    if let Some(shard) = shard() {
        shard.waited(ns);
    }
}

impl Shard {
    /// Ends the calling thread's wait, and counts its time. Returns what it was for.
    fn waited(&self, ns: u64) -> Use {
        let what = about::waited(ns, self);
        self.waited_ns[what as usize].fetch_add(ns, Relaxed);
        what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_partition_the_waits() {
        for ns in (0..100_000).chain([1 << 30, 1 << 39, u64::MAX]) {
            let index = bucket(ns);
            assert!(bucket_floor(index) <= ns, "{ns}");
            assert!(index + 1 == BUCKETS || ns < bucket_floor(index + 1), "{ns}");
        }
    }

    #[test]
    fn seals_must_hold_the_size_and_may_do_more() {
        const EXEC: isize = 0x20;
        assert!(are_enough(SEALS as isize) && are_enough(SEALS as isize | EXEC));
        for too_little in [0, EXEC, libc::F_SEAL_GROW as isize, (SEALS & !libc::F_SEAL_SHRINK) as isize] {
            assert!(!are_enough(too_little), "{too_little:#x}");
        }
        for error in [-(libc::EBADF as isize), -(libc::EINVAL as isize), -1] {
            assert!(!are_enough(error), "{error}");
        }
    }

    /// The only block that this test process attaches to, shared by all tests. Checks first what must be refused.
    pub(super) fn block() -> &'static Block {
        static ONCE: std::sync::OnceLock<&Block> = std::sync::OnceLock::new();
        ONCE.get_or_init(|| {
            assert!(!attach(0) && !attach(-1) && !attach(9_999));
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            assert!(!attach(file.as_raw_fd()));
            let (fd, block) = Block::create().unwrap();
            assert!(attach(fd.as_raw_fd()));
            // The first block stays in use, and the process is counted once.
            let (other, unused) = Block::create().unwrap();
            assert!(attach(fd.as_raw_fd()) && attach(other.as_raw_fd()));
            assert_eq!((block.totals().processes, unused.totals().processes), (1, 0));
            block
        })
    }

    #[test]
    fn only_a_block_of_ours_is_attached() {
        let block = block();
        count(Event::Park);
        count_wait(1000);
        let totals = block.totals();
        assert_eq!((totals.of(Event::Park), totals.of(Event::Grant)), (1, 0));
        assert_eq!(totals.waits_of(Use::Mutex)[bucket(1000)], 1);
    }
}
