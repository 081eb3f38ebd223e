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
            unsafe { &*TABLE.load(Acquire) }
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

pub(crate) use define_table;
