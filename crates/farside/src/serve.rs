//! `farside serve`: memory node and gateway in one process.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use farside_fabric::tcp::NodeLocation;
use farside_node::{Memory, Node, NodeOptions};

use crate::gateway::{ServiceArgs, start};
use crate::listeners::ListenArgs;
use crate::settings::FileArgs;
use crate::signal;
use crate::store::StoreArgs;
use farside_cli::{Failure, chain, scalar};

/// Memory of a new segment if nobody says how much.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    listen: ListenArgs,
    /// Size of the store's memory, for a new segment [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = scalar::size)]
    memory: Option<u64>,
    /// Keep the data in this file; without it, the data ends with the process
    #[arg(long, value_name = "PATH")]
    segment: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(crate) fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let service = args.service.read()?;
    let stop = signal::Stop::listen()?;
    // Before anything else is made.
    let listeners = args.listen.open(&service.users)?;
    let (places, hint) = (listeners.text(), listeners.hint());
    let memory = args.segment.map_or(Memory::Anonymous, Memory::File);
    let is_kept = memory != Memory::Anonymous;
    let node = Node::open(NodeOptions {
        memory,
        bytes: args.memory,
        bytes_default: MEMORY_BYTES_DEFAULT,
        secret: None,
        device: None,
    })
    .map_err(|error| Failure::usage(chain(&error)))?;
    node.format().map_err(|error| Failure::usage(chain(&error)))?;

    let nodes = [NodeLocation::Mapped(node.segment().clone())];
    let file = args.file.rewritten("serve");
    let gateway = start(listeners.all, &nodes, &service, args.store.config(), file)?;
    let segment = node.segment();
    println!(
        "farside {} serves on {} ({}, {}, {})",
        env!("CARGO_PKG_VERSION"),
        places,
        service.threads_text(),
        gateway.index().name(),
        args.store.sync_text()
    );
    println!(
        "memory: {} in {}{}{}",
        scalar::show_size(segment.memory_bytes()),
        segment.path().display(),
        if node.is_new() {
            ", new"
        } else {
            ", with the data that was there"
        },
        huge_pages(segment.path(), is_kept)
    );
    if !is_kept {
        println!("data ends with this process; --segment PATH keeps it");
    }
    if let Some(text) = service.quota_text() {
        println!("{text}");
    }
    println!("{hint}");
    tracing::info!(
        listeners = %places,
        segment = %segment.path().display(),
        bytes = segment.memory_bytes(),
        is_new = node.is_new(),
        threads = service.threads,
        index = gateway.index().name(),
        sync = args.store.sync_text(),
        "serving"
    );
    service.metrics.serve(gateway.observer())?;
    gateway.serve(stop.asked()).map_err(Failure::runtime)?;
    drop(listeners.socket_file);
    drop(nodes);
    node.shut_down().map_err(|error| Failure::runtime(chain(&error)))?;
    Ok(ExitCode::SUCCESS)
}

/// What is known about huge pages: the kernel says what it does with such memory, not what it did.
fn huge_pages(path: &std::path::Path, is_kept: bool) -> &'static str {
    if is_kept && !path.starts_with("/dev/shm") {
        return "";
    }
    let setting = if is_kept { "shmem_enabled" } else { "enabled" };
    match std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{setting}")) {
        Ok(text) if text.contains("[never]") || text.contains("[deny]") => ", 4 KiB pages",
        Ok(_) => ", huge pages where the kernel has them",
        Err(_) => "",
    }
}
