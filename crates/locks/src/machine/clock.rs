//! Time.

/// Which clock a [`Deadline`] is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The wall clock, which may be set.
    Realtime,
    /// Time since boot, which never jumps.
    Monotonic,
}

/// An absolute point in time, as POSIX's `abstime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The clock it is read on.
    pub clock: Clock,
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// Returned by timed acquisitions whose deadline has passed: the lock is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// The clocks of a machine.
pub trait Time {
    /// Microseconds of a clock that never jumps, wrapping.
    fn micros() -> u32;

    /// Whether the deadline has passed.
    fn expired(deadline: &Deadline) -> bool;

    /// The deadline this many microseconds from now, or `other` if that is earlier.
    fn sooner(micros: u32, other: Option<Deadline>) -> Deadline;
}
