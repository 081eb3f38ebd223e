//! Whether modules that stand beside each other import each other in a circle.
//!
//! Of two modules in one folder, each may use the other only if the other does not lead back to it: what both need
//! stands in a third. So each can be read, and changed, before those that use it. A module and those inside it are one
//! thing, and may use each other. What a folder's module takes from one inside it, and passes on (`pub use`), is that
//! one's. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::imports::{Sources, circle, code, imports, is_test, parts, passed_on, sources_below};

/// The crates that have no circles.
const CRATES: [&str; 3] = ["crates/cli/src", "crates/locks/src", "crates/report/src"];

/// The circles, one for each crate at most.
pub(super) fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for below in CRATES {
        faults.extend(fault_in(&sources_below(below)?).map(|fault| format!("{below}: {fault}")));
    }
    Ok(faults)
}

fn fault_in(sources: &Sources) -> Option<String> {
    let modules: BTreeSet<String> = sources.keys().map(|file| parts(file).join("/")).collect();
    let is_module = |path: &str| modules.iter().any(|module| module.strip_prefix(path).is_some_and(is_end));
    let passed_on: Vec<_> = sources.iter().flat_map(|(file, text)| passed_on(&parts(file), &code(text))).collect();
    let origin = |mut path: Vec<String>| {
        for _ in 0..3 {
            let Some((to, from)) = passed_on.iter().find(|(to, _)| path.starts_with(to)) else { break };
            if is_module(&to.join("/")) {
                break;
            }
            path.splice(..to.len(), from.iter().cloned());
        }
        path
    };
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in sources.iter().filter(|(file, _)| !is_test(file, sources)) {
        let here = parts(file);
        for path in imports(&here, &code(text)).into_iter().map(origin) {
            let shared = here.iter().zip(&path).take_while(|(mine, its)| mine == its).count();
            if shared == here.len() || shared == path.len() {
                continue;
            }
            let [from, to] = [&here, &path].map(|path| path[..=shared].join("/"));
            if is_module(&to) {
                used.entry(from).or_default().insert(to);
            }
        }
    }
    circle(&used).map(|circle| circle.join(" -> "))
}

/// Whether a path ends here, or goes on with a module inside.
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Option<String> {
        fault_in(&files.iter().map(|&(file, text)| (file.to_owned(), text.to_owned())).collect())
    }

    #[test]
    fn the_crates_have_none() {
        assert_eq!(faults().expect("readable"), [""; 0]);
    }

    #[test]
    fn a_circle_is_named() {
        let plain = [("a.rs", "use crate::b::x;"), ("b.rs", "use crate::c::{self, y};"), ("c.rs", "")];
        assert_eq!(found(&plain), None);
        let closed = [plain[0], plain[1], ("c.rs", "fn f() { crate::a::z() }")];
        assert_eq!(found(&closed).as_deref(), Some("a -> b -> c -> a"));
    }

    #[test]
    fn so_is_one_within_a_folder_or_through_a_module_inside() {
        let within = [("v/mod.rs", "use a::x;"), ("v/a.rs", "use super::b;"), ("v/b.rs", "use super::a::X;")];
        assert_eq!(found(&within).as_deref(), Some("v/a -> v/b -> v/a"));
        let through = [("a/x.rs", "use crate::b::y;"), ("b.rs", "use crate::a::x::Z;")];
        assert_eq!(found(&through).as_deref(), Some("a -> b -> a"));
    }

    #[test]
    fn so_is_one_through_what_a_folder_passes_on() {
        let files = [("v/mod.rs", "pub use a::X;\npub(super) use b::{Y, z::Z};"), ("v/a.rs", "use crate::v::{Y, w};")];
        assert_eq!(found(&[files[0], files[1], ("v/b.rs", "")]), None);
        let closed = [files[0], files[1], ("v/b.rs", "use super::X;")];
        assert_eq!(found(&closed).as_deref(), Some("v/a -> v/b -> v/a"));
    }

    #[test]
    fn a_module_and_what_is_inside_are_one_and_tests_may_use_anything() {
        assert_eq!(found(&[("v/mod.rs", "use a::x;"), ("v/a.rs", "use super::Args;\nuse crate::v::run;")]), None);
        let tested = [("a.rs", "use crate::b;"), ("b.rs", "#[cfg(test)]\nmod tests;"), ("b/tests.rs", "use crate::a;")];
        assert_eq!(found(&tested), None);
        let inline = [("a.rs", "use crate::b;"), ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}")];
        assert_eq!(found(&inline), None);
    }
}
