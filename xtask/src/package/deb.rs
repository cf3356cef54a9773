//! The Debian package: a folder as it will be on the machine, and what dpkg wants to know of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};

use super::{architecture, remade};
use crate::step;

/// Builds the package from a program and the files that are made from its arguments; returns where it is.
pub(super) fn build(program: &Path, files: &Path, out: &Path) -> Result<PathBuf> {
    let sources = step::workspace_root().join("packaging");
    let root = out.join("root");
    remade(&root)?;
    let place = |from: &Path, to: &str, mode: u32| place(from, &root.join(to), mode);

    place(program, "usr/bin/farside", 0o755)?;
    step::run(Command::new("strip").arg(root.join("usr/bin/farside")))?;
    for unit in entries(&sources.join("systemd"))? {
        place(&unit, &format!("usr/lib/systemd/system/{}", name_of(&unit)?), 0o644)?;
    }
    place(&files.join("farside.toml"), "etc/farside/farside.toml", 0o644)?;
    for page in entries(&files.join("man1"))? {
        let target = format!("usr/share/man/man1/{}", name_of(&page)?);
        place(&page, &target, 0o644)?;
        // Without the time, so that the same sources make the same package.
        step::run(Command::new("gzip").args(["-9", "-n"]).arg(root.join(target)))?;
    }
    let shells = [
        ("bash/farside.bash", "usr/share/bash-completion/completions/farside"),
        ("fish/farside.fish", "usr/share/fish/vendor_completions.d/farside.fish"),
        ("zsh/_farside", "usr/share/zsh/vendor-completions/_farside"),
    ];
    for (from, to) in shells {
        place(&files.join(from), to, 0o644)?;
    }
    place(
        &step::workspace_root().join("LICENSE"),
        "usr/share/doc/farside/copyright",
        0o644,
    )?;

    let architecture = architecture()?;
    let version = env!("CARGO_PKG_VERSION");
    let control = fs::read_to_string(sources.join("debian/control"))?
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@KILOBYTES@", &(bytes(&root)? / 1024).to_string())
        .replace("@GLIBC@", &needed_glibc(&root.join("usr/bin/farside"))?);
    fs::create_dir(root.join("DEBIAN"))?;
    fs::write(root.join("DEBIAN/control"), control)?;
    place(&sources.join("debian/conffiles"), "DEBIAN/conffiles", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        place(&sources.join("debian").join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    let package = out.join(format!("farside_{version}_{}.deb", architecture));
    step::run(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([&root, &package]),
    )?;
    Ok(package)
}

/// Copies a file; folders on the way are made, open to all.
pub(super) fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let context = || format!("failed to copy {} to {}", from.display(), to.display());
    let folder = to.parent().with_context(context)?;
    fs::create_dir_all(folder).with_context(context)?;
    fs::copy(from, to).with_context(context)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(context)
}

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("failed to read {}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        entries.push(entry.with_context(context)?.path());
    }
    entries.sort();
    Ok(entries)
}

fn name_of(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.with_context(|| format!("{} has no name", path.display()))
}

/// Bytes of all files in a folder.
fn bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in entries(folder)? {
        sum += if entry.is_dir() {
            bytes(&entry)?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(sum)
}

/// The oldest C library with every symbol that a program asks it for.
fn needed_glibc(program: &Path) -> Result<String> {
    let image = fs::read(program)?;
    let file = object::File::parse(&*image)?;
    let names = file.section_by_name(".dynstr").context("the program has no .dynstr")?;
    let versions = names.data()?.split(|&byte| byte == 0).filter_map(glibc_version);
    let newest = versions.max().context("the program asks the C library for nothing")?;
    Ok(newest.map(|number| number.to_string()).join("."))
}

/// What `GLIBC_2.34` says.
fn glibc_version(name: &[u8]) -> Option<[u32; 2]> {
    let version = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??])
}

/// What a command prints.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let line = step::command_line(command);
    let output = command.output().with_context(|| format!("failed to start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_c_library_are_compared_as_numbers() {
        let names: [&[u8]; 5] = [b"GLIBC_2.9", b"GLIBC_2.34", b"GLIBC_2.2.5", b"GLIBC_PRIVATE", b"malloc"];
        assert_eq!(
            names.map(glibc_version),
            [Some([2, 9]), Some([2, 34]), Some([2, 2]), None, None]
        );
    }
}
