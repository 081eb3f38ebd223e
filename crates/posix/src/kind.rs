//! # The kind of a mutex
//!
//! Each mutex function decodes `__kind` here, to see which semantics apply and whether glibc must serve the mutex. The
//! word is glibc's: the type in the low bits, then flags. The flags 0x100 and 0x200 (elision forced or forbidden;
//! `settype(NORMAL)` sets the latter) make no difference to us. The bits above them are free: glibc ignores them. While
//! a plain mutex is held, [`DEFERRED`] may be among them.

use core::hint::cold_path;

use flashlock_locks::machine::event::Event;

const TYPE: u32 = 3;
const ROBUST: u32 = 0x10;
const INHERIT: u32 = 0x20;
const PROTECT: u32 = 0x40;
const SHARED: u32 = 0x80;
/// All bits that make a difference.
const MASK: u32 = TYPE | ROBUST | INHERIT | PROTECT | SHARED;
/// Ours, on a plain mutex: the release of the mutex is to wake a waiter of a condition variable, which its `count`
/// names. The bits above this one tell [for which epoch](deferred_in).
pub const DEFERRED: u32 = 0x400;
const EPOCH_AT: u32 = 11;
const EPOCHS: u32 = 1 << 20;
/// The `__kind` that glibc's destroy leaves behind.
pub const DESTROYED: u32 = u32::MAX;

/// The kinds that we distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Default, normal or adaptive: no owner check, no count.
    Plain,
    /// Recursive.
    Recursive,
    /// Error-checking.
    Checking,
    /// Served by glibc, for this reason.
    Glibc(Event),
}

/// Whether a `__kind` is [`Kind::Plain`], in as few instructions as possible.
#[inline(always)]
pub fn is_plain(kind: u32) -> bool {
    kind & MASK == 0 || {
        cold_path();
        kind & MASK == 3
    }
}

/// The `__kind` with [`DEFERRED`], in the process of this epoch.
pub fn with_deferred(kind: u32, epoch: u32) -> u32 {
    without_deferred(kind) | DEFERRED | ((epoch % EPOCHS) << EPOCH_AT)
}

/// The `__kind` without it.
pub fn without_deferred(kind: u32) -> u32 {
    kind & (DEFERRED - 1)
}

/// Whether a `__kind` has [`DEFERRED`] and was set in the process of this epoch, not in one that it was forked from.
pub fn deferred_in(kind: u32, epoch: u32) -> bool {
    kind & !(DEFERRED - 1) == with_deferred(0, epoch)
}

/// The meaning of a `__kind`.
pub fn decode(kind: u32) -> Kind {
    match kind & MASK {
        0 | 3 => Kind::Plain,
        1 => Kind::Recursive,
        2 => Kind::Checking,
        _ if kind == DESTROYED => Kind::Glibc(Event::GlibcUnknown),
        flags if flags & ROBUST != 0 => Kind::Glibc(Event::GlibcRobust),
        flags if flags & INHERIT != 0 => Kind::Glibc(Event::GlibcPi),
        flags if flags & PROTECT != 0 => Kind::Glibc(Event::GlibcPp),
        _ => Kind::Glibc(Event::GlibcShared),
    }
}

/// Whether only the holder may release such a mutex. (glibc's code checks that of robust mutexes, whose owner field may
/// say something else.)
pub fn checks_owner(kind: u32) -> bool {
    let checks = matches!(kind & TYPE, 1 | 2) || kind & INHERIT != 0;
    checks && kind & ROBUST == 0 && kind != DESTROYED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for plain in [0, 3, 0x200, 0x203, 0x100] {
            assert!(is_plain(plain) && decode(plain) == Kind::Plain);
        }
        assert_eq!(decode(1), Kind::Recursive);
        assert_eq!(decode(0x202), Kind::Checking);
        assert_eq!(decode(0x90), Kind::Glibc(Event::GlibcRobust));
        assert_eq!(decode(0x21), Kind::Glibc(Event::GlibcPi));
        assert_eq!(decode(0x40), Kind::Glibc(Event::GlibcPp));
        assert_eq!(decode(0x80), Kind::Glibc(Event::GlibcShared));
        assert_eq!(decode(DESTROYED), Kind::Glibc(Event::GlibcUnknown));
    }

    #[test]
    fn who_must_be_the_holder() {
        for checked in [1, 2, 0x202, 0x20, 0x41, 0x82, 0xA0] {
            assert!(checks_owner(checked), "{checked:#x}");
        }
        for unchecked in [0, 3, 0x40, 0x80, 0x11, 0x30, DESTROYED] {
            assert!(!checks_owner(unchecked), "{unchecked:#x}");
        }
    }

    #[test]
    fn a_deferred_wake_up_is_for_the_release_in_its_own_process() {
        for plain in [0, 3, 0x200, 0x203, 0x100] {
            let marked = with_deferred(plain, 5);
            assert!(is_plain(marked) && decode(marked) == Kind::Plain && without_deferred(marked) == plain);
            assert!(
                deferred_in(marked, 5) && !deferred_in(marked, 6) && !deferred_in(plain, 5) && !deferred_in(plain, 0)
            );
            assert!(deferred_in(with_deferred(marked, 6), 6) && with_deferred(plain, u32::MAX) < 1 << 31);
        }
    }
}
