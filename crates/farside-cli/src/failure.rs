//! How a command fails: one line and an exit status.

use std::process::ExitCode;

/// Why a command ended early.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    line: String,
}

impl Failure {
    /// Wrong arguments, files or addresses: the user can put it right.
    #[must_use]
    pub fn usage(cause: impl ToString) -> Self {
        Self {
            status: 2,
            line: cause.to_string(),
        }
    }

    /// It failed under way.
    #[must_use]
    pub fn runtime(cause: impl ToString) -> Self {
        Self {
            status: 1,
            line: cause.to_string(),
        }
    }

    /// The same failure, with what was done before it.
    #[must_use]
    pub fn after(self, done: &str) -> Self {
        Self {
            line: format!("{done}{}", self.line),
            ..self
        }
    }

    /// Prints the line as `program` does.
    #[must_use]
    pub fn report(self, program: &str) -> ExitCode {
        eprintln!("{program}: {}", self.line.replace('\n', " "));
        ExitCode::from(self.status)
    }
}

/// An error with what caused it, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_line = cause.to_string();
        // Some errors repeat their cause, some leave it to the reader.
        if !line.contains(&cause_line) {
            line = format!("{line}: {cause_line}");
        }
        source = cause.source();
    }
    line
}
