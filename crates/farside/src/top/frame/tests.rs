//! Frames of fixed states, cell by cell.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::history::tests::report;
use super::super::plain;
use super::*;

fn shown(history: &History, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal is needed");
    terminal
        .draw(|canvas| draw(history, canvas.area(), canvas.buffer_mut()))
        .expect("no terminal is needed");
    plain::text(terminal.backend().buffer())
}

fn loaded() -> History {
    let mut history = History::new(([127, 0, 0, 1], 6380).into());
    (100..140).for_each(|second| history.take(Ok(report(second))));
    history
}

#[test]
fn frame_of_a_loaded_gateway() {
    assert_eq!(shown(&loaded(), 96, 26), include_str!("loaded.txt"));
}
