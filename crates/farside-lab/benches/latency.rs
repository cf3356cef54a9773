//! GET over mapped memory against the latency of the memory itself, allocations included.
//!
//! `cargo bench -p farside-lab -- --items 10000000`; see `farside_lab::latency`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use farside_lab::cli::LatencyArgs;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    latency: LatencyArgs,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let count = |work: &mut dyn FnMut()| allocation_counter::measure(work).count_total;
    match arguments.latency.run(Some(&count)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
