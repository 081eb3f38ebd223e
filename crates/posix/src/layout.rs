//! # The layout of glibc's objects (x86-64 and other 64-bit Linux)
//!
//! How a lock's state and glibc's own fields share the memory of a pthread object. Functions of this crate view a
//! program's objects through the types here.
//!
//! ```text
//! pthread_mutex_t (40 bytes)                          pthread_cond_t (48 bytes)
//!  0  our word (glibc: __lock, same protocol)          0  CondQueue, 24 bytes
//!  4  recursion count, as glibc's __count; if plain:  24  –
//!     the waiter that its release wakes
//!  8  owner's thread id, as glibc's __owner           28  __wrefs from glibc 2.41 on \  bit 0: process-shared
//! 12  glibc's __nusers; upper half: our waiters       36  __wrefs up to glibc 2.40   /  bit 1: CLOCK_MONOTONIC
//! 16  __kind, glibc's                                 40  –
//! 20  glibc's __spins; the first word of a queue of 20 bytes
//! 24  our queue, 16 bytes (glibc: robust list)
//!
//! pthread_rwlock_t (56 bytes)
//!  0  our state, 24 bytes
//! 24  thread id of the writer, as glibc's __cur_writer
//! 28  glibc's __shared: process-shared
//! 32  –
//! 48  glibc's __flags: the kind
//! ```
//!
//! Recursive mutexes keep the count, and all mutexes the owner, exactly as glibc does. So code that runs glibc's
//! functions on the same mutex sees what it expects.
//!
//! The layout is selected by the version of glibc that the process runs on. It is then checked against what glibc's own
//! `pthread_*_init` functions do (for condition variables only from glibc 2.34 on). If the version is unknown, or the
//! check fails, flashlock leaves pthread objects alone: every call goes to glibc.

use core::ffi::{CStr, c_char, c_int};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, fence};

use flashlock_locks::cond::CondQueue;
use flashlock_locks::cond::deferral::Place;
use flashlock_locks::machine::Machine;
use flashlock_native::{Word32, holder};

use crate::glibc;
use crate::kind::{deferred_in, is_plain, with_deferred, without_deferred};

/// A condition variable's waiter, counted in [`Mutex::users`].
const WAITER: u32 = 1 << 16;

/// Our view of a `pthread_mutex_t`.
#[repr(C)]
pub struct Mutex {
    /// The lock's word.
    pub word: Word32,
    /// How often a recursive mutex is held. A plain mutex has no such count: this is 0, or names the waiter of a
    /// condition variable whose wake-up was left to the release ([`Defer`](flashlock_locks::cond::Defer)).
    pub count: Word32,
    /// The holder's thread id. For a plain mutex it is 0 if the id is not at hand. There it is for debuggers, and tells
    /// a thread that signals whether it holds the mutex.
    pub owner: AtomicU32,
    /// glibc's `__nusers`, by which glibc's destroy sees that the mutex is in use. Our lock and unlock do not change
    /// it. glibc's code may count an acquisition that we release, or the reverse. The upper half counts the threads
    /// that wait on a condition variable and will acquire the mutex again.
    users: AtomicU32,
    /// glibc's `__kind`.
    pub kind: AtomicU32,
    spins: AtomicU32,
    queue: [Word32; 4],
}

// On AArch64, glibc's type has 8 more bytes at its end.
const _: () = assert!(size_of::<Mutex>() <= size_of::<libc::pthread_mutex_t>());
const _: () =
    assert!(offset_of!(Mutex, kind) == 16 && offset_of!(Mutex, spins) == 20 && offset_of!(Mutex, queue) == 24);

impl Mutex {
    /// The mutex at an address.
    ///
    /// # Safety
    /// There is a `pthread_mutex_t` at the address for as long as the reference is used.
    #[inline(always)]
    pub unsafe fn at<'a>(address: *mut libc::pthread_mutex_t) -> &'a Self {
        // SAFETY: callers guarantee the object. All fields are atomics, valid for any bytes.
        unsafe { &*address.cast::<Self>() }
    }

    /// Counts one more thread that waits on a condition variable and will acquire the mutex again. The caller holds the
    /// mutex.
    pub fn begin_wait(&self) {
        self.users.fetch_add(WAITER, Relaxed);
    }

    /// Counts one less. The caller has acquired the mutex again; other holders in between do not affect the count.
    pub fn end_wait(&self) {
        self.users.fetch_sub(WAITER, Relaxed);
    }

