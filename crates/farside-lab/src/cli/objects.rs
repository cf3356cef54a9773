//! `farside-lab bench objects`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use farside_lock::LockKind;

use super::{Printer, StageArgs, parse_lock};
use crate::error::BenchError;
use crate::measure_objects;
use crate::objects::{ObjectProgram, Requests};
use crate::progress::Progress;
use crate::workload::{ObjectWorkload, Trace};

/// How many clients share a compute node unless something else is said: those of a core (DecLock, section 6.1).
const CLIENTS_PER_COMPUTE_NODE: u64 = 16;

/// What `bench objects` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct ObjectsArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Locks to measure, by name
    #[arg(long, value_delimiter = ',', value_parser = parse_lock, required = true)]
    lock: Vec<LockKind>,
    /// Number of clients
    #[arg(long, default_value_t = 1)]
    clients: u64,
    /// Number of compute nodes that they run on; threads on a real fabric [default: 16 clients each; one per core]
    #[arg(long)]
    cns: Option<u64>,
    /// The workload, which also sets the sizes of objects: twitter-small, twitter-large
    #[arg(long, value_parser = ObjectWorkload::by_name, default_value = "twitter-small")]
    workload: ObjectWorkload,
    /// Number of objects
    #[arg(long, default_value_t = 100_000)]
    objects: u64,
    /// How much more popular some objects are than others; 0 is uniform [default: 1, that of the workload]
    #[arg(long)]
    theta: Option<f64>,
    /// A file of requests, whose lines clients take in turn: timestamp,key,key size,value size,client,operation,TTL; may be
    /// compressed with zstd
    #[arg(long, conflicts_with_all = ["workload", "objects", "theta"])]
    trace: Option<PathBuf>,
    /// Number of lines of the file to read
    #[arg(long, default_value_t = 10_000_000, requires = "trace", value_parser = clap::value_parser!(u64).range(1..))]
    lines: u64,
}

impl ObjectsArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let setting = self.stage.setting(self.clients, self.cns, CLIENTS_PER_COMPUTE_NODE);
        setting.check()?;
        let requests = match &self.trace {
            Some(path) => Requests::Traced(Arc::new(Trace::read(path, self.lines)?)),
            None => Requests::Drawn {
                workload: self.workload,
                objects: self.objects,
                theta: self.theta.unwrap_or(self.workload.theta),
            },
        };
        let mut printer = Printer::new(self.stage.json);
        for kind in self.lock {
            let program = ObjectProgram::new(Some(kind), requests.clone(), &setting)?;
            let progress = Progress::new(100, kind.name());
            let report = measure_objects(&program, &setting, &mut None, &progress)?;
            drop(progress);
            printer.print(&report);
        }
        Ok(())
    }
}
