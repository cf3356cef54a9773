//! What the guest boots: the distribution's kernel, and the modules that it needs in the order of their loading.
//!
//! Kept in `target/vm/kernel-<version>-<layout>`, made once; afterwards nothing needs the network. A folder that is there
//! is whole: it is filled under another name first.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::step;

/// Changes when something else is kept.
const LAYOUT: u32 = 1;
/// The package that names the current kernel. Not the one for clouds, which has no soft-RoCE.
const KERNEL: &str = "linux-image-amd64";
/// What the guest needs beyond what is built in: its console and shares, a network interface, soft-RoCE and what
/// user-space verbs go through. The checksum is asked for by name, so nothing depends on it.
const MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "dummy",
    "crc32_generic",
    "ib_uverbs",
    "rdma_rxe",
];
/// How the stream of an xz file begins; the kernel's image carries one.
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// A kernel and its modules.
pub(super) struct Image {
    /// The kernel, decompressed: unpacking itself takes an emulated processor longer than all the rest.
    pub(super) kernel: PathBuf,
    /// The modules, in the order of their loading.
    pub(super) modules: Vec<PathBuf>,
}

/// The kept image, or a new one.
pub(super) fn prepare(cache: &Path) -> Result<Image> {
    install_tools()?;
    fs::create_dir_all(cache).with_context(|| format!("failed to make {}", cache.display()))?;
    let folder = match kept(cache)? {
        Some(folder) => folder,
        None => make(cache)?,
    };
    let mut modules: Vec<PathBuf> = fs::read_dir(folder.join("modules"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    modules.sort();
    Ok(Image {
        kernel: folder.join("vmlinux"),
        modules,
    })
}

fn install_tools() -> Result<()> {
    let mut command = Command::new("bash");
    command
        .current_dir(step::workspace_root())
        .args(["-c", "source scripts/setup.bash && need_vm_tools"]);
    let status = command.status().context("failed to start bash")?;
    if !status.success() {
        bail!("the virtual machine's tools are not there (need_vm_tools in scripts/setup.bash says what they are)");
    }
    Ok(())
}

fn kept(cache: &Path) -> Result<Option<PathBuf>> {
    let suffix = format!("-{LAYOUT}");
    let mut folders = Vec::new();
    for entry in fs::read_dir(cache)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("kernel-") && name.ends_with(&suffix) {
            folders.push(name);
        }
    }
    folders.sort();
    Ok(folders.pop().map(|name| cache.join(name)))
}

fn make(cache: &Path) -> Result<PathBuf> {
    let package = kernel_package()?;
    let version = package.trim_start_matches("linux-image-").to_owned();
    let part = cache.join("part");
    if part.exists() {
        fs::remove_dir_all(&part).context("failed to remove what an interrupted run left")?;
    }
    let root = part.join("root");
    fs::create_dir_all(&root)?;
    eprintln!("==> fetching {package} (about 70 MB, once)");
    download(&package, &part)?;
    let archive = fs::read_dir(&part)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get download left no file of {package}"))?;
    step::run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&root))?;

    let whole = part.join("whole");
    fs::create_dir_all(whole.join("modules"))?;
    let compressed = root.join(format!("boot/vmlinuz-{version}"));
    decompress(&compressed, &whole.join("vmlinux"))?;
    // Tools look in /lib, which is a link to /usr/lib on today's systems and none in what was unpacked.
    if !root.join("lib").exists() {
        symlink("usr/lib", root.join("lib"))?;
    }
    step::run(system("depmod").arg("--basedir").arg(&root).arg(&version))?;
    for (index, module) in load_order(&root, &version)?.iter().enumerate() {
        let name = module.file_name().context("a module is a file")?.to_string_lossy();
        fs::copy(module, whole.join(format!("modules/{index:02}-{name}")))?;
    }
    let folder = cache.join(format!("kernel-{version}-{LAYOUT}"));
    fs::rename(&whole, &folder)?;
    fs::remove_dir_all(&part)?;
    Ok(folder)
}

/// The package that [`KERNEL`] stands for today.
fn kernel_package() -> Result<String> {
    let ask = || -> Result<Option<String>> {
        let output = Command::new("apt-cache").args(["depends", KERNEL]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let name = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(name.filter(|name| name.starts_with("linux-image-")).map(str::to_owned))
    };
    if let Some(name) = ask()? {
        return Ok(name);
    }
    update_lists()?;
    ask()?.with_context(|| format!("apt knows no {KERNEL}; the virtual machine boots Debian's kernel for amd64"))
}

fn download(package: &str, folder: &Path) -> Result<()> {
    let fetch = || {
        let mut command = Command::new("apt-get");
        // Its own user could not write into the folder.
        command.args(["-q", "-o", "APT::Sandbox::User=root", "download", package]);
        command.current_dir(folder).stdout(Stdio::null());
        step::run(&mut command)
    };
    // The lists may name what the mirror no longer has.
    fetch().or_else(|_| update_lists().and_then(|()| fetch()))
}

fn update_lists() -> Result<()> {
    let mut command = Command::new("bash");
    command
        .current_dir(step::workspace_root())
        .args(["-c", "source scripts/setup.bash && update_package_lists"]);
    step::run(&mut command)
}

/// Takes the kernel proper out of the image that unpacks itself.
fn decompress(image: &Path, target: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("failed to read {}", image.display()))?;
    let at = bytes.windows(XZ_MAGIC.len()).position(|window| window == XZ_MAGIC);
    let at = at.with_context(|| format!("{} carries no xz stream; another kernel is needed", image.display()))?;
    let stream = target.with_extension("xz");
    fs::write(&stream, &bytes[at..])?;
    let output = fs::File::create(target)?;
    // What follows the stream is not its business.
    let mut command = Command::new("xz");
    command.args(["--decompress", "--stdout", "--single-stream", "--quiet", "--quiet"]);
    command.stdin(fs::File::open(&stream)?).stdout(output);
    command.status().context("failed to start xz")?;
    fs::remove_file(&stream)?;
    let start = fs::read(target)?.get(..4).map(<[u8]>::to_vec);
    if start.as_deref() != Some(b"\x7fELF") {
        bail!("{} does not unpack to a kernel", image.display());
    }
    Ok(())
}

/// A program of the administrator, whose folder is not in everybody's PATH.
fn system(program: &str) -> Command {
    let folders = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(program));
    let found = folders.iter().find(|path| path.exists());
    Command::new(found.map_or(Path::new(program), PathBuf::as_path))
}

/// The files of [`MODULES`] and of what they depend on, each after what it depends on.
fn load_order(root: &Path, version: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        let mut command = system("modprobe");
        command.arg("--dirname").arg(root);
        command.args(["--set-version", version, "--show-depends", module]);
        let output = command.output().context("failed to start modprobe")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("the kernel {version} has no module {module}: {}", said.trim());
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // `insmod PATH PARAMETERS`, or `builtin NAME`.
            let mut words = line.split_whitespace();
            if let (Some("insmod"), Some(path)) = (words.next(), words.next()) {
                let path = PathBuf::from(path);
                if !files.contains(&path) {
                    files.push(path);
                }
            }
        }
    }
    Ok(files)
}
