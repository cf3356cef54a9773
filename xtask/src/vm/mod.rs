//! `cargo xtask vm`: runs a command in a small virtual machine that has an RDMA device.
//!
//! The device is soft-RoCE, which speaks the real verbs over an ordinary network interface and needs a kernel module
//! that few machines have loaded. So the guest boots the distribution's kernel (`image`) and sees the host's programs
//! and this workspace through read-only shares (`guest`): what was built here runs there unchanged. Nothing of the host
//! changes, and no hardware virtualisation is needed.
//!
//! It shows whether something works, not how fast it is: the processor is emulated.

mod guest;
mod image;
pub(crate) mod suites;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::step;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// After so many seconds the machine is switched off and the command has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Processors of the machine
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    cpus: u32,
    /// Memory of the machine in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1536)]
    memory: u32,
    /// One more folder that the command may read, at the same path; /usr, the workspace and the build folder are there
    #[arg(long, value_name = "FOLDER")]
    share: Vec<PathBuf>,
    /// What to run there, found as it would be here; a shell if not given
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where kernel, modules and the last run's console are kept.
fn cache() -> PathBuf {
    step::workspace_root().join("target/vm")
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: 600,
            cpus: 2,
            memory: 1536,
            share: Vec::new(),
            command: Vec::new(),
        }
    }
}

/// Boots the machine and runs the command.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.cpus == 0 || options.memory < 256 || options.timeout == 0 {
        bail!("the machine needs at least one processor, 256 MiB of memory and a second of time");
    }
    let image = image::prepare(&cache())?;
    let order = guest::Order {
        command: &options.command,
        shares: guest::shares(&options.share)?,
        cpus: options.cpus,
        memory_mib: options.memory,
        timeout: Duration::from_secs(options.timeout),
    };
    let status = guest::run(&image, &cache(), &order)?;
    if status != 0 {
        eprintln!("xtask: the command ended in the virtual machine with status {status}");
    }
    Ok(ExitCode::from(status))
}
