//! What users do with packages, without installing them: unpack one, start its services, complete a command, read a page; start
//! a container.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};

use super::remade;
use crate::step;

/// How often somebody looks whether a service answers, and for how long at most.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 600;
/// Where segments lie, and where services listen, as the package has it.
const STATE: &str = "/var/lib/farside";
const REDIS: &str = "127.0.0.1:6380";
const NODE: &str = "127.0.0.1:7380";

pub(super) fn package(package: &Path, out: &Path) -> Result<()> {
    let root = out.join("unpacked");
    remade(&root)?;
    step::run(Command::new("dpkg-deb").arg("-x").args([package, &root]))?;
    let program = root.join("usr/bin/farside");
    step::run(Command::new(&program).arg("--version"))?;
    services(&root)?;
    completions(&root)?;
    pages(&root)
}

/// Starts what a container of an image starts, in its root and in a process number namespace of its own; and asks skopeo what it
/// thinks of the image, where there is one.
pub(super) fn image(image: &Path, root: &Path) -> Result<()> {
    let address = free_address()?;
    let mut command = contained(root);
    command.args(["serve", "--memory", "64MiB", "--listen", &address.to_string()]);
    let container = Service::start(&mut command)?;
    await_connection(address)?;
    ask(address, "SET key value\r\n", "+OK\r\n")?;
    // What it started goes with it.
    drop(container);
    let inspected = Command::new("skopeo")
        .arg("inspect")
        .arg(format!("oci-archive:{}", image.display()))
        .output();
    match inspected {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("    there is no skopeo here: it is not asked about the image");
        }
        inspected => {
            let output = inspected?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "skopeo refuses {}: {errors}", image.display());
        }
    }
    Ok(())
}

/// The program as a container runs it: in a root and in a process number namespace of its own, but in the network of this machine.
pub(super) fn contained(root: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !is_superuser() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args([
            "--pid",
            "--fork",
            "--mount",
            "--kill-child",
            "--mount-proc=/proc",
            "--root",
        ])
        .arg(root)
        .arg("/usr/bin/farside");
    command
}

/// Who is not has to become the superuser of a user namespace, which may make the others; who is may be where there can be none.
pub(crate) fn is_superuser() -> bool {
    procfs::process::Process::myself().is_ok_and(|own| own.uid().is_ok_and(|uid| uid == 0))
}

/// Starts what the services start, with the settings of the package, but for places that are free.
fn services(root: &Path) -> Result<()> {
    let state = root.join("state");
    fs::create_dir(&state)?;
    let [redis, node] = [free_address()?, free_address()?];
    let file = root.join("etc/farside/farside.toml");
    let settings = fs::read_to_string(&file)?
        .replace(STATE, state.to_str().context("the folder has a name that is no text")?)
        .replace(REDIS, &redis.to_string())
        .replace(NODE, &node.to_string())
        .replace("1GiB", "64MiB");
    fs::write(&file, settings)?;
    step::run(
        Command::new(root.join("usr/bin/farside"))
            .args(["config", "check", "--config"])
            .arg(&file),
    )?;
    let units = root.join("usr/lib/systemd/system");
    for names in [&["farside"][..], &["farside-node", "farside-gateway"]] {
        let mut running = Vec::new();
        for name in names {
            let unit = fs::read_to_string(units.join(format!("{name}.service")))?;
            let mut command = started_by(&unit, root).with_context(|| format!("{name}.service"))?;
            running.push(Service::start(&mut command)?);
            let address = if *name == "farside-node" { node } else { redis };
            await_connection(address).with_context(|| format!("{name}.service"))?;
        }
        ask(redis, "SET key value\r\n", "+OK\r\n")?;
        ask(redis, "GET key\r\n", "$5\r\nvalue\r\n")?;
        while let Some(service) = running.pop() {
            service.stop()?;
        }
    }
    Ok(())
}

/// The command of a unit, with the program and the settings that were unpacked.
fn started_by(unit: &str, root: &Path) -> Result<Command> {
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let mut words = line.context("it starts nothing")?.split(' ');
    let program = words.next().and_then(|path| path.strip_prefix('/'));
    let mut command = Command::new(root.join(program.context("it names its program by no absolute path")?));
    for word in words {
        match word.strip_prefix('/') {
            None => command.arg(word),
            Some(path) => command.arg(root.join(path)),
        };
    }
    Ok(command)
}

/// A service that ends with its owner.
pub(crate) struct Service(Child);

impl Service {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        eprintln!("    $ {}", step::command_line(command));
        Ok(Self(command.stdout(Stdio::null()).spawn()?))
    }

    /// Stops it as systemd does.
    fn stop(mut self) -> Result<()> {
        // Of the shell's: not every machine has a program of this name.
        step::run(Command::new("bash").args(["-c", &format!("kill {}", self.0.id())]))?;
        let status = self.0.wait()?;
        ensure!(status.success(), "a service that was told to stop: {status}");
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address where nobody listened a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[expect(clippy::disallowed_methods, reason = "there is nothing else to do meanwhile")]
pub(crate) fn await_connection(address: SocketAddr) -> Result<()> {
    for _ in 0..LOOKS {
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    bail!("nobody listens on {address}")
}

pub(crate) fn ask(address: SocketAddr, request: &str, expected: &str) -> Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(request.as_bytes())?;
    let mut answer = vec![0; expected.len()];
    connection.read_exact(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    ensure!(answer == expected, "{request:?} was answered with {answer:?}");
    Ok(())
}

/// What bash makes of a beginning.
fn completions(root: &Path) -> Result<()> {
    let script = "source \"$1\"; COMP_WORDS=(farside ser); COMP_CWORD=1; COMP_LINE='farside ser'; \
                  _farside farside ser farside; [ \"${COMPREPLY[*]}\" = serve ]";
    let file = root.join("usr/share/bash-completion/completions/farside");
    step::run(Command::new("bash").args(["-c", script, "bash"]).arg(file))
}

/// Man pages that man has nothing to say about, where there is one.
fn pages(root: &Path) -> Result<()> {
    let folder = root.join("usr/share/man/man1");
    for page in fs::read_dir(&folder)? {
        let mut command = Command::new("man");
        command.args(["--warnings", "-l", "-Tutf8", "-Z"]).arg(page?.path());
        let output = match command.stdin(Stdio::null()).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("    there is no man here: pages are not looked at");
                return Ok(());
            }
            output => output?,
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && errors.is_empty(),
            "`{}`: {errors}",
            step::command_line(&command)
        );
    }
    Ok(())
}
