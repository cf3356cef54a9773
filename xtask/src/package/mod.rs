//! `cargo xtask package`: a Debian package of the store, with services, man pages and shell completions, and a container image.
//!
//! What they are made of lies in `packaging`, the program is the one that `./run` starts, and man pages, completions and the
//! file of settings are made from its arguments (`crates/farside/src/package.rs`). `--check` then does with them what their
//! users do, as far as that leaves this machine as it is: it unpacks them, starts what each service and a container start, and
//! completes a command. So it does with
//! what `packaging` has for Compose, Kubernetes, Prometheus and Grafana.

mod check;
mod deb;
mod image;
mod recipes;
mod standalone;
mod tls;

pub(crate) use self::check::{Service, ask, await_connection, free_address, is_superuser};
pub(crate) use self::tls::certify;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::test::Program;
use crate::{step, weight};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also try what is in the package
    #[arg(long)]
    check: bool,
    /// In their place a program that is linked statically, in a tar file
    #[arg(long = "static")]
    is_static: bool,
    /// Where packages go
    #[arg(long, value_name = "FOLDER", default_value = "target/package")]
    out: PathBuf,
}

impl Options {
    /// What CI wants.
    pub(crate) fn checked() -> Self {
        Self {
            check: true,
            is_static: false,
            out: PathBuf::from("target/package"),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let out = step::workspace_root().join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| format!("failed to make {}", out.display()))?;
    if options.is_static {
        let archive = standalone::build(&out)?;
        if options.check {
            standalone::check(&archive, &out)?;
        }
        println!("{}", archive.display());
        return Ok(());
    }
    let program = weight::release_program()?;
    let files = out.join("files");
    remade(&files)?;
    write_files(&files)?;
    let package = deb::build(&program, &files, &out)?;
    let (image, root) = image::build(&program, &out)?;
    if options.check {
        check::package(&package, &out)?;
        check::image(&image, &root)?;
        recipes::check(&root, &out)?;
    }
    println!("{}\n{}", package.display(), image.display());
    Ok(())
}

/// This machine's, as packages and images have it.
fn architecture() -> Result<String> {
    let name = deb::output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(name.trim().to_owned())
}

/// Man pages, completions and the file of settings.
fn write_files(folder: &Path) -> Result<()> {
    let programs = Program::build(&["--bin", "farside"])?;
    let program = Program::find(&programs, "farside", "farside")?;
    step::run(
        program
            .command()
            .env("FARSIDE_PACKAGE_FILES", folder)
            .args(["--quiet", "package::"]),
    )
}

/// An empty folder.
pub(crate) fn remade(folder: &Path) -> Result<()> {
    let context = || format!("failed to make {} anew", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(context)?;
    }
    std::fs::create_dir_all(folder).with_context(context)
}
