//! Logs: events of all layers, to standard error, for people or for collectors.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

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
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .parse(&text)
        .map_err(|error| {
            Failure::usage(format!(
                "{VARIABLE} is `{text}`: {error}; write a level such as info, or farside_pool=debug"
            ))
        })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_target(false).compact().init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
