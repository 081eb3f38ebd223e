//! # Thread-local storage without allocation
//!
//! Lock paths keep per-thread values with this macro. The values are in the block with which the thread was created.
//!
//! In a shared library, the compiler's own thread-local storage asks the dynamic linker for the address
//! (`__tls_get_addr`). Once the program has loaded a number of libraries, that call *allocates* on its first use in
//! each thread. If a lock call does that inside a malloc that is built on mutexes, it never returns. So the storage is
//! laid out here by hand, at a distance from the thread pointer that is fixed at load time (the *initial-exec* model,
//! which stable Rust cannot request). An access costs two instructions, and no call.
//!
//! The price: a library loaded with `dlopen` finds room there only if the storage is small; glibc reserves half a
//! kilobyte.

/// A value for each thread, all-zero at first, that is never dropped. Use it like `thread_local!`: `LOCAL.with(|value|
/// …)`. Only the linker sees the symbol, which must be unique.
///
/// All-zero must be a valid value of the type, and the type must not need a drop.
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
                // SAFETY: computes the address of the thread's copy of the symbol. What it reads is constant in each
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
                // SAFETY: the storage has the type's size and alignment. It was zeroed, which is valid. It lives as
                // long as the thread, and no `&` to it leaves the thread.
                f(unsafe { &*at })
            }
        }
    };
}

pub(crate) use zeroed_per_thread;
