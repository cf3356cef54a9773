//! `farside-lab trace`: files of requests.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::exit;
use crate::error::BenchError;
use crate::workload::ObjectWorkload;

/// Files of requests, for `bench objects --trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Write a trace with the sizes, the popularity and the times to live of a workload
    Generate(GenerateArgs),
}

#[derive(Args, Clone, Debug)]
struct GenerateArgs {
    /// The workload: twitter-small, twitter-large
    #[arg(long, value_parser = ObjectWorkload::by_name, default_value = "twitter-small")]
    workload: ObjectWorkload,
    /// Number of objects
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    objects: u64,
    /// Number of requests
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// The seed of who asks for what
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file
    #[arg(long)]
    out: PathBuf,
}

impl TraceArgs {
    /// Writes what was asked for.
    #[must_use]
    pub fn run(self) -> ExitCode {
        exit(match self.what {
            What::Generate(args) => args.run(),
        })
    }
}

impl GenerateArgs {
    fn run(self) -> Result<(), BenchError> {
        self.write().map_err(|error| BenchError::Output {
            reason: error.to_string(),
            path: self.out,
        })
    }

    fn write(&self) -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(&self.out)?);
        for line in self.workload.trace(self.objects, self.operations, self.seed) {
            writeln!(file, "{line}")?;
        }
        file.flush()
    }
}
