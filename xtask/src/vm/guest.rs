//! One run of the virtual machine: what it finds when it boots, how it is started, what it says at the end.
//!
//! The guest's files are an initramfs with `init`, busybox and the modules; everything else are folders of the host,
//! shared read-only at the same paths. One folder it may write, `/out`: there it finds the command and leaves the status.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::image::Image;
use crate::step;

/// The first program that the guest runs.
const INIT: &str = include_str!("init");
/// Settings of the host that its programs want to find.
const SETTINGS: [&str; 7] = [
    "passwd",
    "group",
    "hosts",
    "nsswitch.conf",
    "ld.so.cache",
    "alternatives",
    "libibverbs.d",
];
/// What is passed on to the command.
const VARIABLES: [&str; 4] = ["FARSIDE_", "RUST_", "PROPTEST_", "NO_COLOR"];

/// What to run, and where.
pub(super) struct Order<'a> {
    pub(super) command: &'a [String],
    pub(super) shares: Vec<PathBuf>,
    pub(super) cpus: u32,
    pub(super) memory_mib: u32,
    pub(super) timeout: Duration,
}

/// The folders that the guest sees: no one inside another, parents first.
pub(super) fn shares(more: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut folders = vec![PathBuf::from("/usr"), step::workspace_root().to_path_buf()];
    if let Some(build) = std::env::var_os("CARGO_TARGET_DIR") {
        folders.push(step::workspace_root().join(build));
    }
    folders.extend(more.iter().cloned());
    let mut seen: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("cannot share {}", folder.display()))?;
        if !folder.is_dir() || folder == Path::new("/") {
            bail!("cannot share {}: it is not a folder below the root", folder.display());
        }
        if !seen.iter().any(|outer| folder.starts_with(outer)) {
            seen.retain(|inner| !inner.starts_with(&folder));
            seen.push(folder);
        }
    }
    Ok(seen)
}

/// Boots the machine, waits for it, and returns the command's status.
pub(super) fn run(image: &Image, cache: &Path, order: &Order<'_>) -> Result<u8> {
    let folder = cache.join(format!("run-{}", std::process::id()));
    let outcome = make_files(image, &folder, order).and_then(|()| boot(image, &folder, order));
    let console = folder.join("console");
    if console.exists() {
        fs::copy(&console, cache.join("console.log")).context("failed to keep the console's output")?;
    }
    fs::remove_dir_all(&folder).context("failed to remove the run's files")?;
    outcome
}

fn make_files(image: &Image, folder: &Path, order: &Order<'_>) -> Result<()> {
    let root = folder.join("root");
    for made in [folder.join("out"), root.join("modules"), root.join("etc")] {
        fs::create_dir_all(&made).with_context(|| format!("failed to make {}", made.display()))?;
    }
    fs::write(folder.join("out/command"), script(order.command)?)?;
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    fs::copy("/usr/bin/busybox", root.join("busybox"))
        .or_else(|_| fs::copy("/bin/busybox", root.join("busybox")))
        .context("failed to copy busybox")?;
    for module in &image.modules {
        let name = module.file_name().context("a module is a file")?;
        fs::copy(module, root.join("modules").join(name))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        let link = fs::read_link(Path::new("/").join(name));
        symlink(
            link.with_context(|| format!("/{name} is no link into /usr"))?,
            root.join(name),
        )?;
    }
    for name in SETTINGS {
        let source = Path::new("/etc").join(name);
        if source.exists() {
            step_quietly(Command::new("cp").arg("-a").arg(&source).arg(root.join("etc")))?;
        }
    }
    let mounts: String = order
        .shares
        .iter()
        .enumerate()
        .map(|(index, path)| format!("share{index} {}\n", path.display()))
        .collect();
    fs::write(root.join("shares"), mounts)?;
    step_quietly(Command::new("bash").current_dir(&root).args([
        "-c",
        "find . -print0 | cpio --null --create --format=newc --quiet >../initramfs",
    ]))
}

