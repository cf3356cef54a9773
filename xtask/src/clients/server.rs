//! The server that a client is tried on: it can be killed and started again on the same segment while the client looks on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{Transport, Workplace};
use crate::{package, step};

pub(super) struct Server {
    program: PathBuf,
    folder: PathBuf,
    transport: Transport,
    pub(super) address: SocketAddr,
    service: Option<package::Service>,
}

impl Server {
    pub(super) fn start(workplace: &Workplace, name: &str, transport: Transport) -> Result<Self> {
        let folder = workplace.folder.join(format!("{name}.server"));
        package::remade(&folder)?;
        let mut server = Self {
            program: workplace.program.clone(),
            folder,
            transport,
            address: package::free_address()?,
            service: None,
        };
        if transport == Transport::Tls {
            package::certify(&[], &server.certificate(), &server.folder.join("key.pem"))?;
        }
        server.serve()?;
        Ok(server)
    }

    fn serve(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--memory", "256MiB", "--segment"]);
        command.arg(self.folder.join("segment"));
        let address = self.address.to_string();
        match self.transport {
            Transport::Tcp => command.args(["--listen", &address]),
            Transport::Tls => command
                .args(["--tls-listen", &address, "--tls-cert"])
                .arg(self.certificate())
                .arg("--tls-key")
                .arg(self.folder.join("key.pem")),
        };
        self.service = Some(package::Service::start(&mut command)?);
        package::await_connection(self.address)
    }

    pub(super) fn url(&self) -> String {
        match self.transport {
            Transport::Tcp => format!("redis://{}/0", self.address),
            Transport::Tls => format!("rediss://localhost:{}/0", self.address.port()),
        }
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// Runs a program of ours until it has done everything it wants, and kills the server when it says so.
    pub(super) fn converse(&mut self, command: &mut Command) -> Result<()> {
        let line = step::command_line(command);
        eprintln!("    $ {line}");
        let mut client = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start `{line}`"))?;
        let mut input = client.stdin.take().context("it has no standard input")?;
        let output = client.stdout.take().context("it has no standard output")?;
        let mut last = String::new();
        for said in BufReader::new(output).lines() {
            last = said?;
            if last == "restart" {
                // Its owner kills it.
                self.service = None;
                self.serve()?;
                // Whoever has ended says below why.
                let _ = input.write_all(b"\n");
            }
        }
        let status = client.wait()?;
        ensure!(status.success(), "`{line}` failed ({status})");
        ensure!(last.ends_with("done"), "`{line}` ended early: {last:?}");
        Ok(())
    }
}
