//! `farside gateway`: a stateless compute node that speaks the Redis protocol.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use farside_cli::DeviceArgs;
use farside_etcd::{Cluster, ClusterName};
use farside_fabric::host::on_this_thread;
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_gateway::{Gateway, GatewayOptions, Listener, LiveSettings, Password, SettingsFile, Users};
use farside_kv::{EvictionPolicy, PoolSpec, Quota, SAMPLES_MAX, StackError, StoreConfig, stack};

use crate::listeners::ListenArgs;
use crate::metrics::{Metrics, MetricsArgs};
use crate::settings::FileArgs;
use crate::signal;
use crate::store::StoreArgs;
use farside_cli::{Failure, chain, scalar};

#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    file: FileArgs,
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
    /// The memory nodes: shm:PATH, tcp:HOST:PORT and rdma:HOST:PORT, separated by commas; or etcd:HOST:PORT/NAME, a cluster
    #[arg(long, value_name = "NODES", value_parser = pool)]
    pool: PoolName,
    /// A file with the secret of the tcp: and rdma: nodes
    #[arg(long, value_name = "PATH")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The same, of a command that has something to say without a pool as well.
#[derive(Debug, Args)]
pub(crate) struct MaybePoolArgs {
    /// The memory nodes: shm:PATH, tcp:HOST:PORT and rdma:HOST:PORT, separated by commas; or etcd:HOST:PORT/NAME, a cluster
    #[arg(long, value_name = "NODES", value_parser = pool)]
    pool: Option<PoolName>,
    /// A file with the secret of the tcp: and rdma: nodes
    #[arg(long, value_name = "PATH", requires = "pool")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

impl MaybePoolArgs {
    /// The pool, if one is named.
    pub(crate) fn get(self) -> Option<PoolArgs> {
        Some(PoolArgs {
            pool: self.pool?,
            secret_file: self.secret_file,
            device: self.device,
        })
    }
}

/// How a pool is named.
#[derive(Clone, Debug)]
enum PoolName {
    Nodes(PoolSpec),
    Cluster(ClusterName),
}

impl core::fmt::Display for PoolName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Nodes(nodes) => nodes.fmt(f),
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}

fn pool(text: &str) -> Result<PoolName, String> {
    if ClusterName::is_meant(text) {
        let cluster = text.parse().map_err(|error: farside_etcd::NameError| error.to_string());
        return cluster.map(PoolName::Cluster);
    }
    let nodes = text.parse().map_err(|error: StackError| error.to_string());
    nodes.map(PoolName::Nodes)
}

impl PoolArgs {
    /// What the user wrote.
    pub(crate) fn name(&self) -> impl core::fmt::Display {
        &self.pool
    }

    /// The nodes as they are named, or as etcd knows them at this moment.
    pub(crate) fn spec(&self) -> Result<PoolSpec, Failure> {
        match (&self.pool, self.cluster()?) {
            (PoolName::Nodes(spec), _) => Ok(spec.clone()),
            (PoolName::Cluster(_), cluster) => {
                let text = cluster.map(|cluster| cluster.pool()).unwrap_or_default();
                text.parse().map_err(|error: StackError| Failure::usage(chain(&error)))
            }
        }
    }

    /// What etcd knows of the pool, if it is named as a cluster.
    pub(crate) fn cluster(&self) -> Result<Option<Cluster>, Failure> {
        let PoolName::Cluster(name) = &self.pool else {
            return Ok(None);
        };
        let found = on_this_thread(farside_etcd::find(name)).map_err(Failure::runtime)?;
        found.map(Some).map_err(|error| Failure::usage(chain(&error)))
    }

    /// Reads the secret.
    pub(crate) fn secret(&self) -> Result<Option<Secret>, Failure> {
        let secret = self.secret_file.as_deref().map(Secret::from_file).transpose();
        secret.map_err(|error| Failure::usage(chain(&error)))
    }

    /// The file of the secret, if one is named.
    pub(crate) fn secret_file(&self) -> Option<&Path> {
        self.secret_file.as_deref()
    }

    /// Opens the segments that another list of nodes names, which are reached as those of this pool are.
    pub(crate) fn locate_in(&self, nodes: PoolSpec) -> Result<Vec<NodeLocation>, StackError> {
        nodes.with_device(self.device.options()).locate()
    }

    /// Opens the segments that are named, and reads the secret.
    pub(crate) fn locate(&self) -> Result<(Vec<NodeLocation>, Option<Secret>), Failure> {
        let secret = self.secret()?;
        let pool = self.spec()?;
        if self.device.is_given() && !pool.has_rdma() {
            return Err(Failure::usage(
                "--rdma-device and its like choose the device for nodes that are named rdma:HOST:PORT in --pool: there is none",
            ));
        }
        let pool = pool.with_device(self.device.options());
        let nodes = pool.locate().map_err(|error| Failure::usage(chain(&error)))?;
        Ok((nodes, secret))
    }
}

