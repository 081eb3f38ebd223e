//! Paragraphs that fit a line.

use std::mem;

/// Lines of sources and documents have at most so many characters.
pub const WIDTH: usize = 120;

/// Code within a paragraph stays in one line up to this length.
const CODE: usize = 70;

/// A Markdown text whose paragraphs with a wider line are filled anew. Tables, headings and what is fenced or indented
/// stay as they are.
pub fn wrapped(text: &str) -> String {
    let (mut lines, mut paragraph) = (Vec::new(), Vec::new());
    let (mut fenced, mut in_list) = (false, false);
    for line in text.split('\n') {
        let content = line.trim_start();
        let (indent, is_fence) = (line.len() - content.len(), content.starts_with("```"));
        let begins = !fenced && item(line).is_some();
        let is_apart = fenced || is_fence || content.is_empty() || stands_alone(content);
        if begins || is_apart {
            lines.extend(filled(&mem::take(&mut paragraph)));
        }
        in_list = begins || in_list && (is_apart || indent > 0);
        let is_code = paragraph.is_empty() && indent >= 4 && !in_list;
        if is_apart || is_code {
            lines.push(line.to_owned());
        } else {
            paragraph.push(line);
        }
        fenced ^= is_fence;
    }
    lines.extend(filled(&paragraph));
    lines.join("\n")
}

/// How long the mark of a list's item is with which a line begins, with the blanks on both sides of it.
pub fn item(line: &str) -> Option<usize> {
    let content = line.trim_start();
    let behind = content.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let behind = if behind.len() < content.len() {
        behind.strip_prefix(['.', ')'])?
    } else {
        behind.strip_prefix(['-', '*', '+'])?
    };
    let text = behind.trim_start_matches(' ');
    (text.len() < behind.len()).then(|| line.len() - text.len())
}

/// Whether such a line belongs to no paragraph.
fn stands_alone(content: &str) -> bool {
    let definition = content.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    content.starts_with(['|', '#', '<', '>']) || definition.is_some_and(|(_, target)| !target.contains(' '))
}

/// The lines of a paragraph; others, if one is too wide.
fn filled(paragraph: &[&str]) -> Vec<String> {
    if paragraph.iter().all(|line| line.chars().count() <= WIDTH) {
        return paragraph.iter().map(|&line| line.to_owned()).collect();
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let start = item(paragraph[0]).unwrap_or_else(|| indent(paragraph[0]));
    let below = paragraph.get(1).map_or(0, |line| indent(line));
    let below = " ".repeat(if below > indent(paragraph[0]) { below } else { start });
    let mut lines = Vec::new();
    let (mut line, mut is_bare) = (paragraph[0][..start].to_owned(), true);
    for unit in units(&[&[&paragraph[0][start..]], &paragraph[1..]].concat().join(" ")) {
        if !is_bare && line.chars().count() + 1 + unit.chars().count() > WIDTH {
            lines.push(mem::replace(&mut line, below.clone()));
            is_bare = true;
        }
        if !mem::replace(&mut is_bare, false) {
            line.push(' ');
        }
        line += &unit;
    }
    lines.push(line);
    lines
}

/// The words of a text; code is one, if it is short. What would be a mark at the beginning of a line stays behind the
/// word before it.
fn units(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_mark = item(&format!("{word} ")).is_some() || stands_alone(word);
        let goes_on = |unit: &&mut String| {
            is_mark || unit.matches('`').count() % 2 == 1 && unit.chars().count() + word.chars().count() < CODE
        };
        match units.last_mut().filter(goes_on) {
            Some(unit) => *unit = format!("{unit} {word}"),
            None => units.push(word.to_owned()),
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many words of four letters.
    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn a_wide_line_is_broken_and_its_paragraph_filled() {
        assert_eq!(wrapped(&words(25)), format!("{}\nword", words(24)));
        assert_eq!(wrapped(&format!("a\n{}\nb", words(25))), format!("a {}\n{} b", words(23), words(2)));
        // What fits stays, even if it could be filled.
        let short = format!("a\nb\n{}", words(24));
        assert_eq!(wrapped(&short), short);
    }

    #[test]
    fn an_item_of_a_list_is_broken_below_its_text() {
        assert_eq!(wrapped(&format!("- {}\n- b", words(25))), format!("- {}\n  {}\n- b", words(23), words(2)));
        assert_eq!(wrapped(&format!("12. {}", words(25))), format!("12. {}\n    {}", words(23), words(2)));
        assert_eq!(wrapped(&format!("- a\n    {}", words(25))), format!("- a {}\n    {}", words(23), words(2)));
    }

    #[test]
    fn nothing_becomes_another_thing() {
        // No line begins with the mark of a list or of a table, and no code is torn.
        assert_eq!(wrapped(&format!("{} - b", words(24))), format!("{}\nword - b", words(23)));
        assert_eq!(wrapped(&format!("{} 2. b", words(24))), format!("{}\nword 2. b", words(23)));
        assert_eq!(wrapped(&format!("{} | b", words(24))), format!("{}\nword | b", words(23)));
        assert_eq!(wrapped(&format!("{} `a b`.", words(23))), format!("{}\n`a b`.", words(23)));
        for line in [
            format!("| {} |", words(25)),
            format!("# {}", words(25)),
            format!("```text\n{}\n```", words(25)),
            format!("a\n\n    {}\n", words(25)),
        ] {
            assert_eq!(wrapped(&line), line);
        }
        assert_eq!(wrapped(&format!("```\n- a\n```\n{}", words(25))), format!("```\n- a\n```\n{}\nword", words(24)));
    }

    #[test]
    fn it_changes_its_own_work_no_more() {
        let text = format!("{}\n- {} `c d` - e\n\n  {}\n", words(70), words(71), words(30));
        assert_eq!(wrapped(&wrapped(&text)), wrapped(&text));
        assert_eq!(wrapped(&text).split_whitespace().count(), text.split_whitespace().count());
        assert!(wrapped(&text).lines().all(|line| line.chars().count() <= WIDTH));
    }
}
