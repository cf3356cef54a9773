//! An etcd that is stopped and killed: an address and data that stay, and the process that serves them now.
//!
//! On the path: members of groups ask it through relays of their own, tools and gateways directly.

use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::process::Signal;

use super::folder::Folder;
use super::process::{Process, free_port};
use crate::service::etcd::etcd;

pub(crate) struct Etcd {
    data: PathBuf,
    pub(crate) address: SocketAddr,
    peers: SocketAddr,
    process: Option<Process>,
    is_stopped: bool,
}

impl Etcd {
    pub(crate) fn start(folder: &Folder) -> Self {
        let mut etcd = Self {
            data: folder.file("etcd.data"),
            address: free_port(),
            peers: free_port(),
            process: None,
            is_stopped: false,
        };
        etcd.launch();
        etcd
    }

    pub(crate) fn launch(&mut self) {
        let mut command = etcd(&self.data, self.address, self.peers);
        self.process = Some(Process::start(&mut command, &self.data.with_extension("stderr")));
        self.is_stopped = false;
    }

    /// Whether nothing has been done to it.
    pub(crate) fn is_well(&self) -> bool {
        self.process.is_some() && !self.is_stopped
    }

    pub(crate) fn expect_running(&mut self) {
        if let Some(process) = &mut self.process {
            process.expect_running();
        }
    }

    pub(crate) fn stop(&mut self) {
        self.process.as_ref().expect("it is well").stop();
        self.is_stopped = true;
    }

    pub(crate) fn resume(&mut self) {
        self.process.as_ref().expect("only stopped").signal(Signal::CONT);
        self.is_stopped = false;
    }

    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it is well").kill();
    }
}
