//! A container image of the store, from nothing: the program, the libraries that it is linked to, and no shell; in the layout of the
//! Open Container Initiative, in one file that `podman load`, `skopeo` and others read.
//!
//! Needs no container tools and no registry: an image is a few JSON documents and a tar file, which name each other by their SHA-256.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::deb::{output, place};
use super::{architecture, remade};
use crate::step;

/// Whose processes run in a container: nobody of the machine.
const USER: u32 = 10_001;
/// Where the segment lies, which a volume keeps.
const DATA: &str = "data";
/// Where everything is in the layout.
const BLOBS: &str = "blobs/sha256";

/// Builds the image of a program; returns the file, and the folder that a container of it has as its root.
pub(super) fn build(program: &Path, out: &Path) -> Result<(PathBuf, PathBuf)> {
    let root = out.join("image-root");
    remade(&root)?;
    let own = root.join("usr/bin/farside");
    place(program, &own, 0o755)?;
    step::run(Command::new("strip").arg(&own))?;
    for library in libraries(&output(Command::new("ldd").arg(&own))?) {
        // Whatever it is a link to, under the name by which it is asked for.
        place(Path::new(&library), &root.join(library.trim_start_matches('/')), 0o755)?;
    }
    let copyright = root.join("usr/share/doc/farside/copyright");
    place(&step::workspace_root().join("LICENSE"), &copyright, 0o644)?;
    fs::create_dir(root.join("etc"))?;
    fs::write(root.join("etc/passwd"), format!("farside:x:{USER}:{USER}::/{DATA}:/\n"))?;
    fs::create_dir(root.join("proc"))?;

    let layout = out.join("image");
    remade(&layout)?;
    fs::create_dir_all(layout.join(BLOBS))?;
    let layer = out.join("layer.tar");
    pack(&root, &layer, &["--create"], 0, &["etc", "lib64", "lib", "proc", "usr"])?;
    let data = out.join("image-data");
    remade(&data.join(DATA))?;
    pack(&data, &layer, &["--append"], USER, &[DATA])?;
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture()?);
    let layer = add(&layout, &layer, "application/vnd.oci.image.layer.v1.tar")?;
    let config = add_document(
        &layout,
        out,
        &config(&architecture, &layer),
        "application/vnd.oci.image.config.v1+json",
    )?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = add_document(&layout, out, &manifest, "application/vnd.oci.image.manifest.v1+json")?;
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": format!("farside:{version}")});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(
        layout.join("oci-layout"),
        json!({"imageLayoutVersion": "1.0.0"}).to_string(),
    )?;

    let image = out.join(format!("farside_{version}_{architecture}.oci.tar"));
    pack(
        &layout,
        &image,
        &["--create"],
        0,
        &["oci-layout", "index.json", "blobs"],
    )?;
    Ok((image, root))
}

/// What runs in a container, and how.
fn config(architecture: &str, layer: &Value) -> Value {
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/farside"],
            "Cmd": ["serve"],
            // Who starts a container may set others. Addresses beyond it want a password: FARSIDE_LISTEN=0.0.0.0:6380 and
            // FARSIDE_AUTH_FILE.
            "Env": [format!("FARSIDE_SEGMENT=/{DATA}/store"), "FARSIDE_MEMORY=1GiB"],
            "WorkingDir": format!("/{DATA}"),
            "Volumes": {format!("/{DATA}"): {}},
            "ExposedPorts": {"6380/tcp": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "farside",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        // Of a layer that is not compressed.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    })
}

/// The files that `ldd` names: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`, `/lib64/ld-linux-x86-64.so.2 (0x...)`.
fn libraries(listed: &str) -> Vec<String> {
    let words = listed.split_whitespace();
    words.filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// Packs those of some entries of a folder that are there, the same bytes whenever it is done.
fn pack(folder: &Path, archive: &Path, how: &[&str], owner: u32, entries: &[&str]) -> Result<()> {
    let there = entries.iter().filter(|entry| folder.join(entry).exists());
    step::run(
        Command::new("tar")
            .args(["--sort=name", "--mtime=@0", "--numeric-owner", "--format=ustar"])
            .args([format!("--owner={owner}"), format!("--group={owner}")])
            .args(how)
            .arg("--file")
            .arg(archive)
            .arg("--directory")
            .arg(folder)
            .args(there),
    )
}

/// Adds a file to a layout under its digest; returns what others say of it.
fn add(layout: &Path, file: &Path, kind: &str) -> Result<Value> {
    let sum = output(Command::new("sha256sum").arg(file))?;
    let digest = sum.split_whitespace().next().context("sha256sum says nothing")?;
    let bytes = fs::metadata(file)?.len();
    fs::rename(file, layout.join(BLOBS).join(digest))?;
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes}))
}

fn add_document(layout: &Path, out: &Path, document: &Value, kind: &str) -> Result<Value> {
    let file = out.join("document.json");
    fs::write(&file, document.to_string())?;
    add(layout, &file, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_names_are_files() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            libraries(listed),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }
}
