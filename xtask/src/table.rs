//! The one look that all tables have.

use comfy_table::{CellAlignment, LineStyle, Table, presets};

/// An empty table: the first column for names, all others for numbers.
pub(crate) fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING.header_separator(LineStyle::new('─', '─', '─', '─')));
    table.set_header(columns.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