/// What `serve` and `gateway` have in common.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// A file with the password that Redis clients must give
    #[arg(long, value_name = "PATH")]
    auth_file: Option<PathBuf>,
    /// A file of users and their permissions, with a line `user NAME RULE...` for each, as in Redis
    #[arg(long, value_name = "PATH")]
    acl_file: Option<PathBuf>,
    /// Threads that serve clients [default: one per two cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// How much memory may be in use; beyond that, keys are evicted, or writes fail; 0: all there is
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = scalar::limit)]
    maxmemory: u64,
    /// Which keys are evicted: noeviction, or allkeys- or volatile- with lru, lfu or random, or volatile-ttl
    #[arg(long, value_name = "NAME", default_value = "noeviction", value_parser = policy)]
    maxmemory_policy: EvictionPolicy,
    /// How many keys an eviction chooses from [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SAMPLES_MAX)))]
    maxmemory_samples: Option<u32>,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// What CONFIG SET changes beside the limit of memory, under its names.
#[derive(Debug, Args)]
struct LiveArgs {
    /// How many clients may be connected at once
    #[arg(long, value_name = "N", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    maxclients: u32,
    /// Disconnect a client that has been idle for this many seconds; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    timeout: u32,
    /// Record commands in SLOWLOG that take longer than this, in microseconds; -1: none
    #[arg(long, value_name = "US", default_value = "10000", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..))]
    slowlog_log_slower_than: i64,
    /// How many commands SLOWLOG keeps
    #[arg(long, value_name = "N", default_value = "128")]
    slowlog_max_len: usize,
    /// How many refusals ACL LOG keeps
    #[arg(long, value_name = "N", default_value = "128")]
    acllog_max_len: usize,
    /// Allow MONITOR, which shows every command of every client
    #[arg(long)]
    enable_monitor_command: bool,
}

fn policy(name: &str) -> Result<EvictionPolicy, String> {
    EvictionPolicy::by_name(name).ok_or_else(|| {
        let names = EvictionPolicy::ALL.map(|(_, name)| name);
        format!("there is no policy `{name}`; there are: {}", names.join(", "))
    })
}

/// The same after a look at files and machine.
pub(crate) struct Service {
    pub(crate) users: Arc<Users>,
    pub(crate) secret: Option<Secret>,
    pub(crate) threads: usize,
    pub(crate) quota: Arc<Quota>,
    settings: LiveSettings,
    pub(crate) metrics: Metrics,
}

impl ServiceArgs {
    pub(crate) fn read(&self) -> Result<Service, Failure> {
        let password = self.auth_file.as_deref().map(Password::from_file).transpose();
        let password = password.map_err(Failure::usage)?;
        let users = Users::open(password.as_ref(), self.acl_file.as_deref()).map_err(Failure::usage)?;
        let quota = Quota::default();
        quota.set_bytes_max(self.maxmemory);
        quota.set_policy(self.maxmemory_policy);
        if let Some(count) = self.maxmemory_samples {
            quota.set_samples(count);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Service {
            users: Arc::new(users),
            secret: None,
            // The other half is for the kernel's side of the sockets, and for clients on this machine.
            threads: self.threads.map_or(cores.div_ceil(2), usize::from),
            quota: Arc::new(quota),
            settings: LiveSettings {
                clients_max: self.live.maxclients.into(),
                timeout_s: self.live.timeout.into(),
                slow_us: self.live.slowlog_log_slower_than,
                slow_entries_max: self.live.slowlog_max_len,
                refusals_max: self.live.acllog_max_len,
                allows_monitor: self.live.enable_monitor_command,
            },
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
    settings_file: Option<Arc<dyn SettingsFile>>,
) -> Result<Gateway, Failure> {
    raise_file_limit();
    let options = GatewayOptions {
        threads: service.threads,
        users: Arc::clone(&service.users),
        secret: service.secret.clone(),
        store,
        quota: Arc::clone(&service.quota),
        settings: service.settings.clone(),
        settings_file,
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
    let listeners = args.listen.open(&service.users)?;
    let (places, hint) = (listeners.text(), listeners.hint());
    let file = args.file.rewritten("gateway");
    let gateway = start(listeners.all, &nodes, &service, args.store.config(), file)?;
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
    stack::shut_down(&stack::mapped(&nodes));
    Ok(ExitCode::SUCCESS)
}
