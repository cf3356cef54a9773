//! Taking a port, or saying who has it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use procfs::process::{FDTarget, all_processes};

use farside_cli::Failure;

/// Listens on an address that was given with this flag.
pub(crate) fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::usage(match error.kind() {
            ErrorKind::AddrInUse => match holder(address) {
                Some(holder) => format!("{address} is in use by {holder}: stop it, or choose another with {flag}"),
                None => format!("{address} is in use by another process: choose another with {flag}"),
            },
            ErrorKind::PermissionDenied => {
                format!("{address}: ports below 1024 are reserved for the administrator: choose another with {flag}")
            }
            ErrorKind::AddrNotAvailable => {
                format!("{address} is not an address of this machine: choose one with {flag}, such as 127.0.0.1:6380")
            }
            _ => format!("cannot listen on {address}: {error}"),
        })
    })
}

/// The process that listens on this port, if /proc shows it to us.
fn holder(address: SocketAddr) -> Option<String> {
    let sockets = procfs::net::tcp().into_iter().flatten();
    let inodes: Vec<u64> = sockets
        .chain(procfs::net::tcp6().into_iter().flatten())
        .filter(|entry| entry.state == procfs::net::TcpState::Listen && entry.local_address.port() == address.port())
        .map(|entry| entry.inode)
        .collect();
    // Processes of other users hide their files from us.
    let process = all_processes().ok()?.flatten().find(|process| {
        let files = process.fd().into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| matches!(file.target, FDTarget::Socket(inode) if inodes.contains(&inode)))
    })?;
    let command = process.cmdline().map(|words| words.join(" ")).unwrap_or_default();
    let command: String = command.chars().filter(|c| !c.is_control()).take(60).collect();
    Some(format!("process {} ({command})", process.pid))
}
