//! Which release this is. `CHANGELOG.md` says so, in a heading `## VERSION - YYYY-MM-DD`; the first one counts.
//!
//! Its date is that of all files in the archives, so that one tree makes the same bytes at any time.

use anyhow::{Context, Result, bail};

use super::{output, read};
use crate::workspace;

const CHANGELOG: &str = "CHANGELOG.md";

/// A release.
pub(super) struct Release {
    pub(super) version: String,
    /// Seconds after 1970 began: midnight (UTC) of its day, or what `SOURCE_DATE_EPOCH` says.
    pub(super) epoch: u64,
}

impl Release {
    pub(super) fn current() -> Result<Self> {
        let (version, day) = newest(&read(&workspace::path(CHANGELOG))?)
            .with_context(|| format!("{CHANGELOG} has no heading `## VERSION - YYYY-MM-DD`"))?;
        let ours = env!("CARGO_PKG_VERSION");
        if version != ours {
            bail!("{CHANGELOG} begins with version {version}, and Cargo.toml says {ours}: describe {ours} there");
        }
        let notes = workspace::path("docs/releases").join(format!("{version}.md"));
        workspace::require(notes, "each release has its notes: write them")?;
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => output("date", &["--utc", "--date", &day, "+%s"])?,
        };
        let epoch = epoch.trim().parse().with_context(|| format!("{epoch} is not a number of seconds"))?;
        Ok(Self { version, epoch })
    }

    /// The date as in a mail.
    pub(super) fn rfc_2822(&self) -> Result<String> {
        Ok(output("date", &["--utc", "--rfc-email", "--date", &format!("@{}", self.epoch)])?.trim().to_owned())
    }
}

/// Version and day of the first release that is dated.
fn newest(changelog: &str) -> Option<(String, String)> {
    let heading = |line: &str| line.strip_prefix("## ")?.split_once(" - ").map(|(v, d)| (v.to_owned(), d.to_owned()));
    changelog.lines().find_map(heading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dated_release_counts() {
        let changelog = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2027-01-02\n\n- x\n\n## 0.1.0 - 2026-11-25\n";
        assert_eq!(newest(changelog), Some(("0.2.0".to_owned(), "2027-01-02".to_owned())));
        assert_eq!(newest("# Changelog\n"), None);
    }

    #[test]
    fn the_changelog_is_of_this_version() {
        assert!(Release::current().is_ok());
    }
}
