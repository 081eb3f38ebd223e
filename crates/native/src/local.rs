//! # Where each thread keeps what is its own
//!
//! In the block that the thread was born with. The compiler's own way to thread-local storage in a shared library asks
//! the dynamic linker where it is (`__tls_get_addr`), and that, once the program has loaded a number of libraries,
//! *allocates*, in whatever call comes first in each thread: a lock call, inside a malloc that is built on mutexes,
//! does not come back. So the storage is laid down here by hand, at a distance from the thread pointer which is settled
//! at load time (the *initial-exec* model, for which stable Rust has no word). It costs two instructions, and no call.
//!
//! The price: a library that is loaded with `dlopen` finds room there only if that is small; glibc keeps half a
//! kilobyte.

/// A value for each thread, all-zero at first, that is never dropped: `LOCAL.with(|value| …)`, as of `thread_local!`.
/// The symbol is seen by the linker only, and must be nobody else's.
///
/// The type must be such that all-zero is a value of it, and that it needs no drop.
macro_rules! zeroed_per_thread {
    (static $name:ident: $type:ty = $symbol:literal;) => {
        core::arch::global_asm!(
            concat!(".pushsection .tbss.", $symbol, ",\"awT\",@nobits"),
            ".balign {align}",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ",@tls_object"),
            concat!(".size ", $symbol, ",{size}"),
            concat!($symbol, ":"),
            ".zero {size}",
            ".popsection",
            align = const align_of::<$type>(),
            size = const size_of::<$type>(),
        );

        struct PerThread;

        static $name: PerThread = PerThread;

        impl PerThread {
            /// Calls `f` with the calling thread's value.
            #[inline(always)]
            fn with<R>(&self, f: impl FnOnce(&$type) -> R) -> R {
                const { assert!(!core::mem::needs_drop::<$type>()) };
                let at: *const $type;
                // SAFETY: the address of the thread's copy of the symbol. What is read for it is constant in each
                // thread.
                #[cfg(target_arch = "x86_64")]
                unsafe {
                    core::arch::asm!(
                        concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                        "add {at}, qword ptr fs:[0]",
                        at = out(reg) at,
                        options(pure, nomem, nostack),
                    );
                }
                // SAFETY: as above.
                #[cfg(target_arch = "aarch64")]
                unsafe {
                    core::arch::asm!(
                        concat!("adrp {at}, :gottprel:", $symbol),
                        concat!("ldr {at}, [{at}, #:gottprel_lo12:", $symbol, "]"),
                        "mrs {thread}, tpidr_el0",
                        "add {at}, {at}, {thread}",
                        at = out(reg) at,
                        thread = out(reg) _,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                // SAFETY: the storage is as large and aligned as the type, was zeroed, which is valid, and lives as
                // long as the thread, which no `&` to it leaves.
                f(unsafe { &*at })
            }
        }
    };
}

pub(crate) use zeroed_per_thread;
