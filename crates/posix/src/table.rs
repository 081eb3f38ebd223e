//! # Tables of functions
//!
//! What [`dispatch`](crate::dispatch), [`dispatch_rw`](crate::dispatch_rw) and [`common`](mod@crate::common) are made
//! of.
//!
//! A row names a function of pthreads, and what serves it: one of ours, which is generic over the lock; glibc's; and
//! glibc's, watched ([`watch`](crate::watch)). Its last column says what the counters are to know of a call:
//!
//! | column | the call |
//! |---|---|
//! | `takes USE OBJECT` | may acquire the object |
//! | `makes KIND OBJECT` | initialises it |
//! | `plain` | does neither |
//!
//! ## Who calls
//! The counters record where in the program an object was first used: the address that the call returns to. Stable Rust
//! cannot read it, so each function of a table that counts is entered by two instructions ([`define_entry`]), which
//! pass that address on as one more argument. In an optimised build, an exported function jumps to them, so the address
//! is the program's. Where a function of this library calls, as in `mtx_lock`, the address is in this library, and the
//! report leaves it out.

/// Defines the table of the functions that are generic over a lock: those of a lock, those before anything is known,
/// and glibc's; and which of them are to be called.
macro_rules! define_table {
    ($trait:ident, $resolve:path;
     $($field:ident($($arg:ident: $type:ty),*) = $generic:expr, $real:path, $watched:expr,
       $role:ident $($what:ident $object:ident)?;)*) => {
        /// The functions of one lock.
        pub struct Table {
            $(
                #[doc = concat!("`pthread_", stringify!($field), "`")]
                pub $field: unsafe extern "C-unwind" fn($($type),*) -> c_int,
            )*
        }

        impl Table {
            const fn of<L: $trait<M>, M: Machine<Word = Word32>>() -> Self {
                Self { $($field: $generic),* }
            }

            /// The same, and the counters know what is used.
            #[cfg(feature = "stats")]
            const fn counting<L: $trait<M>, M: Machine<Word = Word32>>() -> Self {
                Self { $($field: crate::table::counted!($role, $generic, counted::$field::<L, M>)),* }
            }
        }

        /// Before anything is known: find out, then go on.
        mod first {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: the caller's.
                    unsafe { ($resolve().$field)($($arg),*) }
                }
            )*
        }

        /// Everything to glibc.
        mod real {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: the caller's.
                    unsafe { $real($($arg),*) }
                }
            )*
        }

        crate::table::define_entries! {
            [<L: $trait<M>, M: Machine<Word = Word32>>] [::<L, M>]
            $($field($($arg: $type),*) = $generic, $watched, $role $($what $object)?;)*
        }

        static FIRST: Table = Table { $($field: first::$field),* };
        static GLIBC: Table = Table { $($field: real::$field),* };
        #[cfg(feature = "stats")]
        static WATCHED: Table = Table { $($field: crate::table::counted!($role, $watched, watched::$field)),* };
        static TABLE: AtomicPtr<Table> = AtomicPtr::new((&raw const FIRST).cast_mut());

        /// The functions to call.
        #[inline(always)]
        pub fn table() -> &'static Table {
            // SAFETY: `TABLE` only ever points to statics.
            unsafe { &*crate::table::load_near!(TABLE) }
        }

        /// Makes these the functions to call, unless others have been chosen meanwhile. Those to call.
        fn install(chosen: &'static Table) -> &'static Table {
            let chosen = core::ptr::from_ref(chosen).cast_mut();
            // Release: with the table comes all that was settled before; pairs with the Acquire in `table` and here.
            match TABLE.compare_exchange((&raw const FIRST).cast_mut(), chosen, AcqRel, Acquire) {
                Ok(_) => table(),
                // SAFETY: as in `table`.
                Err(winner) => unsafe { &*winner },
            }
        }
    };
}

/// Of a row: the function itself, or what tells the counters and then calls it.
#[cfg(feature = "stats")]
macro_rules! counted {
    (plain, $itself:expr, $entry:expr) => {
        $itself
    };
    ($role:ident, $itself:expr, $entry:expr) => {
        $entry
    };
}

