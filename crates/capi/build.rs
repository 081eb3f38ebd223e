//! Sets the shared library's name for the dynamic linker. Also makes the library stay loaded, because its threads run
//! in it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libflashlock_rcl.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
