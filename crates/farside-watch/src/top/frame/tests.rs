//! Frames of fixed states, cell by cell.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use farside_gateway::{MemberReport, MirrorReport, NodeReport};

use super::super::plain;
use super::*;
use crate::history::tests::report;

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

#[test]
fn gateway_that_goes_away_is_named_and_its_last_numbers_stay() {
    let mut history = loaded();
    history.take(Err("127.0.0.1:6380: it hung up".to_owned()));
    let frame = shown(&history, 96, 26);
    let last = frame.lines().last().expect("26 lines");
    assert_eq!(last, "no answer, trying again: 127.0.0.1:6380: it hung up");
    assert!(frame.contains("user:1"), "{frame}");
}

#[test]
fn before_the_first_answer_there_is_nothing_but_the_frame() {
    let frame = shown(&History::new(([127, 0, 0, 1], 6380).into()), 60, 16);
    assert_eq!(
        (frame.lines().next(), frame.lines().last()),
        (Some("farside top 127.0.0.1:6380"), Some("connecting ..."))
    );
}

#[test]
fn pool_that_is_down_and_keys_that_are_cold_are_said_to_be() {
    let mut history = loaded();
    history.take(Ok(Report {
        pool: None,
        hot_keys: Vec::new(),
        ..report(140)
    }));
    let frame = shown(&history, 80, 24);
    assert!(frame.contains("the pool cannot be reached"), "{frame}");
    assert!(frame.contains("no key stands out"), "{frame}");
}

#[test]
fn mirrored_nodes_have_a_line_each_the_worst_first() {
    let member = |role: &str, lag_entries, lag_bytes| MemberReport {
        role: role.to_owned(),
        lag_entries,
        lag_bytes,
        ..MemberReport::default()
    };
    let node = |has_primary, members: &[MemberReport]| NodeReport {
        mirror: Some(MirrorReport {
            epoch: 7,
            primary: "a:1".to_owned(),
            has_primary,
            committed: 9,
            members: members.to_vec(),
        }),
        ..NodeReport::default()
    };
    let mut history = loaded();
    history.take(Ok(Report {
        nodes: vec![
            NodeReport::default(),
            node(true, &[member("primary", 0, 0), member("backup", 0, 0)]),
            node(true, &[member("primary", 0, 0), member("joining", 12, 1 << 20)]),
            node(false, &[member("silent", 0, 0), member("backup", 0, 0)]),
        ],
        ..report(140)
    }));
    let frame = shown(&history, 100, 24);
    let lines: Vec<&str> = frame.lines().filter(|line| line.starts_with("mirrored")).collect();
    assert_eq!(
        lines,
        [
            "mirrored node 3  no primary answers  epoch 7  1 backup  1 silent",
            "mirrored node 2  primary a:1  epoch 7  0 backups  12 changes behind  1 MiB to copy",
            "mirrored node 1  primary a:1  epoch 7  1 backup",
        ]
    );
    assert!(
        frame.lines().last().is_some_and(|line| line.starts_with("connections")),
        "{frame}"
    );
}

#[test]
fn small_terminals_are_told_what_is_needed() {
    assert_eq!(
        shown(&loaded(), 30, 3),
        "farside top needs 60 x 16\ncharacters; this is 30 x 3\n\n"
    );
}

#[test]
fn no_size_is_too_odd() {
    let history = loaded();
    for (width, height) in [
        (0, 0),
        (1, 1),
        (60, 16),
        (61, 17),
        (500, 16),
        (60, 300),
        (255, 255),
        (3, 100),
    ] {
        let area = Rect::new(0, 0, width, height);
        draw(&history, area, &mut Buffer::empty(area));
    }
}

#[test]
fn numbers_are_short() {
    let shown = [0.0, 999.4, 1234.0, 56_700.0, 1_234_567.0, 2.5e9].map(number);
    assert_eq!(shown, ["0", "999", "1.2 k", "56.7 k", "1.23 M", "2.50 G"]);
    let shown = [900, 12_300, 456_000, 7_890_000, 3_000_000_000, u64::MAX].map(duration);
    assert_eq!(shown, ["0.9 us", "12.3 us", "456 us", "7.89 ms", "3.00 s", "> 17 s"]);
    let shown = [5, 65, 3 * 3600 + 120, 2 * 86_400 + 3600].map(|seconds| uptime(Duration::from_secs(seconds)));
    assert_eq!(shown, ["5 s", "1 min 5 s", "3 h 2 min", "2 d 1 h"]);
}
