//! The terminal: a thread asks the gateway, this one draws and listens to keys.

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use farside_gateway::Report;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use super::frame;
use super::link::{Link, Target};
use crate::history::History;
use farside_cli::Failure;

/// How long a key or a new report may wait.
const LOOK: Duration = Duration::from_millis(100);

type Update = Result<Report, String>;

/// Shows the gateway until the user has seen enough.
pub(super) fn run(target: Target) -> Result<(), Failure> {
    if !stdout().is_terminal() {
        return Err(Failure::usage(
            "there is no terminal: `farside top --once` prints one frame, `--once --json` an object",
        ));
    }
    let history = History::new(target.address);
    let (sender, updates) = channel();
    std::thread::Builder::new()
        .name("link".to_owned())
        .spawn(move || ask(&target, &sender))
        .map_err(Failure::runtime)?;
    // The terminal is put back also when this thread panics.
    let terminal = ratatui::try_init().map_err(Failure::runtime)?;
    let shown = show(terminal, history, &updates);
    ratatui::restore();
    shown.map_err(Failure::runtime)
}

fn show(mut terminal: DefaultTerminal, mut history: History, updates: &Receiver<Update>) -> std::io::Result<()> {
    loop {
        terminal.draw(|canvas| frame::draw(&history, canvas.area(), canvas.buffer_mut()))?;
        if event::poll(LOOK)?
            && let Event::Key(key) = event::read()?
        {
            let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(());
            }
        }
        updates.try_iter().for_each(|update| history.take(update));
    }
}

/// Asks again and again, over a new connection whenever the last one broke.
fn ask(target: &Target, updates: &Sender<Update>) {
    let mut link = None;
    loop {
        let mut open = || {
            let mut opened = match link.take() {
                Some(opened) => opened,
                None => Link::open(target)?,
            };
            let report = opened.report()?;
            link = Some(opened);
            Ok(report)
        };
        let update = open().map_err(|error: super::link::LinkError| error.to_string());
        if updates.send(update).is_err() {
            // Nobody looks any more.
            return;
        }
        super::pause();
    }
}
