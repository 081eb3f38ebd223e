//! # Tables of functions
//!
//! What [`dispatch`](crate::dispatch) and [`dispatch_rw`](crate::dispatch_rw) are made of.

/// Defines the table of the functions that are generic over a lock: those of a lock, those before anything is known, and glibc's; and
/// which of them are to be called.
macro_rules! define_table {
    ($trait:ident, $resolve:path;
     $($field:ident($($arg:ident: $type:ty),*) = $generic:expr, $real:path;)*) => {
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

        static FIRST: Table = Table { $($field: first::$field),* };
        static GLIBC: Table = Table { $($field: real::$field),* };
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

/// The pointer in a static `AtomicPtr`, as `load(Acquire)` reads it. By hand, because the compiler would look up in a table where the static is, which is
/// at a fixed distance. (On x86-64 every load acquires, and the compiler moves no access of memory across this one.)
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

pub(crate) use {define_table, load_near};
