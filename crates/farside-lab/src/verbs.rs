//! The raw verb rate of a fabric: READs of random places, many in flight, and for figures other verbs, batches and fewer places.
//!
//! On the simulated fabric each READ in flight is a client of its own, and what counts is how many
//! simulated verbs one core executes per second of real time. Elsewhere all are in flight on one
//! endpoint: one thread over mapped memory, one connection over TCP.

use core::cell::Cell;

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Batch, Endpoint, FabricError, NodeId, OpContext, Pipeline, RemoteAddr, Slice, Verb, interleave};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::quantity::with_prefix;
use crate::stage::machine::{Service, on_this_thread};
use crate::stage::simulated::add_compute_nodes;
use crate::stage::{FabricKind, Setting};

/// Bytes of the memory that is read.
const MEMORY_BYTES: u64 = 256 << 20;

/// A verb that clients have executed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// READ.
    #[default]
    Read,
    /// WRITE.
    Write,
    /// Fetch-and-add of a word.
    Add,
}

/// What each client of a simulation does, over and over.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Which verb.
    #[serde(default)]
    pub verb: Kind,
    /// How many bytes, verb after verb, each when the one before is done.
    pub bytes: Vec<u32>,
    /// How many verbs are posted together in place of each, and waited for.
    #[serde(default = "one")]
    pub batch: u32,
    /// Among how many places one is drawn for a verb; anywhere, if nothing is said.
    pub places: Option<u64>,
}

fn one() -> u32 {
    1
}

impl Load {
    /// READs, one after the other.
    #[must_use]
    pub fn reads(bytes: &[u32]) -> Self {
        Self {
            verb: Kind::Read,
            bytes: bytes.to_vec(),
            batch: 1,
            places: None,
        }
    }

    /// Whether there can be such a load.
    fn check(&self) -> Result<(), BenchError> {
        let is_word = |&bytes: &u32| bytes == 8;
        match () {
            () if self.bytes.is_empty() || !self.bytes.iter().all(|&bytes| is_readable(bytes)) => {
                Err("verbs are of 1 byte to 128 MiB, and at least one")
            }
            () if self.verb == Kind::Add && !self.bytes.iter().all(is_word) => Err("what is added to is 8 bytes"),
            () if self.batch == 0 || self.batch as usize > BATCH_VERBS_MAX => Err("a batch has 1 to 32 verbs"),
            () if self.places == Some(0) => Err("there is at least one place"),
            () => Ok(()),
        }
        .map_err(BenchError::argument)
    }

