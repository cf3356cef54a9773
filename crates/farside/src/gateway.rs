//! `farside gateway`: a stateless compute node that speaks the Redis protocol.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use farside_cli::DeviceArgs;
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_gateway::{Gateway, GatewayOptions, Listener, Password};
use farside_kv::{EvictionPolicy, PoolSpec, Quota, SAMPLES_MAX, StoreConfig};

use crate::listeners::ListenArgs;
use crate::metrics::{Metrics, MetricsArgs};
use crate::store::StoreArgs;
use crate::{scalar, signal};
use farside_cli::{Failure, chain};

/// Connections at once.
const CLIENTS_MAX: u64 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Which pool, and how to be let in.
#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// The memory nodes: shm:PATH, tcp:HOST:PORT and rdma:HOST:PORT, with commas between them
    #[arg(long, value_name = "NODES", value_parser = pool)]
    pool: PoolSpec,
    /// A file with the secret that the nodes at the end of a connection were started with
    #[arg(long, value_name = "PATH")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

fn pool(text: &str) -> Result<PoolSpec, String> {
    text.parse().map_err(|error: farside_kv::StackError| error.to_string())
}

impl PoolArgs {
    /// Opens the segments that are named, and reads the secret.
    pub(crate) fn locate(&self) -> Result<(Vec<NodeLocation>, Option<Secret>), Failure> {
        let secret = self.secret_file.as_deref().map(Secret::from_file).transpose();
        let secret = secret.map_err(|error| Failure::usage(chain(&error)))?;
        if self.device.is_given() && !self.pool.has_rdma() {
            return Err(Failure::usage(
                "--rdma-device and its like choose the device for nodes that are named rdma:HOST:PORT in --pool: there is none",
            ));
        }
        let pool = self.pool.clone().with_device(self.device.options());
        let nodes = pool.locate().map_err(|error| Failure::usage(chain(&error)))?;
        Ok((nodes, secret))
    }
}

/// What `serve` and `gateway` have in common.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// A file with the password that Redis clients have to give
    #[arg(long, value_name = "PATH")]
    auth_file: Option<PathBuf>,
    /// Threads that serve clients [default: one per two cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// How much memory may be in use; then keys are evicted, or what needs memory fails [default: all there is]
    #[arg(long, value_name = "SIZE", value_parser = scalar::size)]
    maxmemory: Option<u64>,
    /// Which keys are evicted then: noeviction, or allkeys- or volatile- with lru, lfu or random, or volatile-ttl
    #[arg(long, value_name = "NAME", default_value = "noeviction", value_parser = policy)]
    maxmemory_policy: EvictionPolicy,
    /// How many keys an eviction chooses from [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SAMPLES_MAX)))]
    maxmemory_samples: Option<u32>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

fn policy(name: &str) -> Result<EvictionPolicy, String> {
    EvictionPolicy::by_name(name).ok_or_else(|| {
        let names = EvictionPolicy::ALL.map(|(_, name)| name);
        format!("there is no policy `{name}`, but {}", names.join(", "))
    })
}

/// The same after a look at files and machine.
pub(crate) struct Service {
    pub(crate) password: Option<Password>,
    pub(crate) secret: Option<Secret>,
    pub(crate) threads: usize,
    pub(crate) quota: Arc<Quota>,
    pub(crate) metrics: Metrics,
}

impl ServiceArgs {
    pub(crate) fn read(&self) -> Result<Service, Failure> {
        let password = self.auth_file.as_deref().map(Password::from_file).transpose();
        let quota = Quota::default();
        quota.set_bytes_max(self.maxmemory.unwrap_or(0));
        quota.set_policy(self.maxmemory_policy);
        if let Some(count) = self.maxmemory_samples {
            quota.set_samples(count);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Service {
            password: password.map_err(Failure::usage)?,
            secret: None,
            // The other half is for the kernel's side of the sockets, and for clients on this machine.
            threads: self.threads.map_or(cores.div_ceil(2), usize::from),
            quota: Arc::new(quota),
            metrics: self.metrics.bind()?,
        })
    }
}

impl Service {
    pub(crate) fn threads_text(&self) -> String {
        match self.threads {
            1 => "1 thread".to_owned(),
            count => format!("{count} threads"),
        }
    }

    /// A line about the limit of memory, if there is one.
    pub(crate) fn quota_text(&self) -> Option<String> {
        let policy = self.quota.policy();
        match (self.quota.bytes_max(), policy.evicts()) {
            (None, false) => None,
            (None, true) => Some(format!("when memory runs out: {}", policy.name())),
            (Some(bytes), _) => {
                let size = scalar::show_size(bytes);
                Some(format!("when {size} are in use: {}", policy.name()))
            }
        }
    }
}

/// Starts a gateway to these nodes.
pub(crate) fn start(
    listeners: Vec<Listener>,
    nodes: &[NodeLocation],
    service: &Service,
    store: StoreConfig,
) -> Result<Gateway, Failure> {
    raise_file_limit();
    let options = GatewayOptions {
        threads: service.threads,
        clients_max: CLIENTS_MAX,
        password: service.password.clone(),
        secret: service.secret.clone(),
        store,
        quota: Arc::clone(&service.quota),
    };
    Gateway::start(listeners, nodes, &options).map_err(|error| Failure::usage(chain(&error)))
}

/// A connection is a file; the usual soft limit allows a thousand.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, accepting fails later, and says why.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

pub(crate) fn run(args: GatewayArgs) -> Result<ExitCode, Failure> {
    let mut service = args.service.read()?;
    let (nodes, secret) = args.pool.locate()?;
    service.secret = secret;
    let stop = signal::Stop::listen()?;
    let listeners = args.listen.open(service.password.as_ref())?;
    let (places, hint) = (listeners.text(), listeners.hint());
    let gateway = start(listeners.all, &nodes, &service, args.store.config())?;
    println!(
        "farside {} serves a pool of {} on {} ({}, {}, {})",
        env!("CARGO_PKG_VERSION"),
        match nodes.len() {
            1 => "1 node".to_owned(),
            count => format!("{count} nodes"),
        },
        places,
        service.threads_text(),
        gateway.index().name(),
        args.store.sync_text()
    );
    if let Some(text) = service.quota_text() {
        println!("{text}");
    }
    println!("{hint}");
    tracing::info!(
        listeners = %places,
        pool = %args.pool.pool,
        threads = service.threads,
        index = gateway.index().name(),
        sync = args.store.sync_text(),
        "serving a pool"
    );
    service.metrics.serve(gateway.observer())?;
    gateway.serve(stop.asked()).map_err(Failure::runtime)?;
    drop(listeners.socket_file);
    Ok(ExitCode::SUCCESS)
}
