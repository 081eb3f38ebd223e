//! Whether the lines of sources and documents fit: they have at most [`WIDTH`] characters, except rows of tables, lines
//! that are one word (such as a link), and what a document shows of a program's output.

use std::fs;

use anyhow::Result;
use flashlock_report::wrap::{WIDTH, item};

use crate::workspace;

/// How the names of the files end that are looked at; scripts are, too.
const ENDINGS: [&str; 15] =
    [".rs", ".md", ".c", ".h", ".cc", ".cpp", ".hpp", ".java", ".js", ".html", ".lua", ".pl", ".py", ".sh", ".toml"];
/// In what a document shows a program's output. Anything else is written by people.
const OUTPUT: [&str; 4] = ["```", "```text", "```json", "```toml"];

/// The lines of the project's files that are too wide.
pub(super) fn wide() -> Result<Vec<String>> {
    let mut wide = Vec::new();
    for name in &workspace::files()? {
        // What was deleted, and is not committed, is listed as well; some files are not text.
        let Ok(text) = fs::read_to_string(workspace::path(name)) else { continue };
        if !ENDINGS.iter().any(|ending| name.ends_with(ending)) && !text.starts_with("#!") {
            continue;
        }
        let lines = wide_in(&text, name.ends_with(".md"));
        wide.extend(lines.into_iter().map(|line| format!("{name}:{line}: wider than {WIDTH} characters")));
    }
    Ok(wide)
}

/// The numbers of the lines of a file that are too wide.
fn wide_in(text: &str, is_document: bool) -> Vec<usize> {
    let (mut wide, mut fence) = (Vec::new(), None);
    for (line, number) in text.lines().zip(1..) {
        if is_document && line.trim_start().starts_with("```") {
            fence = if fence.is_none() { Some(line.trim()) } else { None };
        }
        let is_output = fence.is_some_and(|fence| OUTPUT.contains(&fence));
        if line.chars().count() > WIDTH && !is_output && !may_be_wide(content(line, is_document)) {
            wide.push(number);
        }
    }
    wide
}

/// A line without the mark of a comment, and that of a list's item.
fn content(line: &str, is_document: bool) -> &str {
    let line = line.trim();
    let marks = ["//!", "///", "//", "/*", "*", "#"];
    let line = marks.iter().find_map(|mark| line.strip_prefix(mark).filter(|_| !is_document)).unwrap_or(line);
    line[item(line).unwrap_or(0)..].trim()
}

fn may_be_wide(content: &str) -> bool {
    content.starts_with('|') && content.ends_with('|') || !content.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_are_found() {
        let wide = "a word ".repeat(17) + "ab";
        assert_eq!(wide.len(), WIDTH + 1);
        for (line, is_document) in [
            (wide.clone(), true),
            (format!("    {wide}"), true),
            (format!("# {wide}"), true),
            (format!("```sh\n{wide}\n```\n"), true),
            (format!("| {wide}"), false),
            (format!("    //! {wide}"), false),
            (format!("let x = \"{}\"; // {wide}", "x".repeat(WIDTH)), false),
            (format!("```text\n{wide}\n```"), false),
        ] {
            assert_eq!(wide_in(&format!("{line}\n"), is_document).len(), 1, "{line}");
        }
        assert_eq!(wide_in(&format!("a\n```\nb\n```\n\n{wide}\n"), true), [6]);
    }

    #[test]
    fn lines_that_fit_or_cannot_be_broken_are_not() {
        let (fits, wide) = ("µ ".repeat(WIDTH / 2), "words ".repeat(30));
        let word = format!("[x](https://example.org/{})", "x".repeat(WIDTH));
        for (line, is_document) in [
            (fits.clone(), true),
            (fits, false),
            (format!("| {wide} |"), true),
            (format!("//! | {wide} |"), false),
            (format!("```text\n{wide}\n```\n"), true),
            (format!("- {word}"), true),
            (format!("    /// {word}"), false),
            (format!("    \"{word}\","), false),
        ] {
            assert_eq!(wide_in(&line, is_document), [0; 0], "{line}");
        }
    }
}
