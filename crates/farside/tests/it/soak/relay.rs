//! A firewall between everybody: members of groups are reached, and reach etcd, through relays of the driver.
//!
//! On the path: a relay is what a member advertises; a thread of the driver moves the bytes.
//!
//! To cut a host off is what a DROP rule does: bytes to and from it are held back and arrive when it is let through again,
//! as TCP sends again what was lost; nobody is told that a connection is dead; a new one is accepted by the system, and nothing
//! is said. A member's own connections to other members go through the others' relays: whose a connection is says `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use procfs::process::{FDTarget, Process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Names who can be cut off.
pub(crate) type Host = usize;

const BUFFER_BYTES: usize = 128 << 10;

/// As much of a connection's beginning as tells whether another member has opened it: a magic number, a version, the length of a
/// secret, and what it is for (`farside-fabric/src/tcp/mirror/link.rs`).
const HEAD_BYTES: usize = 16;

fn is_of_member(head: &[u8]) -> bool {
    head.starts_with(b"FARMEMB\n") && head.ends_with(&1_u16.to_le_bytes())
}

/// The relays of a run, and who is cut off.
pub(crate) struct Firewall {
    runtime: Handle,
    shared: Arc<Shared>,
    /// The thread ends when this is dropped.
    _end: tokio::sync::oneshot::Sender<()>,
}

struct Shared {
    cut: watch::Sender<BTreeSet<Host>>,
    /// The processes that are hosts.
    processes: Mutex<BTreeMap<u32, Host>>,
}

/// Whose connections a relay takes.
#[derive(Clone, Copy)]
enum Callers {
    /// One host's.
    Of(Host),
    /// Anybody's.
    Anybody,
}

impl Firewall {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system has room for a loop");
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(ended));
        Self {
            runtime: handle,
            shared: Arc::new(Shared {
                cut: watch::Sender::new(BTreeSet::new()),
                processes: Mutex::default(),
            }),
            _end: end,
        }
    }

    /// Where anybody reaches `host`, which listens at `target`.
    pub(crate) fn relay_to(&self, host: Host, target: SocketAddr) -> SocketAddr {
        self.relay(Callers::Anybody, Some(host), target)
    }

    /// Where `host` alone reaches `target`, which is never cut off.
    pub(crate) fn relay_of(&self, host: Host, target: SocketAddr) -> SocketAddr {
        self.relay(Callers::Of(host), None, target)
    }

    fn relay(&self, callers: Callers, host: Option<Host>, target: SocketAddr) -> SocketAddr {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("it is bound");
        let (runtime, shared) = (self.runtime.clone(), self.shared.clone());
        self.runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("it does not block");
            loop {
                let Ok((stream, peer)) = listener.accept().await else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let shared = shared.clone();
                runtime.spawn(async move {
                    // It ends when a side resets it, or with the driver.
                    let _ = shared.attend(stream, peer, (callers, host), target).await;
                });
            }
        });
        address
    }

    /// Connections that this process opens are `host`'s.
    pub(crate) fn belongs(&self, process: u32, host: Host) {
        self.shared.processes().insert(process, host);
    }

    pub(crate) fn has_ended(&self, process: u32) {
        self.shared.processes().remove(&process);
    }

    pub(crate) fn cut_off(&self, host: Host) {
        self.shared.cut.send_modify(|cut| {
            cut.insert(host);
        });
    }

    pub(crate) fn let_through(&self, host: Host) {
        self.shared.cut.send_modify(|cut| {
            cut.remove(&host);
        });
    }
}

