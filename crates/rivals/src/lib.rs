//! # Locks that programs embed instead of a pthread mutex
//!
//! Unmodified programs cannot use these locks: a program must be written for one. `flashlock compare` and `cargo xtask
//! regret` measure them beside flashlock's locks, because a comparison with glibc alone would flatter flashlock.
//! [`RIVALS`] is the only list.
//!
//! | module, file | holds |
//! |---|---|
//! | [`functions`] | the rivals in Rust, as three functions each |
//! | [`mutex`] | a mutex of any rival |
//! | `headers/rival-NAME.h` | each rival for C++: type and three functions, and its condition variables |
//! | `shim.cc` | the same three functions of a C++ rival, for a library that is loaded at run time |
//!
//! To add a rival, add its header and a row here.

pub mod functions;
pub mod mutex;

pub use functions::Functions;
pub use mutex::Mutex;

/// A lock of another project.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its name in tables, and of its header `headers/rival-NAME.h`.
    pub name: &'static str,
    /// Its name in its own documentation.
    pub title: &'static str,
    /// Where its code comes from.
    pub code: Code,
}

/// Where a rival's code comes from.
#[derive(Clone, Copy, Debug)]
pub enum Code {
    /// From crates: it is linked into every user of this crate.
    Rust(Functions),
    /// From a C++ library, which need not be installed.
    Cpp(Cpp),
}

/// A rival in C++.
#[derive(Clone, Copy, Debug)]
pub struct Cpp {
    /// The text of its `headers/rival-NAME.h`.
    pub header: &'static str,
    /// The header of the library that `header` includes.
    pub include: &'static str,
    /// The linker's option for the library.
    pub library: &'static str,
    /// The Debian package with header and library.
    pub package: &'static str,
}

impl Rival {
    /// The C++ library that it needs, if any.
    pub fn cpp(&self) -> Option<&Cpp> {
        match &self.code {
            Code::Rust(_) => None,
            Code::Cpp(cpp) => Some(cpp),
        }
    }

    /// Whether it has condition variables of its own. A header says if it has none.
    pub fn has_condition_variables(&self) -> bool {
        self.cpp().is_none_or(|cpp| !cpp.header.contains("RIVAL_NO_COND"))
    }

    /// The rival with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        RIVALS.iter().find(|rival| rival.name == name)
    }
}

/// The source of a library with the functions [`SHIM_INIT`], [`SHIM_LOCK`] and [`SHIM_UNLOCK`] of the
/// `headers/rival-NAME.h` that is included before it.
pub const SHIM: &str = include_str!("shim.cc");
/// The shim's [`functions::Init`].
pub const SHIM_INIT: &str = "flashlock_rival_init";
/// The shim's [`functions::Call`] that acquires.
pub const SHIM_LOCK: &str = "flashlock_rival_lock";
/// The shim's [`functions::Call`] that releases.
pub const SHIM_UNLOCK: &str = "flashlock_rival_unlock";

/// All rivals, in the order in which they are shown.
pub const RIVALS: [Rival; 6] = [
    Rival { name: "std", title: "std::sync::Mutex of Rust", code: Code::Rust(functions::STD) },
    Rival { name: "parking_lot-0.12", title: "parking_lot 0.12", code: Code::Rust(functions::PARKING_LOT_12) },
    Rival { name: "parking_lot-0.13", title: "parking_lot 0.13", code: Code::Rust(functions::PARKING_LOT_13) },
    Rival {
        name: "tbb",
        title: "tbb::mutex",
        code: Code::Cpp(Cpp {
            header: include_str!("../headers/rival-tbb.h"),
            include: "oneapi/tbb/mutex.h",
            library: "-ltbb",
            package: "libtbb-dev",
        }),
    },
    Rival {
        name: "absl",
        title: "absl::Mutex",
        code: Code::Cpp(Cpp {
            header: include_str!("../headers/rival-absl.h"),
            include: "absl/synchronization/mutex.h",
            library: "-labsl_synchronization",
            package: "libabsl-dev",
        }),
    },
    Rival {
        name: "nsync",
        title: "nsync",
        code: Code::Cpp(Cpp {
            header: include_str!("../headers/rival-nsync.h"),
            include: "nsync.h",
            library: "-lnsync_cpp",
            package: "libnsync-dev",
        }),
    },
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_rival_has_a_header_of_its_name() {
        for rival in RIVALS {
            let file = format!("headers/rival-{}.h", rival.name);
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap_or_default();
            for needed in ["rival_mutex", "rival_guard", "rival_init", "rival_lock", "rival_unlock"] {
                assert!(text.contains(needed), "{file} has no {needed}");
            }
            assert!(rival.cpp().is_none_or(|cpp| cpp.header == text && text.contains(cpp.include)), "{file}");
            assert_eq!(Rival::named(rival.name).map(|found| found.title), Some(rival.title));
            let of_cond =
                ["rival_cond", "rival_cond_init", "rival_cond_wait", "rival_cond_signal", "rival_cond_broadcast"];
            let has = of_cond.map(|name| text.contains(name));
            assert_eq!(has, [rival.has_condition_variables(); 5], "{file}");
        }
    }

    #[test]
    fn the_shim_exports_what_is_looked_for() {
        for name in [SHIM_INIT, SHIM_LOCK, SHIM_UNLOCK] {
            assert!(SHIM.contains(&format!("void {name}(")), "{name}");
        }
        let bounds = format!("MUTEX_BYTES = {}, GUARD_BYTES = {}", functions::MUTEX_BYTES, functions::GUARD_BYTES);
        assert!(SHIM.contains(&bounds), "{bounds}");
    }
}
