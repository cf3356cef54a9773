//! A frame as text without colours.

use ratatui::buffer::Buffer;

/// The lines, without the blanks at their ends.
pub(super) fn text(cells: &Buffer) -> String {
    let width = usize::from(cells.area.width.max(1));
    let lines = cells.content.chunks(width).map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}
