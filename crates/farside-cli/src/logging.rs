//! Logs: events of all layers, to standard error, for people or for collectors.

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::failure::Failure;

/// How events are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object per line
    Json,
}

/// The variable that chooses events.
const VARIABLE: &str = "RUST_LOG";

/// Prints events from now on. RUST_LOG chooses them; without it, whoever reads JSON also gets to
/// know what is opened and closed, which people are told on standard output.
///
/// # Errors
/// If RUST_LOG is no filter.
pub fn start_logging(format: LogFormat) -> Result<(), Failure> {
    let level = match format {
        LogFormat::Text => LevelFilter::WARN,
        LogFormat::Json => LevelFilter::INFO,
    };
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let filter = match text.trim() {
        "" => Targets::new().with_default(level),
        chosen => chosen.parse().map_err(|error| {
            Failure::usage(format!(
                "{VARIABLE} is `{text}`: {error}; write a level such as info, or farside_pool=debug"
            ))
        })?,
    };
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_target(false).compact().with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}
