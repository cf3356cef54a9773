//! Watching a store: the console in a browser, what Prometheus scrapes, whether clients are served, and `farside top`.
//!
//! On the path: nowhere. Whoever watches asks for a report, or gives commands as any client does; so this crate is compiled for size.

#![forbid(unsafe_code)]

mod console;
mod history;
mod metrics;
pub mod top;

pub use metrics::{NodeSource, Pulse, Source, serve};
