//! Builds the C shim for cancellation points, which needs the C macro `pthread_cleanup_push`. Also ensures that a
//! library built on a new glibc loads on an old one ([`link_as_on_glibc_2_31`]).

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Functions that current glibc has in `libc.so.6` with the version `GLIBC_2.34`. Here: the library, the version and
/// the names that every glibc since 2.31 also has for them. The versions are x86-64's; a version includes those above
/// it.
const MOVED: [(&str, &str, &[&str]); 3] = [
    (
        "libpthread.so.0",
        "GLIBC_2.2.5",
        &[
            "__pthread_mutex_init",
            "__pthread_rwlock_init",
            "pthread_key_create",
            "pthread_key_delete",
            "pthread_mutexattr_init",
            "pthread_mutexattr_settype",
            "pthread_rwlockattr_init",
            "pthread_rwlockattr_setkind_np",
            "pthread_rwlockattr_setpshared",
            "pthread_setspecific",
            "pthread_testcancel",
        ],
    ),
    (
        "libpthread.so.0",
        "GLIBC_2.3.3",
        &[
            "__pthread_register_cancel",
            "__pthread_unregister_cancel",
            "__pthread_unwind_next",
            "pthread_condattr_setclock",
        ],
    ),
    ("libdl.so.2", "GLIBC_2.2.5", &["dlsym", "dlvsym"]),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/cancel.c");
    println!("cargo::rerun-if-changed=src/stat.c");
    let mut shim = cc::Build::new();
    shim.file("src/cancel.c").define("_GNU_SOURCE", None).flag("-std=gnu11").warnings_into_errors(true);
    let target = |part| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if (target("ARCH").as_str(), target("ENV").as_str()) == ("x86_64", "gnu") {
        link_as_on_glibc_2_31();
        // Whole archive: only the standard library refers to it, and that comes after us on the linker's command line.
        shim.file("src/stat.c").link_lib_modifier("+whole-archive");
    }
    shim.compile("flashlock_cancel");
}

/// Makes the linker take [`MOVED`] from where glibc 2.31 has them. glibc 2.34 merged `libpthread` and `libdl` into
/// `libc`, under a new symbol version. A library linked there does not load on an older glibc. But the new glibc still
/// serves the old names, from libraries that are now empty. So the linker sees, before the real `libc.so.6`, a
/// `libpthread.so.0` and a `libdl.so.2` as they were: libraries with these symbols and nothing behind them, used only
/// for linking. The price: the dynamic linker opens two more empty libraries when a program starts.
fn link_as_on_glibc_2_31() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rustc-link-search=native={}", out.display());
    for (soname, name) in [("libpthread.so.0", "pthread_2_31"), ("libdl.so.2", "dl_2_31")] {
        stand_in(soname, &out.join(format!("lib{name}")));
        println!("cargo::rustc-link-lib=dylib={name}");
    }
}

/// Builds `STEM.so`, which the linker takes for the library `soname`.
fn stand_in(soname: &str, stem: &Path) {
    let (mut source, mut script, mut parent) = (String::new(), String::new(), "");
    for (_, version, names) in MOVED.iter().filter(|(library, ..)| *library == soname) {
        source.extend(names.iter().map(|name| format!("void {name}(void) {{}}\n")));
        script += &format!("{version} {{ global: {}; }} {parent};\n", names.join("; "));
        parent = version;
    }
    let (source_file, script_file) = (stem.with_extension("c"), stem.with_extension("map"));
    fs::write(&source_file, source).expect("OUT_DIR can be written to");
    fs::write(&script_file, script).expect("OUT_DIR can be written to");
    let mut linker = cc::Build::new().get_compiler().to_command();
    linker.args(["-shared", "-nostdlib", "-fno-builtin", "-w"]).arg(source_file);
    linker.arg(format!("-Wl,-soname,{soname}")).arg(format!("-Wl,--version-script={}", script_file.display()));
    let status = linker.arg("-o").arg(stem.with_extension("so")).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cannot build the stand-in for {soname}: is there a C compiler?"
    );
}
