//! A frame as an image, for documents: each run of cells of one style is a piece of text.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// A cell in pixels.
const CELL_WIDTH: f32 = 8.4;
const CELL_HEIGHT: f32 = 17.0;
const FONT_SIZE: f32 = 14.0;
const MARGIN: f32 = 12.0;

const BACKGROUND: &str = "#14161b";
const FOREGROUND: &str = "#d6d8dd";

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::DarkGray => "#6b7280",
        Color::Gray => "#9ca3af",
        Color::Cyan => "#5cc8d7",
        Color::Green => "#7fca7a",
        Color::Yellow => "#e5c061",
        Color::Red => "#ef6b73",
        Color::Blue => "#6fa8f5",
        Color::Magenta => "#c792ea",
        _ => FOREGROUND,
    }
}

/// The image.
pub(super) fn draw(cells: &Buffer) -> String {
    let (columns, rows) = (usize::from(cells.area.width), f32::from(cells.area.height));
    let width = columns as f32 * CELL_WIDTH + 2.0 * MARGIN;
    let height = rows * CELL_HEIGHT + 2.0 * MARGIN;
    let mut image = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', \
         monospace\" font-size=\"{FONT_SIZE}\" fill=\"{FOREGROUND}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for (row, line) in (0_u16..).zip(cells.content.chunks(columns.max(1))) {
        let y = MARGIN + (f32::from(row) + 0.78) * CELL_HEIGHT;
        let mut column = 0;
        for run in line.chunk_by(has_same_style) {
            let text: String = run.iter().map(Cell::symbol).collect();
            if !text.trim().is_empty() {
                let x = MARGIN + column as f32 * CELL_WIDTH;
                let length = run.len() as f32 * CELL_WIDTH;
                let weight = if run[0].modifier.contains(Modifier::BOLD) {
                    " font-weight=\"bold\""
                } else {
                    ""
                };
                // Writing to a string cannot fail. The length keeps columns in line whatever the font.
                let _ = writeln!(
                    image,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                     xml:space=\"preserve\" fill=\"{}\"{weight}>{}</text>",
                    colour(run[0].fg),
                    escape(&text)
                );
            }
            column += run.len();
        }
    }
    image + "</svg>\n"
}

fn has_same_style(one: &Cell, next: &Cell) -> bool {
    (one.fg, one.modifier) == (next.fg, next.modifier)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn runs_of_one_style_are_one_text() {
        let mut cells = Buffer::empty(Rect::new(0, 0, 10, 2));
        cells.set_string(0, 0, "a<b", Style::new().fg(Color::Green));
        cells.set_string(3, 0, "cd", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        let image = draw(&cells);
        assert_eq!(image.matches("<text").count(), 2, "{image}");
        assert!(image.contains("fill=\"#7fca7a\">a&lt;b</text>"), "{image}");
        assert!(
            image.contains("fill=\"#ef6b73\" font-weight=\"bold\">cd</text>"),
            "{image}"
        );
        assert!(image.ends_with("</svg>\n"));
    }
}
