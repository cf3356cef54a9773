//! `--metrics`: where Prometheus may ask, and whoever wants to know whether clients are served; and who answers.
//!
//! The same address has the [console](crate::console). A thread of its own answers, so that a scrape never waits for a command, nor a command for a scrape.

mod http;
mod node;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;

use clap::Args;
use farside_fabric::LocalFuture;
use farside_gateway::{Observer, Report, metrics};

pub(crate) use self::node::{NodeSource, Pulse};
use crate::{listen, scalar};
use farside_cli::Failure;

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// The address of the console, /metrics for Prometheus, /healthz and /readyz, such as 127.0.0.1:9121
    #[arg(long, value_name = "HOST:PORT", value_parser = scalar::address)]
    metrics: Option<SocketAddr>,
    /// Allow --metrics on an address that other machines can reach; numbers need no password, keys and clients do
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
}

/// What is to be told at each scrape. Not a type parameter of those who answer: HTTP is compiled once.
pub(crate) trait Source: Send + 'static {
    /// The families of metrics as they are now.
    fn families(&self) -> LocalFuture<'_, Vec<metrics::Family>>;

    /// Whether clients are served; if not, why, in one line.
    fn readiness(&self) -> LocalFuture<'_, Result<(), String>>;

    /// Everything there is to say now; of a memory node, what its memory is used for.
    fn report(&self) -> LocalFuture<'_, Report>;

    /// A connection, as a client's; `None` where there are no clients.
    fn connect(&self) -> Option<io::Result<UnixStream>>;

    /// Whether there are clients.
    fn serves_clients(&self) -> bool;
}

impl Source for Observer {
    fn families(&self) -> LocalFuture<'_, Vec<metrics::Family>> {
        Box::pin(async { metrics::gateway(&self.report().await) })
    }

    fn readiness(&self) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async { Observer::readiness(self).await.map_err(|why| why.to_string()) })
    }

    fn report(&self) -> LocalFuture<'_, Report> {
        Box::pin(Observer::report(self))
    }

    fn connect(&self) -> Option<io::Result<UnixStream>> {
        Some(Observer::connect(self))
    }

    fn serves_clients(&self) -> bool {
        true
    }
}

/// The port for metrics, if there shall be one.
pub(crate) struct Metrics(Option<TcpListener>);

impl MetricsArgs {
    /// Takes the port.
    pub(crate) fn bind(&self) -> Result<Metrics, Failure> {
        let Some(address) = self.metrics else {
            return Ok(Metrics(None));
        };
        if !address.ip().to_canonical().is_loopback() && !self.metrics_public {
            return Err(Failure::usage(format!(
                "{address} can be reached from other machines, and metrics have no password: choose 127.0.0.1 for \
                 --metrics, or add --metrics-public"
            )));
        }
        Ok(Metrics(Some(listen::bind(address, "--metrics")?)))
    }
}

impl Metrics {
    /// Answers from now on as long as the process lives, and says where.
    pub(crate) fn serve(self, source: impl Source) -> Result<(), Failure> {
        let Some(listener) = self.0 else { return Ok(()) };
        let address = listener.local_addr().map_err(Failure::runtime)?;
        http::start(listener, Box::new(source))
            .map_err(|error| Failure::runtime(format!("no thread for metrics: {error}")))?;
        println!("metrics: http://{address}/metrics");
        println!("console: http://{address}/");
        tracing::info!(%address, "metrics can be scraped");
        Ok(())
    }
}
