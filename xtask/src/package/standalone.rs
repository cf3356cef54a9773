//! The program for a machine with another C library, or none: linked statically, in a tar file.
//!
//! Dependencies are those of the release build; only the program itself is compiled and linked once more, with `crt-static`. It
//! finds hosts by `/etc/hosts` and DNS. What it cannot do is talk to RDMA devices, whose libraries are loaded when it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use object::{Object as _, ObjectSection as _};

use super::check::{Service, ask, await_connection, contained, free_address};
use super::deb::place;
use super::{remade, tls};
use crate::{step, weight};

/// A name that only `/etc/hosts` of the check knows.
const HOST: &str = "memory-node";

/// Builds it; returns the tar file.
pub(super) fn build(out: &Path) -> Result<PathBuf> {
    let mut command = step::cargo([
        "rustc",
        "--release",
        "--package",
        "farside",
        "--bin",
        "farside",
        "--target-dir",
    ]);
    command.arg(weight::target_directory()?);
    step::run(command.args(["--", "-C", "target-feature=+crt-static"]))?;
    let built = weight::target_directory()?.join("release/farside");
    let name = format!(
        "farside-{}-{}-linux-static",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let root = out.join("static-root");
    remade(&root)?;
    let program = root.join(&name).join("farside");
    place(&built, &program, 0o755)?;
    // The ordinary program takes its place again; it has not been touched.
    weight::release_program()?;
    step::run(Command::new("strip").arg(&program))?;
    ensure_alone(&program)?;
    place(
        &step::workspace_root().join("LICENSE"),
        &root.join(&name).join("LICENSE"),
        0o644,
    )?;
    let archive = out.join(format!("{name}.tar.gz"));
    step::run(
        Command::new("tar")
            .args([
                "--sort=name",
                "--mtime=@0",
                "--numeric-owner",
                "--owner=0",
                "--group=0",
                "--create",
                "--gzip",
                "--file",
            ])
            .arg(&archive)
            .arg("--directory")
            .arg(&root)
            .arg(&name),
    )?;
    Ok(archive)
}

/// It asks for no loader, so for no library.
fn ensure_alone(program: &Path) -> Result<()> {
    let image = fs::read(program)?;
    let file = object::File::parse(&*image)?;
    let loader = file
        .section_by_name(".interp")
        .and_then(|section| section.data().ok().map(<[u8]>::to_vec));
    ensure!(
        loader.is_none(),
        "{} is not static: it asks for {}",
        program.display(),
        String::from_utf8_lossy(&loader.unwrap_or_default())
    );
    Ok(())
}

/// Unpacks it into a root where nothing else is, and has it serve there: commands, TLS, and a memory node that is found by its name.
pub(super) fn check(archive: &Path, out: &Path) -> Result<()> {
    let root = out.join("static-check");
    remade(&root)?;
    step::run(
        Command::new("tar")
            .args(["--extract", "--strip-components", "1", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(&root),
    )?;
    place(&root.join("farside"), &root.join("usr/bin/farside"), 0o755)?;
    for folder in ["proc", "etc", "data"] {
        fs::create_dir(root.join(folder))?;
    }
    fs::write(root.join("etc/hosts"), format!("127.0.0.1 {HOST}\n"))?;
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| root.join("data").join(name));
    tls::certify(&[], &certificate, &key)?;

    let node = free_address()?;
    let mut command = contained(&root);
    command.args([
        "node",
        "--memory",
        "256MiB",
        "--segment",
        "/data/segment",
        "--listen",
        &node.to_string(),
    ]);
    let _node = Service::start(&mut command)?;
    await_connection(node)?;
    let (redis, tls_address) = (free_address()?, free_address()?);
    let mut command = contained(&root);
    command.args(["gateway", "--pool", &format!("tcp:{HOST}:{}", node.port())]);
    command.args(["--listen", &redis.to_string(), "--tls-listen", &tls_address.to_string()]);
    command.args(["--tls-cert", "/data/certificate.pem", "--tls-key", "/data/key.pem"]);
    let _gateway = Service::start(&mut command)?;
    await_connection(redis)?;
    ask(redis, "SET key value\r\n", "+OK\r\n")?;
    tls::ask(
        tls_address,
        &certificate,
        "GET key\r\nQUIT\r\n",
        "$5\r\nvalue\r\n+OK\r\n",
    )
}
