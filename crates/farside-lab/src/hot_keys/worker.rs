//! One of the processes: told a store, it joins; told when, it starts its clients; then it says what they did.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use farside_fabric::Endpoint;
use farside_fabric::rdma::DeviceOptions;
use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::Profile;
use farside_fabric::tcp::{self, ConnectOptions, NodeLocation};
use farside_index::{Budget, IndexKind};
use farside_sync::{CreditOptions, Scheme};

use super::{Clients, HotKeysWorkerOptions, Turn};
use crate::error::BenchError;
use crate::program::Program as _;
use crate::stage::machine::{on_this_thread, run_clients};
use crate::stage::{Conditions, FabricKind, Setting};
use crate::store::{StoreProgram, TICK_NS};
use crate::worker_process::answer;
use crate::workload::{Operation, Population, Workload};

const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 8;

/// A store of a few keys, for these clients.
pub(super) fn program(clients: &Clients, scheme: Scheme) -> Result<StoreProgram, BenchError> {
    let workload = Workload::by_name(&clients.workload).map_err(BenchError::Argument)?;
    let program = StoreProgram {
        index: IndexKind::Race,
        scheme,
        local_wc: false,
        in_place: false,
        credits: CreditOptions::default(),
        population: Population::new(clients.keys, workload, clients.theta, 1),
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
        budget: Budget::default(),
        compute_nodes: clients.processes,
        tick_ns: TICK_NS,
        seen: Arc::default(),
    };
    program.check()?;
    Ok(program)
}

/// Runs a process until its standard input ends.
///
/// # Errors
/// See [`BenchError`].
pub fn serve(options: &HotKeysWorkerOptions) -> Result<(), BenchError> {
    while let Some(line) = next_line()? {
        let store: usize = line.parse().map_err(|_| unknown(&line))?;
        let (scheme, place) = options.stores.get(store).ok_or_else(|| unknown(&line))?;
        let scheme = Scheme::by_name(scheme).ok_or_else(|| unknown(scheme))?;
        let turn = on_this_thread(async {
            match options.fabric {
                FabricKind::Tcp => {
                    let location = NodeLocation::Remote(place.clone());
                    let endpoint = tcp::connect(vec![location], ConnectOptions::default()).await?;
                    take_turn(options, scheme, endpoint).await
                }
                _ => {
                    let segment = Segment::open(Path::new(place))?;
                    let endpoint = shm::Fabric::new(vec![segment]).endpoint()?;
                    take_turn(options, scheme, endpoint).await
                }
            }
        })??;
        answer(&[turn.operations, turn.p50_ns, turn.p99_ns, turn.combined, turn.writes])?;
    }
    Ok(())
}

/// What a process has answered.
pub(super) fn turn_of(numbers: &[f64]) -> Result<Turn, BenchError> {
    let &[operations, p50_ns, p99_ns, combined, writes] = numbers else {
        return Err(unknown(&format!("{numbers:?}")));
    };
    Ok(Turn {
        operations,
        p50_ns,
        p99_ns,
        combined,
        writes,
    })
}

async fn take_turn(options: &HotKeysWorkerOptions, scheme: Scheme, endpoint: Endpoint) -> Result<Turn, BenchError> {
    let clients = &options.clients;
    let program = program(clients, scheme)?;
    let setting = Setting {
        fabric: options.fabric,
        profile: Profile::default(),
        clients: clients.processes * clients.per_process,
        compute_nodes: clients.processes,
        duration_ns: clients.duration_ns,
        warm_up_ns: Some(0),
        conditions: Conditions::default(),
        device: DeviceOptions::default(),
        seed: 1,
    };
    let index = program.join(endpoint.clone(), None).await?;
    answer(&[0.0])?;
    let line = next_line()?.unwrap_or_default();
    let start_ns: u64 = line.parse().map_err(|_| unknown(&line))?;
    let (watched, index_watched, clock) = (program.clone(), index.clone(), endpoint.clone());
    endpoint.spawn(async move {
        clock.sleep(start_ns.saturating_sub(clock.now_ns())).await;
        watched.begin(&index_watched);
    });
    let (recorder, _) = run_clients(&program, &setting, options.member, endpoint, index, start_ns).await?;
    let writes = recorder.operations - recorder.mix[Operation::Search as usize];
    Ok(Turn {
        operations: recorder.operations as f64,
        p50_ns: recorder.latency.value_at_quantile(0.5) as f64,
        p99_ns: recorder.latency.value_at_quantile(0.99) as f64,
        combined: program.seen.combined().combined as f64,
        writes: writes as f64,
    })
}

fn unknown(text: &str) -> BenchError {
    BenchError::Argument(format!("`{text}` is nothing that a worker is told"))
}

/// What it is told next; `None` at the end.
fn next_line() -> Result<Option<String>, BenchError> {
    let mut line = String::new();
    let bytes = std::io::stdin().lock().read_line(&mut line);
    let bytes = bytes.map_err(BenchError::system("read what to do"))?;
    Ok((bytes > 0).then(|| line.trim_end().to_owned()))
}
