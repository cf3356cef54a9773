//! `farside node`: a memory node.

use core::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use farside_cli::DeviceArgs;
use farside_fabric::tcp::{Secret, ServerOptions, require_secret_unless_loopback};
use farside_node::{Memory, Node, NodeOptions};
use farside_watch::{NodeSource, Pulse};

use crate::metrics::MetricsArgs;
use crate::mirror::MirrorArgs;
use crate::settings::FileArgs;
use crate::{listen, rdma, signal};
use farside_cli::{Failure, chain, scalar};

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    _file: FileArgs,
    /// The file that holds the memory; created if it does not exist
    #[arg(long, value_name = "PATH")]
    segment: PathBuf,
    /// Size of a new segment; an existing one keeps its size
    #[arg(long, value_name = "SIZE", value_parser = scalar::size)]
    memory: Option<u64>,
    /// Where clients that do not map the segment connect
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7380", value_parser = scalar::address)]
    listen: SocketAddr,
    /// A file with the secret that remote clients must present
    #[arg(long, value_name = "PATH")]
    secret_file: Option<PathBuf>,
    /// Serve the memory with an RDMA device: clients reach it as rdma:HOST:PORT, and no other process may map it
    #[arg(long)]
    rdma: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    mirror: MirrorArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

pub(crate) fn run(args: NodeArgs) -> Result<ExitCode, Failure> {
    let is_there = std::fs::metadata(&args.segment).is_ok_and(|metadata| metadata.len() > 0);
    if !is_there && args.memory.is_none() {
        let path = args.segment.display();
        return Err(Failure::usage(format!(
            "{path} does not exist: say how large it shall be, such as --memory 4GiB"
        )));
    }
    let secret = args.secret_file.as_deref().map(Secret::from_file).transpose();
    let secret = secret.map_err(|error| Failure::usage(chain(&error)))?;
    let mut options = ServerOptions::default();
    options.secret.clone_from(&secret);
    // Before anything is made.
    require_secret_unless_loopback(args.listen, &options)
        .map_err(|error| Failure::usage(format!("{error} (--secret-file names the file)")))?;
    let device = args.rdma.then(|| rdma::open(&args.device)).transpose()?;
    if device.is_none() && args.device.is_given() {
        return Err(Failure::usage(
            "--rdma-device and its like choose the device of --rdma: give that too",
        ));
    }
    let is_mirrored = args.mirror.check(device.is_some(), args.listen)?;
    let stop = signal::Stop::listen()?;
    let listener = listen::bind(args.listen, "--listen")?;
    let metrics = args.metrics.bind()?;
    let node = Node::open(NodeOptions {
        memory: Memory::File(args.segment),
        bytes: args.memory,
        bytes_default: 0,
        secret: secret.clone(),
        device: device.clone(),
    })
    .map_err(|error| Failure::usage(chain(&error)))?;
    let (mut group, mut asker) = (None, None);
    let server = if is_mirrored {
        let Some((options, beside)) = args.mirror.options(&node, &listener, &stop)? else {
            return Ok(ExitCode::SUCCESS);
        };
        asker = beside;
        group = Some(options.address.clone());
        node.mirrored_server(&listener, options)
    } else {
        node.server(&listener)
    };
    let (server, _) = server.map_err(|error| Failure::usage(chain(&error)))?;
    let address = listener.local_addr().map_err(Failure::runtime)?;
    let segment = node.segment();
    let path = std::path::absolute(segment.path()).unwrap_or_else(|_| segment.path().to_path_buf());
    println!(
        "farside {} memory node on {address}: {} in {}",
        env!("CARGO_PKG_VERSION"),
        scalar::show_size(segment.memory_bytes()),
        path.display()
    );
    match &device {
        None if is_mirrored => println!("{}", args.mirror.describe(address)),
        None => println!(
            "connect: farside gateway --pool tcp:{address}   or, on this machine, --pool shm:{}",
            path.display()
        ),
        Some(device) => println!(
            "connect: farside gateway --pool rdma:{address}   ({} port {}; clients find out which atomics are native)",
            device.facts().name,
            device.facts().port
        ),
    }
    tracing::info!(
        %address,
        segment = %path.display(),
        bytes = segment.memory_bytes(),
        is_new = node.is_new(),
        "serving a memory node"
    );
    let (pulse, answer) = Pulse::new();
    // Kept, so that there is something to answer for as long as it serves, whether it is asked or not.
    let mut source = NodeSource::new(segment.clone(), pulse.clone());
    if let Some(address) = group {
        source = source.mirrored(address, secret);
    }
    metrics.serve(source)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::runtime)?;
    let asked = async {
        match asker {
            Some(asker) => asker.run().await,
            None => pending().await,
        }
    };
    let served = runtime.block_on(async {
        tokio::select! {
            served = server.serve(listener) => served.map_err(Failure::runtime),
            refused = asked => refused.map_err(|error| Failure::usage(chain(&error))),
            () = stop.asked() => Ok(()),
            () = answer => Ok(()),
        }
    });
    served?;
    drop(runtime);
    node.shut_down().map_err(|error| Failure::runtime(chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}
