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

/// A row of [`folded`]: its name, and its cells.
pub type Row = (String, Vec<String>);

/// A table of numbers with a heading for the names of its rows and one for each column. Columns that do not fit `width`
/// come below the others, so that no number and no name is broken if it fits a line.
pub fn folded(corner: &str, columns: &[String], rows: &[Row], width: u16) -> String {
    /// The space between two columns.
    const GAP: usize = 3;
    let longest =
        |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| text.chars().count()).max().unwrap_or(0) + GAP;
    let names = longest(&mut rows.iter().map(|(name, _)| name.as_str()).chain([corner]));
    let mut out = String::new();
    let mut first = 0;
    while first < columns.len() {
        let mut room = usize::from(width).saturating_sub(names + 1);
        let fits = |&column: &usize| {
            let cells = rows.iter().map(|(_, cells)| cells[column].as_str());
            let left = room.checked_sub(longest(&mut cells.chain([columns[column].as_str()])));
            room = left.unwrap_or(room);
            left.is_some()
        };
        let count = (first..columns.len()).take_while(fits).count().max(1);
        let here = first..first + count;
        let mut table = new(std::iter::once(corner).chain(columns[here.clone()].iter().map(String::as_str)), width);
        numbers(&mut table, 1..=count);
        for (name, cells) in rows {
            table.add_row(std::iter::once(name).chain(&cells[here.clone()]));
        }
        out += &(text(&table) + "\n");
        first += count;
    }
    out
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

    #[test]
    fn columns_without_room_come_below() {
        let columns: Vec<String> = (1..=9).map(|number| format!("{}", 1 << number)).collect();
        let rows: Vec<Row> = ["mcs", "ticket"].map(|name| (name.to_owned(), vec!["<0.001".to_owned(); 9])).to_vec();
        for width in [40, 60, 80, 140] {
            let text = folded("threads", &columns, &rows, width);
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
            assert_eq!(text.matches("<0.001").count(), 18, "no cell is broken: {text}");
            assert_eq!(text.matches("ticket").count() > 1, width < 100, "{text}");
        }
        // Text that does not fit at all is broken instead of left out.
        let rows = [("a".to_owned(), vec!["x".repeat(50)])];
        assert!(folded("", &columns[..1], &rows, 40).matches('x').count() == 50);
    }
}
