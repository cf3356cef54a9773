//! How many READs per second one connection carries, by how many are in flight.
//!
//! A server and a client, each on a thread of its own, over loopback:
//!
//! ```text
//! cargo run --release -p farside-fabric --example tcp_rate [bytes [in-flight ...]]
//! ```
//!
//! Prints the median of five runs, and all five; first without deadlines, then with one for each
//! READ.

use std::cell::Cell;
use std::net::TcpListener;

use farside_fabric::Endpoint;
use farside_fabric::shm::Segment;
use farside_fabric::tcp::{ConnectOptions, NodeLocation, Server, ServerOptions, connect};
use farside_fabric::{Deadline, NodeId, OpContext, Pipeline, RemoteAddr, Slice, interleave};

const MEMORY_BYTES: u64 = 64 << 20;
const RUN_NS: u64 = 1_000_000_000;
const RUNS: usize = 5;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u32>());
    let bytes = numbers.next().unwrap_or(Ok(64))?;
    let mut depths = numbers.collect::<Result<Vec<_>, _>>()?;
    if depths.is_empty() {
        depths = vec![1, 16, 256];
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let server = Server::new(Segment::anonymous(MEMORY_BYTES)?, ServerOptions::default());
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run(listener));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, measure(address, bytes, depths))?;
    handle.stop();
    thread.join().map_err(|_| "the server panicked")??;
    Ok(())
}

async fn measure(address: String, bytes: u32, depths: Vec<u32>) -> Result<(), Failure> {
    let endpoint = connect(vec![NodeLocation::Remote(address)], ConnectOptions::default()).await?;
    for (limit_ns, limit) in [(None, "no deadline"), (Some(RUN_NS), "deadlines")] {
        for &depth in &depths {
            run(&endpoint, bytes, depth, limit_ns).await;
            let mut rates = Vec::with_capacity(RUNS);
            for _ in 0..RUNS {
                rates.push(run(&endpoint, bytes, depth, limit_ns).await);
            }
            rates.sort_unstable();
            let median = rates[RUNS / 2];
            println!("{bytes}-byte READs, {depth} in flight, {limit}: {median} verbs/s, median of {rates:?}");
        }
    }
    Ok(())
}

/// READs for [`RUN_NS`], each with `limit_ns` to complete in; returns how many per second.
async fn run(endpoint: &Endpoint, bytes: u32, depth: u32, limit_ns: Option<u64>) -> u64 {
    let start_ns = endpoint.now_ns();
    let done = Cell::new(0_u64);
    let pipeline = Pipeline::default();
    let operations = (0..depth).map(|lane| {
        let (done, pipeline) = (&done, pipeline.clone());
        async move {
            let mut context = OpContext::pipelined(endpoint.clone(), pipeline);
            context.reserve(bytes as usize);
            let stride = u64::from(bytes.next_multiple_of(64));
            let offset = (u64::from(lane) * stride) % (MEMORY_BYTES - stride);
            let source = RemoteAddr::new(NodeId::new(0), offset);
            loop {
                let now_ns = endpoint.now_ns();
                if now_ns - start_ns >= RUN_NS {
                    break;
                }
                context.set_deadline(limit_ns.map_or(Deadline::NEVER, |limit_ns| Deadline(now_ns + limit_ns)));
                context
                    .read(source, Slice::first(bytes))
                    .await
                    .expect("the node is there");
                done.set(done.get() + 1);
            }
        }
    });
    interleave(&pipeline, operations.collect()).await;
    let elapsed_ns = endpoint.now_ns() - start_ns;
    (u128::from(done.get()) * 1_000_000_000 / u128::from(elapsed_ns)) as u64
}
