//! A bulk load with a progress bar: many changes in flight on one thread.
//!
//! ```text
//! cargo run --release --example bulk_load -- [--items 1000000] [--value-size 8] [--pool tcp:HOST:PORT]
//! ```
//!
//! Without --pool the items go to memory of this process. `put_many` keeps sixteen changes in flight:
//! over mapped memory their cache misses overlap, over a connection their round trips do. At the end it says
//! how quick that was and how much memory an item takes, everything included.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use farside::{Error, Options, Store};
use indicatif::{ProgressBar, ProgressStyle};

/// How many items go between two steps of the bar.
const ITEMS_PER_STEP: u64 = 10_000;
/// Memory for an item beside its value, when the memory is to be made here.
const ITEM_BYTES: u64 = 128;

/// Loads items, many at once.
#[derive(Parser)]
struct Plan {
    /// How many items
    #[arg(long, default_value_t = 1_000_000)]
    items: u64,
    /// Bytes of a value
    #[arg(long = "value-size", default_value_t = 8)]
    value_bytes: u64,
    /// Memory nodes, shm:PATH or tcp:HOST:PORT; memory of this process without it
    #[arg(long)]
    pool: Option<String>,
}

fn main() -> ExitCode {
    match farside::run(load(&Plan::parse())).and_then(|loaded| loaded) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bulk_load: {}", explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn explain(error: &Error) -> String {
    if error.is_out_of_memory() {
        format!("{error}: give the pool more memory, or load fewer items")
    } else {
        error.to_string()
    }
}

async fn load(plan: &Plan) -> Result<(), Error> {
    let options = match &plan.pool {
        Some(nodes) => Options::pool(nodes)?,
        None => Options::anonymous((64 << 20) + plan.items * (ITEM_BYTES + plan.value_bytes)),
    };
    let store = Store::open(options).await?;
    let mut session = store.session();
    let before_bytes = session.memory_used().await?;
    let before_items = session.count().await?;

    let bar = ProgressBar::new(plan.items);
    let style = ProgressStyle::with_template("{bar:40} {percent}% {human_pos} items, {per_sec}, {eta} left");
    bar.set_style(style.expect("the template is right"));
    let value = vec![b'v'; plan.value_bytes as usize];
    #[expect(clippy::disallowed_methods, reason = "a user waits for it")]
    let start = Instant::now();
    for first in (0..plan.items).step_by(ITEMS_PER_STEP as usize) {
        let numbers = first..plan.items.min(first + ITEMS_PER_STEP);
        bar.inc(
            store
                .put_many(numbers.map(|number| (number.to_be_bytes(), &value)))
                .await?,
        );
    }
    #[expect(clippy::disallowed_methods, reason = "a user waits for it")]
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();

    let count = session.count().await?;
    let used = session.memory_used().await?.saturating_sub(before_bytes);
    let added = count.saturating_sub(before_items).max(1);
    println!(
        "{} items in {seconds:.2} s: {:.0} items/s, {:.1} bytes per item, {count} in the store",
        plan.items,
        plan.items as f64 / seconds.max(1e-9),
        used as f64 / added as f64
    );
    store.close().await
}
