//! Runs all contenders in turn.

use core::time::Duration;
use std::sync::Arc;

use farside_fabric::host::HostClock;
use farside_fabric::rdma::DeviceOptions;
use farside_lock::{LockKind, LockOptions};
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::LockServicesOptions;
use super::etcd::EtcdLock;
use super::report::{Report, Row};
use crate::crowd::{Crowd, all_of, client_threads};
use crate::error::BenchError;
use crate::latency::median;
use crate::lock::LockProgram;
use crate::measure_lock;
use crate::progress::Progress;
use crate::redis::RedisLock;
use crate::stage::{Conditions, FabricKind, Setting};
use crate::workload::client_random;

/// A client of somebody else's locks.
pub(super) trait Service {
    /// Asks for a lock; whether it was granted.
    async fn try_lock(&mut self, name: &str) -> Result<bool, BenchError>;
    /// Gives it back.
    async fn unlock(&mut self, name: &str) -> Result<(), BenchError>;
}

impl Service for RedisLock {
    async fn try_lock(&mut self, name: &str) -> Result<bool, BenchError> {
        Self::try_lock(self, name).await
    }

    async fn unlock(&mut self, name: &str) -> Result<(), BenchError> {
        Self::unlock(self, &[name]).await
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug)]
enum Contender {
    /// Ours; each client with a thread and a connection of its own, or not.
    Farside {
        kind: LockKind,
        fabric: FabricKind,
        is_alone: bool,
    },
    /// Redis or Redlock; who is refused tries again at once, or after up to so many milliseconds.
    Redis {
        is_redlock: bool,
        pause_ms: u64,
    },
    Etcd,
}

impl Contender {
    fn all(options: &LockServicesOptions) -> Vec<Self> {
        let mut all = Vec::new();
        for fabric in [FabricKind::Tcp, FabricKind::Shm] {
            for name in ["declock", "shiftlock"] {
                let kind = LockKind::by_name(name).expect("it is registered");
                for is_alone in [false, true] {
                    all.push(Self::Farside { kind, fabric, is_alone });
                }
            }
        }
        for (is_redlock, is_there) in [(false, options.redis.is_some()), (true, !options.redlock.is_empty())] {
            if is_there {
                all.extend([0, 2].map(|pause_ms| Self::Redis { is_redlock, pause_ms }));
            }
        }
        all.extend(options.etcd.is_some().then_some(Self::Etcd));
        all
    }

    fn name(self) -> String {
        match self {
            Self::Farside { kind, is_alone, .. } => {
                format!("{}{}", kind.name(), if is_alone { "-alone" } else { "" })
            }
            Self::Redis { is_redlock, pause_ms } => {
                let name = if is_redlock { "redlock" } else { "redis" };
                match pause_ms {
                    0 => format!("{name}-at-once"),
                    _ => format!("{name}-pause"),
                }
            }
            Self::Etcd => "etcd".to_owned(),
        }
    }

    fn fabric(self) -> Option<FabricKind> {
        match self {
            Self::Farside { fabric, .. } => Some(fabric),
            _ => None,
        }
    }

    /// Acquires and releases per second.
    fn measure(self, options: &LockServicesOptions, clients: u64, locks: u64) -> Result<f64, BenchError> {
        let crowd = Crowd {
            clients,
            threads: client_threads(clients),
            duration_ns: options.duration_ns,
        };
        let draws = Draws {
            locks,
            seed: options.seed,
        };
        match self {
            Self::Farside { kind, fabric, is_alone } => {
                let threads = if is_alone { clients } else { crowd.threads };
                ours(crowd, draws, kind, fabric, threads)
            }
            Self::Redis { is_redlock, pause_ms } => {
                let one: Vec<String> = options.redis.iter().cloned().collect();
                let addresses = if is_redlock { &options.redlock } else { &one };
                measure(crowd, draws, pause_ms, |client| RedisLock::connect(addresses, client))
            }
            Self::Etcd => {
                let address = options.etcd.as_deref().expect("it takes part");
                measure(crowd, draws, 0, |_| EtcdLock::connect(address))
            }
        }
    }
}

/// Which locks are taken.
#[derive(Clone, Copy, Debug)]
struct Draws {
    locks: u64,
    seed: u64,
}