/// Defines the functions that tell the counters what a call is about: `counted`, over ours, and `watched`, over
/// glibc's.
macro_rules! define_entries {
    ($params:tt $turbofish:tt
     $($field:ident($($arg:ident: $type:ty),*) = $generic:expr, $watched:expr,
       $role:ident $($what:ident $object:ident)?;)*) => {
        #[cfg(feature = "stats")]
        mod counted {
            use super::*;
            mod body {
                use super::*;
                $(crate::table::define_body! {
                    $params $field($($arg: $type),*) = $generic, $role $($what $object)?
                })*
            }
            $(crate::table::define_entry! { $role, $params $turbofish $field($($arg: $type),*) })*
        }

        #[cfg(feature = "stats")]
        mod watched {
            use super::*;
            mod body {
                use super::*;
                $(crate::table::define_body! { [] $field($($arg: $type),*) = $watched, $role $($what $object)? })*
            }
            $(crate::table::define_entry! { $role, [] [] $field($($arg: $type),*) })*
        }
    };
}

/// A function that calls `body` of the same name with its own arguments in the first four registers, and the address
/// that it will return to in the fifth.
#[cfg(feature = "stats")]
macro_rules! define_entry {
    (plain, $($rest:tt)*) => {};
    ($role:ident, [$($params:tt)*] [$($turbofish:tt)*] $field:ident($($arg:ident: $type:ty),*)) => {
        // Not every function depends on the lock.
        #[allow(clippy::extra_unused_type_parameters)]
        #[unsafe(naked)]
        pub(super) unsafe extern "C-unwind" fn $field $($params)* ($($arg: $type),*) -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov r8, qword ptr [rsp]", "jmp {body}", body = sym body::$field $($turbofish)*);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("mov x4, x30", "b {body}", body = sym body::$field $($turbofish)*);
        }
    };
}

/// What an entry jumps to: it tells the counters which object the call is about, then calls. Of the four arguments,
/// those that the function does not have are garbage. No frame has anything to drop: a cancelled thread is unwound
/// through them.
#[cfg(feature = "stats")]
macro_rules! define_body {
    ([$($params:tt)*] $field:ident($($arg:ident: $type:ty),*) = $call:expr, plain) => {};
    ([$($params:tt)*] $field:ident($($arg:ident: $type:ty),*) = $call:expr, $role:ident $what:ident $object:ident) => {
        // Not every function depends on the lock.
        #[allow(clippy::extra_unused_type_parameters)]
        pub(super) unsafe extern "C-unwind" fn $field $($params)* (
            a: usize,
            b: usize,
            c: usize,
            d: usize,
            site: usize,
        ) -> c_int {
            let rest = (a, (b, (c, (d, ()))));
            $(
                let $arg = rest.0 as $type;
                let rest = rest.1;
            )*
            let _ = rest;
            crate::table::during!($role $what $object, site, {
                // SAFETY: the caller's.
                unsafe { $call($($arg),*) }
            })
        }
    };
}

/// A call, told to the counters.
#[cfg(feature = "stats")]
macro_rules! during {
    (takes $what:ident $object:ident, $site:ident, $call:block) => {{
        let scope = flashlock_native::stats::begin(flashlock_native::stats::Use::$what, $object as usize, $site);
        let result = $call;
        scope.end(result == 0 || result == libc::EOWNERDEAD);
        result
    }};
    (makes $kind:ident $object:ident, $site:ident, $call:block) => {{
        flashlock_native::stats::made(flashlock_native::stats::Kind::$kind, $object as usize, $site);
        $call
    }};
}

/// The pointer in a static `AtomicPtr`, as `load(Acquire)` reads it. By hand, because the compiler would look up in a
/// table where the static is, which is at a fixed distance. (On x86-64 every load acquires, and the compiler moves no
/// access of memory across this one.)
macro_rules! load_near {
    ($name:ident) => {{
        #[cfg(target_arch = "x86_64")]
        {
            let pointer;
            // SAFETY: reads the static.
            core::arch::asm!(
                "mov {pointer}, qword ptr [rip + {at}]",
                pointer = out(reg) pointer,
                at = sym $name,
                options(nostack, preserves_flags),
            );
            core::convert::identity::<*mut _>(pointer)
        }
        #[cfg(not(target_arch = "x86_64"))]
        $name.load(Acquire)
    }};
}

#[cfg(feature = "stats")]
pub(crate) use {counted, define_body, define_entry, during};
pub(crate) use {define_entries, define_table, load_near};