    /// Whether a thread waits that will acquire the mutex again. The result does not depend on glibc's own count, which
    /// may be too high or too low.
    pub fn has_waiters(&self) -> bool {
        self.users.load(Relaxed).wrapping_add(WAITER / 2) >= WAITER
    }

    /// The queue of the one lock that serves mutexes in this process: a `Q` made of words. It is in our 16 bytes, or in
    /// 20 bytes with glibc's `__spins`, which is unused if no glibc code may touch the mutex.
    ///
    /// # Safety
    /// `Q` is made of `Word32`s.
    #[inline(always)]
    pub unsafe fn queue<Q>(&self) -> &Q {
        const { assert!(size_of::<Q>() <= 20 && align_of::<Q>() <= 4) };
        let at = if size_of::<Q>() <= 16 { offset_of!(Self, queue) } else { offset_of!(Self, spins) };
        // SAFETY: the callers' promise. It fits (checked above), and any bytes are valid words.
        unsafe { &*(&raw const *self).byte_add(at).cast::<Q>() }
    }
}

/// For plain mutexes. Without an owner's id there is no owner, and nothing is left there.
impl<M: Machine<Word = Word32>> Place<M> for Mutex {
    fn is_mine(&self) -> bool {
        let me = holder::id();
        // Not if glibc's code counts a holder: it would release the mutex without waking the waiter.
        let is_ours = self.users.load(Relaxed).is_multiple_of(WAITER) && is_plain(self.kind.load(Relaxed));
        me != 0 && self.owner.load(Relaxed) == me && is_ours
    }

    fn waiter(&self) -> &Word32 {
        &self.count
    }

    fn mark(&self, epoch: u32) {
        self.kind.store(with_deferred(self.kind.load(Relaxed), epoch), Relaxed);
    }

    fn unmark(&self) {
        self.kind.store(without_deferred(self.kind.load(Relaxed)), Relaxed);
    }

    fn is_marked(&self, epoch: u32) -> bool {
        deferred_in(self.kind.load(Relaxed), epoch)
    }

    fn fence(&self) {
        fence(SeqCst);
    }
}

/// Our view of a `pthread_cond_t`.
#[repr(C)]
pub struct Cond<M: Machine<Word = Word32>> {
    /// The waiters.
    pub queue: CondQueue<M>,
    rest: [AtomicU32; 6],
}

const _: () = assert!(size_of::<Cond<flashlock_native::Native>>() == size_of::<libc::pthread_cond_t>());

/// Our view of a `pthread_rwlock_t`.
#[repr(C)]
pub struct RwLock {
    state: [Word32; 6],
    /// Thread id of the writer that holds it.
    pub writer: AtomicU32,
    /// glibc's `__shared`: 0 if the lock is private to this process.
    pub shared: AtomicU32,
    rest: [AtomicU32; 4],
    /// glibc's `__flags`: its kind.
    pub kind: AtomicU32,
    pad: AtomicU32,
}

const _: () = assert!(size_of::<RwLock>() == size_of::<libc::pthread_rwlock_t>());
const _: () = assert!(core::mem::offset_of!(RwLock, shared) == RW_SHARED_AT);
const _: () = assert!(core::mem::offset_of!(RwLock, kind) == RW_KIND_AT);
const RW_SHARED_AT: usize = 28;
const RW_KIND_AT: usize = 48;

impl RwLock {
    /// The readers-writer lock at an address.
    ///
    /// # Safety
    /// There is a `pthread_rwlock_t` at the address for as long as the reference is used.
    #[inline(always)]
    pub unsafe fn at<'a>(address: *mut libc::pthread_rwlock_t) -> &'a Self {
        // SAFETY: callers guarantee the object. All fields are atomics, valid for any bytes.
        unsafe { &*address.cast::<Self>() }
    }

    /// The state of the one lock that serves readers and writers in this process: an `S` made of words, in our 24
    /// bytes.
    ///
    /// # Safety
    /// `S` is made of `Word32`s.
    #[inline(always)]
    pub unsafe fn state<S>(&self) -> &S {
        const { assert!(size_of::<S>() <= 24 && align_of::<S>() <= 4) };
        // SAFETY: the callers' promise. It fits (checked above), and any bytes are valid words.
        unsafe { &*(&raw const self.state).cast::<S>() }
    }
}

