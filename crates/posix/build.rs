//! Builds the shim for cancellation points, which needs `pthread_cleanup_push`, a C macro.

fn main() {
    println!("cargo::rerun-if-changed=src/cancel.c");
    cc::Build::new()
        .file("src/cancel.c")
        .define("_GNU_SOURCE", None)
        .flag("-std=gnu11")
        .warnings_into_errors(true)
        .compile("flashlock_cancel");
}
