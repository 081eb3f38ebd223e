//! Which release this is. `CHANGELOG.md` says so, in its first heading `## VERSION - YYYY-MM-DD`, or, before the
//! release, `## VERSION, not released yet`. The notes in `docs/releases` begin with the same words.
//!
//! Its date is that of all files in the archives, so that one tree makes the same bytes at any time.

use std::env::{self, VarError};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::child::output;
use crate::files;
use crate::workspace;

const CHANGELOG: &str = "CHANGELOG.md";
/// What packagers set to choose the date: seconds after 1970 began.
pub(super) const ENV_EPOCH: &str = "SOURCE_DATE_EPOCH";
const NOT_RELEASED: &str = ", not released yet";

/// A release.
pub(super) struct Release {
    pub(super) version: String,
    /// Whether it has a date.
    pub(super) is_released: bool,
    /// Seconds after 1970 began: what `SOURCE_DATE_EPOCH` says. Without it midnight (UTC) of the release's day or, if
    /// it has none yet, the time of the last commit.
    pub(super) epoch: u64,
}

impl Release {
    pub(super) fn current() -> Result<Self> {
        let heading = described()?;
        let epoch = match env::var(ENV_EPOCH) {
            Ok(text) => text,
            Err(VarError::NotPresent) => match &heading.day {
                Some(day) => output("date", &["--utc", "--date", day, "+%s"])?,
                None => last_commit(&workspace::root()).with_context(|| {
                    format!("{} has no date yet, and so its files get that of the last commit", heading.version)
                })?,
            },
            Err(error) => return Err(error).context(ENV_EPOCH),
        };
        let epoch = epoch.trim();
        let epoch = epoch.parse().with_context(|| format!("the date '{epoch}' must be a number of seconds"))?;
        Ok(Self { is_released: heading.day.is_some(), version: heading.version, epoch })
    }

    /// The date as in a mail.
    pub(super) fn rfc_2822(&self) -> Result<String> {
        Ok(output("date", &["--utc", "--rfc-email", "--date", &format!("@{}", self.epoch)])?.trim().to_owned())
    }
}

/// What the changelog says of this version, if the notes agree.
fn described() -> Result<Heading> {
    let heading = Heading::newest(&files::read(&workspace::path(CHANGELOG))?).with_context(|| {
        format!("{CHANGELOG} needs a heading `## VERSION - YYYY-MM-DD` or `## VERSION{NOT_RELEASED}`")
    })?;
    let ours = env!("CARGO_PKG_VERSION");
    if heading.version != ours {
        bail!("{CHANGELOG} begins with version {}, and Cargo.toml says {ours}: describe {ours} there", heading.version);
    }
    let notes = workspace::path("docs/releases").join(format!("{ours}.md"));
    let notes = workspace::require(notes, "each release has its notes: write them")?;
    heading.agrees_with(&files::read(&notes)?).with_context(|| workspace::shown(&notes))?;
    Ok(heading)
}

/// A heading of the changelog.
#[derive(Debug, PartialEq, Eq)]
struct Heading {
    version: String,
    /// None before the release.
    day: Option<String>,
}

impl Heading {
    /// The first one with a version.
    fn newest(changelog: &str) -> Option<Self> {
        changelog.lines().filter_map(|line| line.strip_prefix("## ")).find_map(Self::parse)
    }

    fn parse(text: &str) -> Option<Self> {
        let (version, day) = match text.strip_suffix(NOT_RELEASED) {
            Some(version) => (version, None),
            None => text.split_once(" - ").map(|(version, day)| (version, Some(day.to_owned())))?,
        };
        Some(Self { version: version.to_owned(), day })
    }

    /// The first line of the notes says the same.
    fn agrees_with(&self, notes: &str) -> Result<()> {
        let when = self.day.as_ref().map_or_else(|| NOT_RELEASED.to_owned(), |day| format!(" - {day}"));
        let (wanted, title) = (format!("# flashlock {}{when}", self.version), notes.lines().next().unwrap_or_default());
        if title != wanted {
            bail!("its first line must be `{wanted}`, as {CHANGELOG} says, not `{title}`");
        }
        Ok(())
    }
}

/// When the last commit of this tree was made. A repository around it does not count.
fn last_commit(root: &Path) -> Result<String> {
    let repository = format!("--git-dir={}", root.join(".git").display());
    output("git", &[&repository, "log", "-1", "--format=%ct"])
        .with_context(|| format!("cannot tell when that was: set {ENV_EPOCH} (seconds since 1970)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading(version: &str, day: Option<&str>) -> Heading {
        Heading { version: version.to_owned(), day: day.map(str::to_owned) }
    }

    #[test]
    fn the_first_heading_with_a_version_counts() {
        let released = "## 0.2.0 - 2027-01-02\n\n- x\n\n## 0.1.0 - 2026-11-25\n";
        let newest = |before: &str| Heading::newest(&format!("# Changelog\n\n## Unreleased\n\n{before}{released}"));
        assert_eq!(newest(""), Some(heading("0.2.0", Some("2027-01-02"))));
        assert_eq!(newest("## 0.3.0, not released yet\n\n"), Some(heading("0.3.0", None)));
        assert_eq!(Heading::newest("# Changelog\n"), None);
    }

    #[test]
    fn notes_say_whether_it_is_released() {
        let (before, after) = (heading("0.1.0", None), heading("0.1.0", Some("2026-11-25")));
        let notes = ["# flashlock 0.1.0, not released yet\n\nx\n", "# flashlock 0.1.0 - 2026-11-25\n\nx\n"];
        assert!(before.agrees_with(notes[0]).is_ok() && after.agrees_with(notes[1]).is_ok());
        assert!(before.agrees_with(notes[1]).is_err() && after.agrees_with(notes[0]).is_err());
    }

    #[test]
    fn the_changelog_and_the_notes_are_of_this_version() {
        described().expect("they agree");
    }

    #[test]
    fn without_a_commit_the_error_says_what_to_set() {
        // It lies inside a repository, if this tree does.
        let tree = super::super::scratch("test-no-repository").expect("a directory");
        let error = format!("{:#}", last_commit(&tree).unwrap_err());
        assert!(error.contains("set SOURCE_DATE_EPOCH"), "{error}");
    }
}