/// Bit of glibc's `__wrefs`: process-shared.
pub const COND_SHARED: u32 = 1;
/// Bit of glibc's `__wrefs`: deadlines are on `CLOCK_MONOTONIC`.
pub const COND_MONOTONIC: u32 = 2;

/// Offset of `__wrefs` in a condition variable, once known.
static COND_FLAGS_AT: AtomicU32 = AtomicU32::new(36);

impl<M: Machine<Word = Word32>> Cond<M> {
    /// The condition variable at an address.
    ///
    /// # Safety
    /// There is a `pthread_cond_t` at the address for as long as the reference is used.
    #[inline(always)]
    pub unsafe fn at<'a>(address: *mut libc::pthread_cond_t) -> &'a Self {
        // SAFETY: callers guarantee the object. All fields are atomics, valid for any bytes.
        unsafe { &*address.cast::<Self>() }
    }

    /// glibc's flags: [`COND_SHARED`], [`COND_MONOTONIC`].
    #[inline]
    pub fn flags(&self) -> u32 {
        let at = COND_FLAGS_AT.load(Relaxed) as usize;
        // SAFETY: the offset is 28 or 36, a word inside `self`.
        unsafe { &*(&raw const *self).byte_add(at).cast::<AtomicU32>() }.load(Relaxed)
    }
}

/// One row for each range of glibc 2 versions (minor numbers) that have the same layout: first, last, offset of
/// `__wrefs`. `cargo xtask glibc` runs the tests on some versions of each row; docs/glibc.md lists them.
const LAYOUTS: &[(u32, u32, u32)] = &[(31, 40, 36), (41, 44, 28)];

/// The version of the glibc that the process runs on, as glibc states it.
pub fn glibc_version() -> &'static CStr {
    unsafe extern "C" {
        safe fn gnu_get_libc_version() -> *const c_char;
    }
    // SAFETY: glibc returns a static string.
    unsafe { CStr::from_ptr(gnu_get_libc_version()) }
}

/// Sets the layout. Returns whether it is known; if not, none of our code may touch a pthread object.
pub fn prepare() -> bool {
    let Some(minor) = minor_version(glibc_version().to_bytes()) else { return false };
    let Some(flags_at) = layout_of(minor) else { return false };
    COND_FLAGS_AT.store(flags_at, Relaxed);
    glibc_agrees_on_mutexes()
        && glibc_agrees_on_rwlocks()
        && (minor < LOOKS_UP_QUIETLY || glibc_agrees_on_conds(flags_at as usize))
}

fn layout_of(minor: u32) -> Option<u32> {
    LAYOUTS.iter().find(|(first, last, _)| (*first..=*last).contains(&minor)).map(|row| row.2)
}

/// The second number of `2.36`, or of `2.36.9000`.
fn minor_version(version: &[u8]) -> Option<u32> {
    let mut parts = core::str::from_utf8(version).ok()?.split('.');
    (parts.next()? == "2").then_some(())?;
    parts.next()?.parse().ok()
}

/// From this version on, looking up a function does not allocate. We may be inside malloc, so in earlier versions we do
/// not ask glibc about its condition variables; those versions will not change any more.
const LOOKS_UP_QUIETLY: u32 = 34;

/// Lets glibc initialise a recursive mutex, and checks where it put the kind. For that glibc neither takes a lock nor
/// allocates.
fn glibc_agrees_on_mutexes() -> bool {
    let mut bytes = [0u8; size_of::<libc::pthread_mutex_t>()];
    // SAFETY: attributes are initialised before use, and the bytes are copied from an object of that size. (All-zero is
    // valid for both.)
    unsafe {
        let mut attr: libc::pthread_mutexattr_t = core::mem::zeroed();
        let mut object: libc::pthread_mutex_t = core::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attr);
        libc::pthread_mutexattr_settype(&raw mut attr, libc::PTHREAD_MUTEX_RECURSIVE);
        glibc::pthread_mutex_init(&raw mut object, &raw const attr);
        core::ptr::copy_nonoverlapping((&raw const object).cast(), bytes.as_mut_ptr(), bytes.len());
    }
    has_only(&bytes, 16, libc::PTHREAD_MUTEX_RECURSIVE as u8)
}

