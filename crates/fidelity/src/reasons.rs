//! `reasons.md`, in which people say why rows miss.
//!
//! Under each table's title stand explanations, as a list. What is bold at the beginning of one is which rows it is of:
//! their names, with `; ` between them and `…` for anything. What else stands there belongs to the table as a whole.

use flashlock_report::words;

use crate::report::{Report, Shown};
use crate::row::Verdict;

/// Written by hand.
pub(crate) const WRITTEN: &str = include_str!("reasons.md");

/// What stands under this title.
pub(crate) fn of<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    parts(text).find(|(other, _)| *other == title).map(|(_, part)| part)
}

/// Titles and what stands under them.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = text.split("\n## ").skip(1);
    parts.filter_map(|part| part.split_once('\n')).map(|(title, text)| (title.trim(), text.trim()))
}

/// Tables and rows of them that miss, what was put in included, and of which nothing is said.
pub(crate) fn missing<'a>(report: &'a Report, text: &str) -> Vec<(&'a str, &'a str)> {
    let of_group = |group: &'a Shown| {
        let names = names(of(text, &group.title).unwrap_or_default());
        let misses =
            group.rows.iter().filter(|row| matches!(row.verdict, Verdict::Missed { .. } | Verdict::Failed { .. }));
        let unnamed = misses.filter(move |row| !names.iter().any(|name| fits(name, &row.what)));
        unnamed.map(|row| (group.title.as_str(), row.what.as_str()))
    };
    report.groups.iter().flat_map(of_group).collect()
}

/// Of which rows the explanations of a table are.
pub(crate) fn names(part: &str) -> Vec<String> {
    let items = part.split("\n- ").map(|item| item.trim_start_matches("- "));
    let bold = items.filter_map(|item| item.strip_prefix("**")?.split_once("**"));
    // Lines may end within a name.
    let words = |name: &str| name.split_whitespace().collect::<Vec<_>>().join(" ");
    bold.flat_map(|(names, _)| names.split(';').map(words).collect::<Vec<_>>()).collect()
}

/// Whether this is a row's name.
pub(crate) fn fits(name: &str, what: &str) -> bool {
    words::fits(name, '…', what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::outline;
    use crate::table;

    #[test]
    fn explanations_are_of_rows_that_exist() {
        let rows = outline(&table::groups());
        for (title, part) in parts(WRITTEN) {
            let of_table: Vec<&str> = rows.iter().filter(|row| row.title == title).map(|row| &*row.what).collect();
            assert!(!of_table.is_empty(), "reasons.md speaks of {title}, which is no table");
            assert!(!part.is_empty(), "{title}");
            for name in names(part) {
                assert!(of_table.iter().any(|what| fits(&name, what)), "{title} has no row '{name}'");
            }
        }
        assert!(parts(WRITTEN).count() > 0);
    }

    #[test]
    fn names_of_rows() {
        assert_eq!(
            names("Text **bold**.\n- **A / B; C, …\n  threads;\n  D**: because **x**.\n  more\n- text **y**"),
            ["A / B", "C, … threads", "D"]
        );
        assert!(fits("A / B", "A / B") && !fits("A / B", "A / B, 2 threads") && !fits("A / B", "A"));
        assert!(fits("C, … threads", "C, 8 threads") && !fits("C, … threads", "C, 8 threads, one node"));
    }
}
