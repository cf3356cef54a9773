//! How many simulated verbs one core executes per second of real time.
//!
//! `cargo run --release -p farside-fabric --example sim_speed [clients] [simulated milliseconds]`
//!
//! Three loads, each client an async loop through `OpContext`: READs of random words of 1 GiB,
//! a READ and a compare-and-swap in turn over few addresses (queues, blocked units), and READs of a
//! 1 KiB node.

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{OpContext, RemoteAddr, Slice};

#[derive(Clone, Copy)]
enum Load {
    Words,
    Swaps { addresses: u64 },
    Nodes,
}

fn main() {
    let number = |index: usize, default: u64| {
        std::env::args()
            .nth(index)
            .map_or(default, |text| text.parse().expect("an argument is a number"))
    };
    let (clients, milliseconds) = (number(1, 256), number(2, 20));
    for (name, load) in [
        ("READ of 8 bytes", Load::Words),
        ("READ + CAS, 100 000 addresses", Load::Swaps { addresses: 100_000 }),
        ("READ + CAS, 100 addresses", Load::Swaps { addresses: 100 }),
        ("READ of 1 KiB", Load::Nodes),
    ] {
        measure(name, load, clients, milliseconds);
    }
}

#[expect(clippy::disallowed_methods, reason = "this measures the simulator in real time")]
fn measure(name: &str, load: Load, clients: u64, milliseconds: u64) {
    let sim = Sim::new(SimOptions::default());
    let bytes = 1 << 30;
    let node = sim.add_memory_node(bytes);
    for _ in 0..clients.div_ceil(64) {
        let compute_node = sim.add_compute_node();
        for _ in 0..64.min(clients) {
            let endpoint = sim.endpoint(compute_node);
            let mut op = OpContext::new(endpoint.clone());
            endpoint.clone().spawn(async move {
                loop {
                    match load {
                        Load::Words => {
                            let addr = RemoteAddr::new(node, endpoint.random_below(bytes / 8) * 8);
                            op.read_word(addr).await.expect("the node is there");
                        }
                        Load::Swaps { addresses } => {
                            let addr = RemoteAddr::new(node, endpoint.random_below(addresses) * 64);
                            let old = op.read_word(addr).await.expect("the node is there");
                            op.compare_swap(addr, old, old + 1).await.expect("the node is there");
                        }
                        Load::Nodes => {
                            let addr = RemoteAddr::new(node, endpoint.random_below(bytes / 1024) * 1024);
                            op.read(addr, Slice::first(1024)).await.expect("the node is there");
                        }
                    }
                }
            });
        }
    }
    sim.run_until(100_000);
    let (verbs, started) = (sim.verbs_executed(), std::time::Instant::now());
    sim.run_until(100_000 + milliseconds * 1_000_000);
    let (verbs, seconds) = (sim.verbs_executed() - verbs, started.elapsed().as_secs_f64());
    println!(
        "{name:32} {clients} clients: {:6.2} M simulated verbs/s, {:6.2} M verbs per real second",
        verbs as f64 / milliseconds as f64 / 1e3,
        verbs as f64 / seconds / 1e6,
    );
}
