//! What the command lines of several verbs share.

use std::path::Path;

/// The width of help texts, in columns.
pub(crate) const WIDTH: usize = 80;

/// Where an option of all verbs stands in help: after those of the verb, before `--help`.
pub(crate) const LAST: usize = 900;

/// The environment variables for the help of several verbs.
pub(crate) const ENVIRONMENT: &str = "\
Environment:
  FLASHLOCK               the lock, unless --lock is given
  FLASHLOCK_RW            the readers-writer lock, unless --rw is given
  FLASHLOCK_PRELOAD_PATH  the path of libflashlock_preload.so, or its directory
  FLASHLOCK_TOPOLOGY      for tests: an imagined machine, NODESxCORESxSMT
  FLASHLOCK_STATS_FD      set by run --stats for the program; do not set it
  FLASHLOCK_RCL, FLASHLOCK_RCL_CONFIG, FLASHLOCK_RCL_TRACE
                          libflashlock_rcl: its locks; a file of them; a log
  LD_PRELOAD              other libraries in it are kept, after flashlock's
  ASAN_OPTIONS            run, compare: verify_asan_link_order=0 goes before it
  NO_COLOR                no colours, unless --color=always is given
  CLICOLOR_FORCE          colours in files and pipes, too, unless NO_COLOR
  CLICOLOR, TERM          0 or dumb, or no TERM: no colours on a terminal
  COLUMNS                 the width of output that does not go to a terminal
  CXX, TMPDIR             compare: compiler for tbb, absl, nsync, and its place
  LD_LIBRARY_PATH         doctor looks for libraries there, as the loader does
";

/// Where an installation has the documents, below its prefix.
const DOCUMENTS: &str = "share/doc/flashlock";

/// The path of a page of the documentation, in this installation; else in the source tree.
pub(crate) fn page(name: &str) -> String {
    let command = std::env::current_exe().ok();
    let prefix = command.as_deref().and_then(Path::parent).and_then(Path::parent);
    let installed = prefix.map(|prefix| prefix.join(DOCUMENTS).join("docs").join(name)).filter(|page| page.is_file());
    installed.map_or_else(|| format!("docs/{name}"), |page| page.display().to_string())
}

/// The parser of a whole number within these limits.
pub(crate) fn number(least: u32, most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("must be {least} to {most}, not {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preload;
    use flashlock_delegation::{adapt::governor, config};
    use flashlock_native::{settings, stats};

    #[test]
    fn every_variable_is_listed() {
        for name in [
            settings::ENV,
            settings::ENV_RW,
            settings::ENV_TOPOLOGY,
            stats::ENV,
            preload::ENV_PATH,
            preload::LD_PRELOAD,
            preload::ASAN_OPTIONS,
            config::ENV_LOCKS,
            config::ENV_FILE,
            governor::ENV_TRACE,
            // These are anstream's.
            "NO_COLOR",
            "CLICOLOR_FORCE",
            "CLICOLOR",
            "TERM",
        ] {
            assert!(ENVIRONMENT.split([' ', ',', '\n']).any(|word| word == name), "{name}");
        }
    }

    #[test]
    fn pages_that_are_named_exist() {
        for name in ["fidelity.md", "limits.md"] {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page(name));
            assert!(page.is_file(), "{}", page.display());
        }
    }

    #[test]
    fn numbers_have_limits() {
        let parse = number(1, 4096);
        assert_eq!((parse("1"), parse("4096")), (Ok(1), Ok(4096)));
        for wrong in ["0", "4097", "-1", "many", ""] {
            assert_eq!(parse(wrong), Err(format!("must be 1 to 4096, not {wrong}")));
        }
    }
}