    /// The verbs of a turn, of so many bytes each.
    fn fill(&self, batch: &mut Batch, endpoint: &Endpoint, bytes: u32) {
        for _ in 0..self.batch {
            let target = place(endpoint, bytes, self.places);
            match self.verb {
                Kind::Read => batch.read(target, Slice::first(bytes)),
                Kind::Write => batch.write(Slice::first(bytes), target),
                Kind::Add => batch.push(Verb::FetchAdd { target, add: 1 }),
            };
        }
    }
}

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
        FabricKind::Sim => simulated(setting, &Load::reads(&[bytes])),
        FabricKind::Shm => {
            let segment = Segment::anonymous(MEMORY_BYTES)?;
            on_this_thread(async {
                let endpoint = shm::Fabric::new(vec![segment]).endpoint()?;
                on_one_endpoint(&endpoint, setting, bytes).await
            })??
        }
        FabricKind::Tcp | FabricKind::Mirrored | FabricKind::Rdma => {
            let segment = Segment::anonymous(MEMORY_BYTES)?;
            let service = match setting.fabric {
                FabricKind::Mirrored => Service::start_mirrored(&segment)?,
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

/// A random place that `bytes` bytes fit behind, of so many.
fn place(endpoint: &Endpoint, bytes: u32, places: Option<u64>) -> RemoteAddr {
    let stride = u64::from(bytes).next_multiple_of(64);
    let places = places.unwrap_or(u64::MAX).min(MEMORY_BYTES / stride);
    RemoteAddr::new(NodeId::new(0), endpoint.random_below(places) * stride)
}

async fn read_once(cx: &mut OpContext, bytes: u32) -> Result<(), FabricError> {
    let source = place(cx.endpoint(), bytes, None);
    if bytes == 8 {
        cx.read_word(source).await.map(drop)
    } else {
        cx.reserve(bytes as usize);
        cx.read(source, Slice::first(bytes)).await.map(drop)
    }
}

/// Returns how many verbs were executed, and in how many nanoseconds, simulated and real.
fn simulated(setting: &Setting, load: &Load) -> (u64, u64, u64) {
    let sim = Sim::new(SimOptions {
        seed: setting.seed,
        profile: setting.profile.clone(),
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let compute_nodes = add_compute_nodes(&sim, setting);
    for client in 0..setting.clients {
        let endpoint = sim.endpoint(compute_nodes[setting.compute_node_of(client) as usize]);
        let mut cx = OpContext::new(endpoint.clone());
        let load = load.clone();
        endpoint.spawn(async move {
            cx.reserve(load.bytes.iter().max().map_or(0, |&bytes| bytes as usize));
            for &bytes in load.bytes.iter().cycle() {
                let mut batch = Batch::new();
                load.fill(&mut batch, cx.endpoint(), bytes);
                if cx.post(&mut batch).await.is_err() {
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

/// How often a second simulated clients come through the verbs of a load, times the verbs of its batches.
///
/// # Errors
/// If the setting or the load makes no sense.
pub fn rate(setting: &Setting, load: &Load) -> Result<f64, BenchError> {
    setting.check()?;
    load.check()?;
    let (verbs, elapsed_ns, _) = simulated(setting, load);
    Ok(verbs as f64 * 1e9 / load.bytes.len() as f64 / elapsed_ns.max(1) as f64)
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

#[cfg(test)]
mod tests {
    use farside_fabric::rdma::DeviceOptions;
    use farside_fabric::sim::Profile;

    use super::*;
    use crate::stage::Conditions;

    #[test]
    fn a_load_that_cannot_be_is_refused() {
        let load = |change: fn(&mut Load)| {
            let mut load = Load::reads(&[8, 192]);
            change(&mut load);
            load.check().map_err(|error| error.to_string())
        };
        assert!(load(|_| ()).is_ok());
        for (change, reason) in [
            ((|load| load.bytes.clear()) as fn(&mut Load), "at least one"),
            (|load| load.bytes[1] = 0, "1 byte to 128 MiB"),
            (|load| load.verb = Kind::Add, "8 bytes"),
            (|load| load.batch = 0, "1 to 32"),
            (|load| load.batch = 33, "1 to 32"),
            (|load| load.places = Some(0), "at least one place"),
        ] {
            let refused = load(change).expect_err("it makes no sense");
            assert!(refused.contains(reason), "{refused}");
        }
    }

    /// A batch of one queue pair is executed verb by verb, and fetch-and-adds of one word one after the other, whoever posts
    /// them: that is what rates follow from.
    #[test]
    fn rates_are_those_of_units_and_addresses() {
        let profile = Profile::plain();
        let measured = |clients: u64, load: &Load| {
            let setting = Setting {
                fabric: FabricKind::Sim,
                profile: profile.clone(),
                clients,
                compute_nodes: 1,
                duration_ns: 1_000_000,
                warm_up_ns: None,
                conditions: Conditions::default(),
                device: DeviceOptions::default(),
                seed: 1,
            };
            rate(&setting, load).expect("it makes sense")
        };
        let near = |ours: f64, expected: f64| assert!((ours / expected - 1.0).abs() < 0.02, "{ours} for {expected}");
        let batch = |verb, places| Load {
            verb,
            batch: 32,
            places,
            ..Load::reads(&[8])
        };
        for verb in [Kind::Read, Kind::Write] {
            // 32 verbs of one unit, and one round trip.
            let turn_ns = profile.post_ns + 2 * profile.wire_ns + 32 * profile.unit_ns;
            near(measured(1, &batch(verb, None)), 32e9 / turn_ns as f64);
        }
        near(
            measured(48, &batch(Kind::Add, Some(1))),
            1e9 / profile.address_ns as f64,
        );
        let all = f64::from(profile.units) * 1e9 / profile.address_ns as f64;
        near(measured(48, &batch(Kind::Add, None)), all);
    }
}
