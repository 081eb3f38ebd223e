//! # Tables of functions
//!
//! The macros that build the tables in [`dispatch`](crate::dispatch), [`dispatch_rw`](crate::dispatch_rw) and
//! [`common`](mod@crate::common).
//!
//! A row names a pthread function and the functions that serve it: ours, which is generic over the lock; glibc's; and
//! glibc's, watched ([`watch`](crate::watch)). The last column says what the counters record of a call:
//!
//! | column | the call |
//! |---|---|
//! | `takes USE OBJECT` | may acquire the object |
//! | `makes KIND OBJECT` | initialises it |
//! | `plain` | does neither |
//!
//! ## Recording the caller
//! The counters record where in the program an object was first used: the address that the call returns to. Stable Rust
//! cannot read that address. So each function of a counting table is entered through two instructions
//! ([`define_entry`]), which pass the address on as an extra argument. In an optimised build, an exported function
//! jumps to them, so the address is the program's. If a function of this library is the caller, as in `mtx_lock`, the
//! address is in this library, and the report omits it.

/// Defines the table of the functions that are generic over a lock. Its instances are: those of each lock, those before
/// the choice is known, and glibc's. Also defines which of them are called.
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

            /// Like [`Self::of`], but the counters record the object of each call.
            #[cfg(feature = "stats")]
            const fn counting<L: $trait<M>, M: Machine<Word = Word32>>() -> Self {
                Self { $($field: crate::table::counted!($role, $generic, counted::$field::<L, M>)),* }
            }
        }

        /// Used before the choice is known: find it out, then go on.
        mod first {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: callers guarantee it.
                    unsafe { ($resolve().$field)($($arg),*) }
                }
            )*
        }

        /// Leaves everything to glibc.
        mod real {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $field($($arg: $type),*) -> c_int {
                    // SAFETY: callers guarantee it.
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

        /// Selects the functions to call, unless another table was selected meanwhile. Returns the selected table.
        fn install(chosen: &'static Table) -> &'static Table {
            let chosen = core::ptr::from_ref(chosen).cast_mut();
            // Release: publishes everything settled before with the table; pairs with the Acquire in `table` and here.
            match TABLE.compare_exchange((&raw const FIRST).cast_mut(), chosen, AcqRel, Acquire) {
                Ok(_) => table(),
                // SAFETY: as in `table`.
                Err(winner) => unsafe { &*winner },
            }
        }
    };
}

/// For a row: the function itself, or the entry that informs the counters and then calls it.
#[cfg(feature = "stats")]
macro_rules! counted {
    (plain, $itself:expr, $entry:expr) => {
        $itself
    };
    ($role:ident, $itself:expr, $entry:expr) => {
        $entry
    };
}

/// Defines the entries that tell the counters what a call is about: `counted`, for our functions, and `watched`, for
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

/// Defines a function that calls the `body` of the same name with its own arguments in the first four registers, and
/// its return address in the fifth.
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

/// Defines what an entry jumps to: it tells the counters which object the call is about, then makes the call. Those of
/// the four arguments that the function does not have are garbage. No frame has anything to drop, because a cancelled
/// thread is unwound through them.
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
                // SAFETY: callers guarantee it.
                unsafe { $call($($arg),*) }
            })
        }
    };
}

/// Makes a call and reports it to the counters.
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

/// Loads the pointer in a static `AtomicPtr`, like `load(Acquire)`. Written in assembly, because the compiler would
/// look up the static's address in a table, although it is at a fixed distance. (On x86-64 every load acquires, and the
/// compiler moves no memory access across this one.)
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