fn ours(crowd: Crowd, draws: Draws, kind: LockKind, fabric: FabricKind, threads: u64) -> Result<f64, BenchError> {
    let program = LockProgram {
        kind,
        locks: draws.locks,
        transactions: None,
        theta: 0.0,
        read_ratio: 0.0,
        section_verbs: 0,
        failure_rate: 0.0,
        is_timed: false,
        noted: Arc::default(),
        seed: draws.seed,
        options: LockOptions {
            // Room for all who may wait.
            declock_capacity: threads.next_power_of_two().max(LockOptions::default().declock_capacity),
            ..LockOptions::default()
        },
    };
    let setting = Setting {
        fabric,
        profile: farside_fabric::sim::Profile::default(),
        clients: crowd.clients,
        compute_nodes: threads,
        duration_ns: crowd.duration_ns,
        warm_up_ns: None,
        conditions: Conditions::default(),
        device: DeviceOptions::default(),
        seed: draws.seed,
    };
    let report = measure_lock(&program, &setting, &mut None, &Progress::hidden())?;
    Ok(report.throughput_ops_s)
}

/// Acquires and releases per second of clients of somebody else's locks.
fn measure<S: Service + 'static, F: Future<Output = Result<S, BenchError>>>(
    crowd: Crowd,
    draws: Draws,
    pause_ms: u64,
    connect: impl Fn(u64) -> F + Sync,
) -> Result<f64, BenchError> {
    let counts = crowd.run(
        async |numbers: Vec<u64>| {
            let mut services = Vec::new();
            for client in numbers {
                services.push((client, connect(client).await?));
            }
            Ok(services)
        },
        async |services: Vec<(u64, S)>, window| {
            let clients = services.into_iter().map(|(client, service)| {
                let random = client_random(draws.seed, client);
                drive(service, random, draws.locks, pause_ms, window.clone())
            });
            Ok(all_of(clients).await?.into_iter().sum::<u64>())
        },
    )?;
    let total: u64 = counts.iter().sum();
    Ok(total as f64 * 1e9 / crowd.duration_ns as f64)
}

/// Counts what ends within the window.
async fn drive(
    mut service: impl Service,
    mut random: Xoshiro256PlusPlus,
    locks: u64,
    pause_ms: u64,
    window: core::ops::Range<u64>,
) -> Result<u64, BenchError> {
    let mut count = 0;
    loop {
        // Eight digits, so that etcd's gateway takes it for base64 as it is.
        let name = format!("{:08}", random.next_u64() % locks);
        while !service.try_lock(&name).await? {
            if pause_ms > 0 {
                let pause = Duration::from_micros(random.next_u64() % (1000 * pause_ms));
                #[expect(clippy::disallowed_methods, reason = "what is measured here is no fabric")]
                tokio::time::sleep(pause).await;
            }
            if HostClock.now_ns() >= window.end {
                return Ok(count);
            }
        }
        service.unlock(&name).await?;
        let now_ns = HostClock.now_ns();
        if now_ns >= window.end {
            return Ok(count);
        }
        count += u64::from(now_ns >= window.start);
    }
}

/// Measures, and returns what to print.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &LockServicesOptions, progress: &Progress) -> Result<String, BenchError> {
    if options.rounds == 0 {
        return Err(BenchError::argument("--rounds is at least 1"));
    }
    if options.locks.contains(&0) || options.locks.iter().any(|&locks| locks > 100_000_000) {
        return Err(BenchError::argument("--locks are numbers from 1 to 100000000"));
    }
    let contenders = Contender::all(options);
    let mut cells = Vec::new();
    for &locks in &options.locks {
        for &clients in &options.clients {
            cells.extend(
                contenders
                    .iter()
                    .map(|&contender| (contender, clients, locks, Vec::new())),
            );
        }
    }
    let total = options.rounds * cells.len() as u64;
    for round in 0..options.rounds {
        for (step, (contender, clients, locks, values)) in (0..).zip(&mut cells) {
            progress.label(format!("{}, {clients} clients", contender.name()));
            progress.set((round * (total / options.rounds) + step) * 100 / total);
            values.push(contender.measure(options, *clients, *locks)?);
        }
    }
    let rows = cells.into_iter().map(|(contender, clients, locks, values)| Row {
        contender: contender.name(),
        fabric: contender.fabric().map(FabricKind::name),
        clients,
        locks,
        cycles_s: median(values),
    });
    let report = Report::new(options.rounds, rows.collect());
    Ok(if options.is_json {
        report.to_json()
    } else {
        report.to_table()
    })
}
