//! The `redis-server` of the distribution, with which Farside exchanges values and is compared.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::client::Client;

/// A Redis server over a folder; it ends with the test.
pub(crate) struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// The same with these further arguments.
    pub(crate) fn start_with(folder: &Path, further: &[&str]) -> Self {
        // Nobody else takes it in between: the system gives such ports in turn.
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let folder = text(folder);
        let port = address.port().to_string();
        let arguments = ["--port", &port, "--dir", folder, "--dbfilename", "dump.rdb"];
        let child = Command::new("redis-server")
            .args(arguments)
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .args(further)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed (Debian: redis-server)");
        let redis = Self { child, address };
        // Ends: it answers, or the test is ended.
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        let mut client = redis.client();
        while !client.ask("PING").starts_with("+PONG") {
            std::thread::yield_now();
        }
        redis
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}