impl Shared {
    fn processes(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Host>> {
        self.processes.lock().expect("nobody panics while it is held")
    }

    async fn attend(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        (callers, host): (Callers, Option<Host>),
        target: SocketAddr,
    ) -> std::io::Result<()> {
        let mut head = Vec::new();
        let caller = match callers {
            Callers::Of(caller) => Some(caller),
            Callers::Anybody => {
                head.resize(HEAD_BYTES, 0);
                stream.read_exact(&mut head).await?;
                // Looking somebody up takes long, and clients come all the time.
                is_of_member(&head).then(|| self.owner_of(peer)).flatten()
            }
        };
        let hosts = caller.into_iter().chain(host).collect();
        carry(stream, &head, target, hosts, self.cut.subscribe()).await
    }

    /// The host that has opened a connection from this address.
    fn owner_of(&self, peer: SocketAddr) -> Option<Host> {
        let sockets = procfs::net::tcp().ok()?;
        let socket = sockets.into_iter().find(|entry| entry.local_address == peer)?;
        let owns = |process: u32| {
            let files = Process::new(process as i32).and_then(|process| process.fd());
            let mut files = files.into_iter().flatten().flatten();
            files.any(|file| matches!(file.target, FDTarget::Socket(inode) if inode == socket.inode))
        };
        let processes = self.processes().clone();
        processes
            .into_iter()
            .find_map(|(process, host)| owns(process).then_some(host))
    }
}

/// Who a connection is between, and whether they may hear of each other.
struct Gate {
    hosts: Vec<Host>,
    cut: watch::Receiver<BTreeSet<Host>>,
}

impl Gate {
    /// Waits until neither is cut off. An error if the driver is at its end.
    async fn open(&mut self) -> std::io::Result<()> {
        let Self { hosts, cut } = self;
        let opened = cut.wait_for(|cut| hosts.iter().all(|host| !cut.contains(host))).await;
        opened.map(|_| ()).map_err(std::io::Error::other)
    }
}

/// Carries one connection to its end; `head` is what was read of it already.
async fn carry(
    mut stream: TcpStream,
    head: &[u8],
    target: SocketAddr,
    hosts: Vec<Host>,
    cut: watch::Receiver<BTreeSet<Host>>,
) -> std::io::Result<()> {
    let gate = || Gate {
        hosts: hosts.clone(),
        cut: cut.clone(),
    };
    gate().open().await?;
    // If nobody listens there, the caller is hung up on.
    let mut onward = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    onward.set_nodelay(true)?;
    onward.write_all(head).await?;
    let (mut from_caller, mut to_caller) = stream.split();
    let (mut from_target, mut to_target) = onward.split();
    tokio::try_join!(
        pump(&mut from_caller, &mut to_target, gate()),
        pump(&mut from_target, &mut to_caller, gate()),
    )?;
    Ok(())
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut gate: Gate,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await;
        // Nobody hears of a reset or an end either while he is cut off.
        gate.open().await?;
        match read? {
            0 => return to.shutdown().await,
            bytes => to.write_all(&buffer[..bytes]).await?,
        }
    }
}

/// What a firewall has to do: hold everything back, tell nobody, and lose nothing.
#[test]
fn what_is_held_back_arrives_later() {
    use std::io::{ErrorKind, Read as _, Write as _};
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let firewall = Firewall::start();
    // This process is host 1, the other side host 0.
    let relay = firewall.relay_to(0, listener.local_addr().expect("it is bound"));
    firewall.belongs(std::process::id(), 1);
    let mut stream = std::net::TcpStream::connect(relay).expect("the relay listens");
    let head = *b"FARMEMB\n\0\0\0\0\0\0\x01\0";
    stream.write_all(&head).expect("the relay reads");
    let (mut other, _) = listener.accept().expect("it is passed on");
    let mut heard = [0; HEAD_BYTES];
    other.read_exact(&mut heard).expect("all of it");
    assert_eq!(heard, head);
    for host in [0, 1] {
        firewall.cut_off(host);
        stream.write_all(&[7]).expect("nobody tells");
        other.set_nonblocking(true).expect("a socket");
        let nothing = other.read(&mut [0]).expect_err("it is held back");
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        other.set_nonblocking(false).expect("a socket");
        firewall.let_through(host);
        let mut byte = [0];
        other.read_exact(&mut byte).expect("it arrives");
        assert_eq!(byte, [7]);
    }
    drop(stream);
    assert_eq!(other.read(&mut [0]).expect("an orderly end"), 0);
}
