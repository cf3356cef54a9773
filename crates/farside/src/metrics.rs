//! `--metrics`: where Prometheus may ask, browsers find the console, and whoever likes asks whether clients are served.

use std::net::{SocketAddr, TcpListener};

use clap::Args;
use farside_cli::{Failure, scalar};
use farside_watch::Source;

use crate::listen;

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// The address of the console, /metrics for Prometheus, /healthz and /readyz, such as 127.0.0.1:9121
    #[arg(long, value_name = "HOST:PORT", value_parser = scalar::address)]
    metrics: Option<SocketAddr>,
    /// Allow --metrics on an address that other machines can reach; numbers need no password, keys and clients do
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
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
        farside_watch::serve(listener, source)
            .map_err(|error| Failure::runtime(format!("no thread for metrics: {error}")))?;
        println!("metrics: http://{address}/metrics");
        println!("console: http://{address}/");
        tracing::info!(%address, "metrics can be scraped");
        Ok(())
    }
}
