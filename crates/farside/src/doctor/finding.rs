//! What was found: a line for each thing that was looked at, and what to type next.

use serde::Serialize;

/// How it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// It works, and somebody should look at it.
    Look,
    /// It does not work, or will not for long.
    Wrong,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Look => "look",
            Self::Wrong => "wrong",
        }
    }
}

/// One line; the names are those of the JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) state: State,
    /// What was looked at.
    pub(super) about: String,
    /// What was seen.
    pub(super) text: String,
    /// The command to type next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Finding {
    fn new(state: State, about: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            state,
            about: about.into(),
            // One line, whatever a system or another program says.
            text: text.into().replace(['\n', '\r'], " "),
            next: None,
        }
    }

    pub(super) fn ok(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(State::Ok, about, text)
    }

    pub(super) fn look(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(State::Look, about, text)
    }

    pub(super) fn wrong(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(State::Wrong, about, text)
    }

    /// With the command that helps, or shows more.
    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }
}

/// What is printed; the names are those of the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    kind: &'static str,
    version: &'static str,
    pub(super) is_well: bool,
    wrong: usize,
    look: usize,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let count = |state| findings.iter().filter(|finding| finding.state == state).count();
        let (wrong, look) = (count(State::Wrong), count(State::Look));
        Self {
            kind: "doctor",
            version: env!("CARGO_PKG_VERSION"),
            is_well: wrong == 0,
            wrong,
            look,
            findings,
        }
    }

    pub(super) fn text(&self) -> String {
        let width = self.findings.iter().map(|finding| finding.about.chars().count());
        let width = width.max().unwrap_or(0);
        let mut text = String::new();
        for finding in &self.findings {
            let (state, about) = (finding.state.name(), &finding.about);
            text += &format!("{state:<5}  {about:<width$}  {}\n", finding.text);
            if let Some(next) = &finding.next {
                text += &format!("{:<5}  {:<width$}  next: {next}\n", "", "");
            }
        }
        text + &match (self.wrong, self.look) {
            (0, 0) => "all is well\n".to_owned(),
            (0, look) => format!("nothing is wrong; {look} to look at\n"),
            (wrong, look) => format!("{wrong} wrong, {look} to look at\n"),
        }
    }
}
