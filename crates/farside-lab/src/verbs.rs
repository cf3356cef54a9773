//! The raw verb rate of a fabric: READs of random places, many in flight.
//!
//! On the simulated fabric each READ in flight is a client of its own, and what counts is how many
//! simulated verbs one core executes per second of real time. Elsewhere all are in flight on one
//! endpoint: one thread over mapped memory, one connection over TCP.

use core::cell::Cell;

use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Endpoint, FabricError, NodeId, OpContext, Pipeline, RemoteAddr, Slice, interleave};
use serde::Serialize;

use crate::error::BenchError;
use crate::quantity::with_prefix;
use crate::stage::machine::{Service, on_this_thread};
use crate::stage::{FabricKind, Setting};

/// Bytes of the memory that is read.
const MEMORY_BYTES: u64 = 256 << 20;
/// How many clients of a simulation share a compute node.
const CLIENTS_PER_COMPUTE_NODE: u64 = 64;

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct VerbsReport {
    /// `verbs`.
    pub kind: &'static str,
    /// Name of the fabric.
    pub fabric: &'static str,
    /// Name of the NIC profile, on the simulated fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How many READs were in flight.
    pub in_flight: u64,
    /// How many bytes each returned.
    pub bytes: u32,
    /// READs per second of the fabric's time.
    pub verbs_s: f64,
    /// READs per second of real time.
    pub verbs_per_wall_s: f64,
}

impl VerbsReport {
    /// A sentence.
    #[must_use]
    pub fn to_row(&self) -> String {
        format!(
            "{} READs of {} B, {} in flight: {}verbs/s, {}verbs per real second",
            self.fabric,
            self.bytes,
            self.in_flight,
            with_prefix(self.verbs_s),
            with_prefix(self.verbs_per_wall_s)
        )
    }
}

/// Measures with `setting.clients` READs of `bytes` bytes in flight.
///
/// # Errors
/// See [`BenchError`].
pub fn run(setting: &Setting, bytes: u32) -> Result<VerbsReport, BenchError> {
    setting.check()?;
    if !is_readable(bytes) {
        return Err(BenchError::argument("--bytes is from 1 to 128MiB"));
    }
    let (verbs, elapsed_ns, wall_ns) = match setting.fabric {
        FabricKind::Sim => simulated(setting, &[bytes]),
        FabricKind::Shm => {
            let segment = Segment::anonymous(MEMORY_BYTES)?;
            on_this_thread(async {
                let endpoint = shm::Fabric::new(vec![segment]).endpoint()?;
                on_one_endpoint(&endpoint, setting, bytes).await
            })??
        }
        FabricKind::Tcp | FabricKind::Rdma => {
            let segment = Segment::anonymous(MEMORY_BYTES)?;
            let service = match setting.fabric {
                FabricKind::Rdma => Service::start_rdma(&segment, &setting.device)?,
                _ => Service::start(&segment)?,
            };
            let result = on_this_thread(async {
                let endpoint = service.connect().await?;
                on_one_endpoint(&endpoint, setting, bytes).await
            })?;
            service.stop();
            result?
        }
    };
    Ok(VerbsReport {
        kind: "verbs",
        fabric: setting.fabric.name(),
        profile: (setting.fabric == FabricKind::Sim).then(|| setting.profile.name.clone()),
        in_flight: setting.clients,
        bytes,
        verbs_s: verbs as f64 * 1e9 / elapsed_ns.max(1) as f64,
        verbs_per_wall_s: verbs as f64 * 1e9 / wall_ns.max(1) as f64,
    })
}

/// A random place that `bytes` bytes fit behind.
fn place(endpoint: &Endpoint, bytes: u32) -> RemoteAddr {
    let stride = u64::from(bytes).next_multiple_of(64);
    RemoteAddr::new(NodeId::new(0), endpoint.random_below(MEMORY_BYTES / stride) * stride)
}

async fn read_once(cx: &mut OpContext, bytes: u32) -> Result<(), FabricError> {
    let source = place(cx.endpoint(), bytes);
    if bytes == 8 {
        cx.read_word(source).await.map(drop)
    } else {
        cx.reserve(bytes as usize);
        cx.read(source, Slice::first(bytes)).await.map(drop)
    }
}

/// Returns how many verbs were executed, and in how many nanoseconds, simulated and real.
fn simulated(setting: &Setting, bytes: &[u32]) -> (u64, u64, u64) {
    let sim = Sim::new(SimOptions {
        seed: setting.seed,
        profile: setting.profile.clone(),
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let mut compute_node = sim.add_compute_node();
    for client in 0..setting.clients {
        if client % CLIENTS_PER_COMPUTE_NODE == 0 && client > 0 {
            compute_node = sim.add_compute_node();
        }
        let endpoint = sim.endpoint(compute_node);
        let mut cx = OpContext::new(endpoint.clone());
        let bytes = bytes.to_vec();
        endpoint.spawn(async move {
            for &bytes in bytes.iter().cycle() {
                if read_once(&mut cx, bytes).await.is_err() {
                    return;
                }
            }
        });
    }
    sim.run_until(setting.duration_ns / 10);
    let (verbs, wall_ns) = (sim.verbs_executed(), HostClock.now_ns());
    sim.run_until(setting.duration_ns / 10 + setting.duration_ns);
    (
        sim.verbs_executed() - verbs,
        setting.duration_ns,
        HostClock.now_ns() - wall_ns,
    )
}

/// How often a second simulated clients read so many bytes, from random places, one READ after the other.
///
/// # Errors
/// If the setting makes no sense, or a READ is larger than the memory.
pub fn reads_per_second(setting: &Setting, bytes: &[u32]) -> Result<f64, BenchError> {
    setting.check()?;
    if bytes.is_empty() || bytes.iter().any(|&bytes| !is_readable(bytes)) {
        return Err(BenchError::argument("READs are of 1 byte to 128 MiB, and at least one"));
    }
    let (verbs, elapsed_ns, _) = simulated(setting, bytes);
    Ok(verbs as f64 * 1e9 / bytes.len() as f64 / elapsed_ns.max(1) as f64)
}

fn is_readable(bytes: u32) -> bool {
    bytes > 0 && u64::from(bytes) <= MEMORY_BYTES / 2
}

async fn on_one_endpoint(endpoint: &Endpoint, setting: &Setting, bytes: u32) -> Result<(u64, u64, u64), BenchError> {
    // The clock is not asked for each READ: it costs as much as one.
    const READS_PER_LOOK: u64 = 16;
    let pipeline = Pipeline::default();
    let start_ns = endpoint.now_ns() + setting.duration_ns / 10;
    let end_ns = start_ns + setting.duration_ns;
    let (done, failure) = (Cell::new(0_u64), Cell::new(None));
    let reads = (0..setting.clients).map(|_| {
        let mut cx = OpContext::pipelined(endpoint.clone(), pipeline.clone());
        let (done, failure) = (&done, &failure);
        async move {
            loop {
                let now_ns = cx.endpoint().now_ns();
                if now_ns >= end_ns {
                    return;
                }
                for _ in 0..READS_PER_LOOK {
                    if let Err(error) = read_once(&mut cx, bytes).await {
                        failure.set(Some(error));
                        return;
                    }
                }
                if now_ns >= start_ns {
                    done.set(done.get() + READS_PER_LOOK);
                }
            }
        }
    });
    interleave(&pipeline, reads.collect()).await;
    let elapsed_ns = endpoint.now_ns() - start_ns;
    failure
        .get()
        .map_or(Ok((done.get(), elapsed_ns, elapsed_ns)), |error| Err(error.into()))
}
