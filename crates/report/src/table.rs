//! The common format of all tables.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, presets};

/// The text width if the screen's width is unknown.
pub const WIDTH: u16 = 80;

/// An empty table, at most `width` wide if its words allow that.
pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>, width: u16) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING.header_separator(LineStyle::new('─', '─', '─', '─')))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(columns.into_iter().collect::<Vec<_>>());
    table
}

/// An empty table of any width: the first column for names, all others for numbers.
pub fn of_numbers<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = new(columns, u16::MAX);
    let count = table.column_count();
    numbers(&mut table, 1..count);
    table
}

/// The same as Markdown.
pub fn markdown_of_numbers<S: AsRef<str>>(columns: &[S], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).collect();
    let mut text = format!("| {} |\n|---|{}\n", columns.join(" | "), "--:|".repeat(columns.len() - 1));
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
}

/// Aligns these columns, which hold numbers, to the right.
pub fn numbers(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Never breaks the text in this column, such as names.
pub fn keep_whole(table: &mut Table, index: usize) {
    if let Some(column) = table.column_mut(index) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// The table's lines, without trailing blanks.
pub fn text(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `name  text`. The text is broken at blanks so that lines fit `width`, and further lines are indented to its start.
pub fn field(name: &str, text: &str, name_width: usize, width: u16) -> String {
    fill(format!("  {name:name_width$}  "), text.split(' '), 2 + name_width + 2, width)
}

/// A paragraph, broken at blanks so that lines fit `width`.
pub fn paragraph(text: &str, width: u16) -> String {
    fill(String::new(), text.split_whitespace(), 0, width)
}

/// Appends words to a line that already has `indent` columns. Where they would be too wide, it continues on the next
/// line with the same indentation.
fn fill<'a>(mut line: String, words: impl Iterator<Item = &'a str>, indent: usize, width: u16) -> String {
    let mut column = indent;
    for (index, word) in words.enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > usize::from(width) {
            line.push('\n');
            line.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if index > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_broken_at_blanks() {
        assert_eq!(field("a", "bb cc dd", 3, 12), "  a    bb cc\n       dd\n");
        assert_eq!(field("a", "longer-than-that", 1, 10), "  a  longer-than-that\n");
        assert_eq!(paragraph(" a bc\n  def ", 4), "a bc\ndef\n");
    }

    #[test]
    fn tables_stay_within_their_width() {
        let mut table = new(["name", "number", "text"], 40);
        table.add_row(["a", "1", "many words that do not fit into one line of this table"]);
        numbers(&mut table, [1]);
        let text = text(&table);
        assert!(text.lines().all(|line| line.chars().count() <= 40 && !line.ends_with(' ')), "{text}");
        assert!(text.lines().count() > 3, "{text}");
    }
}