/// The same check for a readers-writer lock that prefers writers, and for one that processes share.
fn glibc_agrees_on_rwlocks() -> bool {
    let bytes_of = |kind, shared| {
        let mut bytes = [0u8; size_of::<libc::pthread_rwlock_t>()];
        // SAFETY: as above.
        unsafe {
            let mut attr: libc::pthread_rwlockattr_t = core::mem::zeroed();
            let mut object: libc::pthread_rwlock_t = core::mem::zeroed();
            pthread_rwlockattr_init(&raw mut attr);
            pthread_rwlockattr_setkind_np(&raw mut attr, kind);
            pthread_rwlockattr_setpshared(&raw mut attr, shared);
            glibc::pthread_rwlock_init(&raw mut object, &raw const attr);
            core::ptr::copy_nonoverlapping((&raw const object).cast(), bytes.as_mut_ptr(), bytes.len());
        }
        bytes
    };
    let shared = bytes_of(0, libc::PTHREAD_PROCESS_SHARED);
    let is_shared = |at: usize, byte: u8| (byte != 0) == (at == RW_SHARED_AT);
    has_only(&bytes_of(2, libc::PTHREAD_PROCESS_PRIVATE), RW_KIND_AT, 2)
        && (0..shared.len()).all(|at| is_shared(at, shared[at]))
}

unsafe extern "C" {
    fn pthread_rwlockattr_init(attr: *mut libc::pthread_rwlockattr_t) -> c_int;
    fn pthread_rwlockattr_setkind_np(attr: *mut libc::pthread_rwlockattr_t, kind: c_int) -> c_int;
    fn pthread_rwlockattr_setpshared(attr: *mut libc::pthread_rwlockattr_t, shared: c_int) -> c_int;
}

/// The same check for a condition variable with the monotonic clock.
fn glibc_agrees_on_conds(flags_at: usize) -> bool {
    let mut bytes = [0u8; size_of::<libc::pthread_cond_t>()];
    // SAFETY: as above.
    unsafe {
        let mut attr: libc::pthread_condattr_t = core::mem::zeroed();
        let mut object: libc::pthread_cond_t = core::mem::zeroed();
        libc::pthread_condattr_init(&raw mut attr);
        libc::pthread_condattr_setclock(&raw mut attr, libc::CLOCK_MONOTONIC);
        glibc::pthread_cond_init(&raw mut object, &raw const attr);
        core::ptr::copy_nonoverlapping((&raw const object).cast(), bytes.as_mut_ptr(), bytes.len());
    }
    has_only(&bytes, flags_at, COND_MONOTONIC as u8)
}

/// Whether all bytes are 0 except the one at `at`, which is `value`.
fn has_only(bytes: &[u8], at: usize, value: u8) -> bool {
    bytes.iter().enumerate().all(|(i, &byte)| byte == if i == at { value } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(minor_version(b"2.36"), Some(36));
        assert_eq!(minor_version(b"2.41.9000"), Some(41));
        assert_eq!(minor_version(b"3.0"), None);
        assert_eq!(minor_version(b"2"), None);
    }

    #[test]
    fn waiters_are_counted_beside_glibcs_users() {
        let mut object = libc::PTHREAD_MUTEX_INITIALIZER;
        // SAFETY: the test's own object.
        let mutex = unsafe { Mutex::at(&raw mut object) };
        for glibcs in [0, 1, 3, u32::MAX, u32::MAX - 2] {
            mutex.users.store(glibcs, Relaxed);
            assert!(!mutex.has_waiters(), "{glibcs}");
            mutex.begin_wait();
            assert!(mutex.has_waiters(), "{glibcs}");
            mutex.begin_wait();
            mutex.end_wait();
            assert!(mutex.has_waiters(), "{glibcs}");
            mutex.end_wait();
            assert!(!mutex.has_waiters() && mutex.users.load(Relaxed) == glibcs, "{glibcs}");
        }
    }

    #[test]
    fn only_known_versions_have_a_layout() {
        assert_eq!(layout_of(30), None);
        assert_eq!(layout_of(31), Some(36));
        assert_eq!(layout_of(40), Some(36));
        assert_eq!(layout_of(41), Some(28));
        assert_eq!(layout_of(99), None);
    }

    #[test]
    fn this_glibc_is_as_the_table_says() {
        assert!(prepare());
    }

    #[test]
    fn a_wrong_layout_is_noticed() {
        assert!(!glibc_agrees_on_conds(32));
    }
}