fn step_quietly(command: &mut Command) -> Result<()> {
    let line = step::command_line(command);
    let status = command.status().with_context(|| format!("failed to start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// The command as a shell script, with the folder and the variables that it would have here.
fn script(command: &[String]) -> Result<String> {
    let here = std::env::current_dir().context("no current folder")?;
    let mut text = format!("cd {} 2>/dev/null || cd /\n", step::quoted(&here.to_string_lossy()));
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if VARIABLES.iter().any(|start| name.starts_with(start)) {
            text.push_str(&format!("export {name}={}\n", step::quoted(&value)));
        }
    }
    let words: Vec<String> = command.iter().map(|word| step::quoted(word)).collect();
    let words = if words.is_empty() {
        "bash".to_owned()
    } else {
        words.join(" ")
    };
    text.push_str(&format!("exec {words}\n"));
    Ok(text)
}

fn boot(image: &Image, folder: &Path, order: &Order<'_>) -> Result<u8> {
    let mut qemu = qemu(image, folder, order);
    if !order.command.is_empty() {
        qemu.stdin(Stdio::null());
    }
    let mut child = qemu.spawn().context("failed to start qemu-system-x86_64")?;
    let is_late = !wait(&mut child, order.timeout)?;
    let status = fs::read_to_string(folder.join("out/status")).unwrap_or_default();
    match status.trim().parse() {
        Ok(status) => Ok(status),
        Err(_) if is_late => bail!(
            "the command did not end within {} s, and the virtual machine was switched off",
            order.timeout.as_secs()
        ),
        Err(_) => bail!(
            "the virtual machine ended without the command's status; its console said last:\n{}",
            last_lines(&folder.join("console"))
        ),
    }
}

fn qemu(image: &Image, folder: &Path, order: &Order<'_>) -> Command {
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-machine", "q35,accel=tcg", "-cpu", "max"])
        .args(["-smp", &order.cpus.to_string(), "-m", &order.memory_mib.to_string()])
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(folder.join("initramfs"))
        // An emulated timer ticks too late for the kernel's test of it when the host is busy.
        .args(["-append", "console=ttyS0 panic=-1 quiet no_timer_check"])
        .arg("-serial")
        .arg(format!("file:{}", folder.join("console").display()))
        .args(["-chardev", "stdio,id=command,signal=off"])
        .args(["-device", "virtio-serial-pci", "-device", "virtconsole,chardev=command"]);
    let mut share = |tag: &str, path: &Path, access: &str| {
        let path = path.display().to_string().replace(',', ",,");
        qemu.arg("-fsdev").arg(format!(
            "local,id={tag},path={path},security_model=none,multidevs=remap{access}"
        ));
        qemu.arg("-device")
            .arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
    };
    for (index, path) in order.shares.iter().enumerate() {
        share(&format!("share{index}"), path, ",readonly=on");
    }
    share("out", &folder.join("out"), "");
    qemu
}

/// Waits for the machine to switch itself off. Returns whether it did so in time; after this it is off.
#[expect(clippy::disallowed_methods, reason = "a command of the developer waits in real time")]
fn wait(child: &mut Child, timeout: Duration) -> Result<bool> {
    let start = Instant::now();
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if start.elapsed() >= timeout {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn last_lines(path: &Path) -> String {
    const LINES: usize = 20;
    let mut bytes = Vec::new();
    if let Ok(mut file) = fs::File::open(path) {
        // Whatever of it can be read helps.
        let _ = file.read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_lies_inside_another() {
        let outer = tempfile::tempdir().expect("a folder");
        let inner = outer.path().join("inner");
        fs::create_dir(&inner).expect("a folder");
        let outer = outer.path().canonicalize().expect("it is there");
        let given = [inner, outer.clone(), PathBuf::from("/usr/bin")];
        let found = shares(&given).expect("all of them are folders");
        assert!(found.contains(&outer) && found.contains(&PathBuf::from("/usr")));
        for one in &found {
            let inside = found.iter().filter(|other| one.starts_with(other)).count();
            assert_eq!(inside, 1, "{} is shared once", one.display());
        }
        shares(&[PathBuf::from("/")]).expect_err("not the root");
        shares(&[PathBuf::from("/does/not/exist")]).expect_err("not what is not there");
    }

    #[test]
    fn words_of_the_command_stay_words() {
        let command = ["echo", "two words", "it's"].map(str::to_owned);
        let text = script(&command).expect("there is a current folder");
        assert!(text.ends_with("exec echo 'two words' 'it'\\''s'\n"), "{text}");
        assert!(script(&[]).expect("a script").ends_with("exec bash\n"));
    }
}
