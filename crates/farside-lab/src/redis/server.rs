//! A Redis server that keeps everything in memory and ends with whoever started it.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use farside_fabric::host::HostClock;

use super::Connection;
use crate::error::BenchError;

/// How long a server may take to listen.
const START_NS: u64 = 5_000_000_000;
/// How long is waited before it is looked at again.
const POLL_NS: u64 = 5_000_000;
/// How often another port is tried if somebody was quicker to take it.
const PORTS_MAX: u64 = 5;

/// A process; it ends when this is dropped.
pub(crate) struct Server(Child);

impl Server {
    /// Starts the `redis-server` that is found in PATH, without a disk; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn spawn<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Option<Self>, BenchError> {
        let child = Command::new("redis-server")
            .args(["--save", "", "--appendonly", "no"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Ok(Some(Self(child))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BenchError::system("start redis-server")(error)),
        }
    }

    /// Waits until this server, and no other one, answers there; whether it does before it ends.
    async fn answers(&mut self, address: &str) -> Result<bool, BenchError> {
        let until_ns = HostClock.now_ns() + START_NS;
        let own = format!("process_id:{}\r\n", self.0.id());
        loop {
            let ended = self.0.try_wait().map_err(BenchError::system("start redis-server"))?;
            if ended.is_some() {
                return Ok(false);
            }
            match about(address).await {
                Ok(about) if about.contains(&own) => return Ok(true),
                Err(error) if HostClock.now_ns() >= until_ns => {
                    return Err(BenchError::system("talk to redis-server")(error));
                }
                Ok(_) if HostClock.now_ns() >= until_ns => return Ok(false),
                // Another one has the port, so that this one ends; or it does not listen yet.
                Ok(_) | Err(_) => HostClock.sleep(POLL_NS).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn about(address: &str) -> std::io::Result<String> {
    Connection::open(address).await?.ask(&["INFO", "server"]).await
}

/// A server on a free port of the loopback, with a folder of its own; both go when this is dropped.
pub(crate) struct LocalServer {
    address: String,
    /// Before its folder.
    _server: Server,
    _folder: Folder,
}

impl LocalServer {
    /// Starts one; `None` if there is no `redis-server` in PATH.
    ///
    /// # Errors
    /// If it does not come to listen.
    pub(crate) async fn start() -> Result<Option<Self>, BenchError> {
        for _ in 0..PORTS_MAX {
            let port = free_port().map_err(BenchError::system("find a free port"))?;
            let folder = Folder::new(port).map_err(BenchError::system("make a folder for redis-server"))?;
            let (port, address) = (port.to_string(), format!("127.0.0.1:{port}"));
            let place = ["--bind", "127.0.0.1", "--port", &port, "--dir"].map(OsStr::new);
            let Some(mut server) = Server::spawn(place.into_iter().chain([folder.0.as_os_str()]))? else {
                return Ok(None);
            };
            if server.answers(&address).await? {
                return Ok(Some(Self {
                    address,
                    _server: server,
                    _folder: folder,
                }));
            }
        }
        Err(BenchError::system("start redis-server")(Error::other(
            "it ends as soon as it is started",
        )))
    }

    /// Where it listens, HOST:PORT.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// An empty folder that goes with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(port: u16) -> std::io::Result<Self> {
        let name = format!("farside-lab-redis-{}-{port}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is in the folder for what is temporary.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
