//! Connections between members.
//!
//! A member dials whoever is primary, as far as it knows, and a primary dials backups from which no connection has come for a lease.
//! Of two connections between the same members the later one counts. Each begins with a [`PeerHello`] either way;
//! then notes follow, each with its length before it.

use core::time::Duration;
use std::io;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::super::hello::VERSION;
use super::super::secret::{SECRET_BYTES_MAX, Secret};
use super::{Group, LinkQueue};
use crate::clock::Deadline;
use crate::host::HostClock;
use crate::mirror::{Member, MemberId, Note};

/// The first eight bytes of a connection between members, or of an operator's.
pub(in crate::tcp) const PEER_MAGIC: [u8; 8] = *b"FARMEMB\n";
/// How long the other side may take to say who it is.
const HELLO_NS_MAX: u64 = 2_000_000_000;
/// The longest note; a longer one is a fault.
const NOTE_BYTES_MAX: usize = 1 << 30;
/// How much is read at once.
const READ_BYTES: usize = 512 << 10;

/// What both sides begin with. The secret follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::tcp) struct PeerHello {
    pub(in crate::tcp) magic: [u8; 8],
    pub(in crate::tcp) version: U32,
    pub(in crate::tcp) secret_bytes: U16,
    /// A [`Purpose`].
    pub(in crate::tcp) purpose: U16,
    /// Who it is; 0 for an operator.
    pub(in crate::tcp) member: U64,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(in crate::tcp) enum Purpose {
    /// Notes.
    Member = 1,
    /// One command of an operator.
    Operator = 2,
}

/// A member's half of the greeting.
pub(in crate::tcp) async fn say_hello(
    stream: &mut TcpStream,
    secret: Option<&Secret>,
    purpose: Purpose,
    member: MemberId,
) -> io::Result<()> {
    let secret = secret.map_or(&[][..], Secret::bytes);
    let hello = PeerHello {
        magic: PEER_MAGIC,
        version: U32::new(VERSION),
        // A secret is shorter than SECRET_BYTES_MAX.
        secret_bytes: U16::new(secret.len() as u16),
        purpose: U16::new(purpose as u16),
        member: U64::new(member.0),
    };
    stream.write_all(&[hello.as_bytes(), secret].concat()).await
}

/// The other's half; the magic may have been read already. Checks version and secret.
pub(in crate::tcp) async fn hear_hello(
    stream: &mut TcpStream,
    secret: Option<&Secret>,
    has_magic: bool,
) -> io::Result<PeerHello> {
    let refused = |what: &str| io::Error::new(io::ErrorKind::PermissionDenied, what.to_owned());
    let mut hello = PeerHello::new_zeroed();
    let (magic, rest) = hello.as_mut_bytes().split_at_mut(PEER_MAGIC.len());
    if has_magic {
        magic.copy_from_slice(&PEER_MAGIC);
    } else {
        stream.read_exact(magic).await?;
    }
    if *magic != PEER_MAGIC {
        return Err(refused("it is no mirrored Farside node"));
    }
    stream.read_exact(rest).await?;
    if hello.version.get() != VERSION {
        return Err(refused(
            "it speaks another version of the protocol: run the same release on all nodes",
        ));
    }
    let bytes = usize::from(hello.secret_bytes.get());
    if bytes > SECRET_BYTES_MAX {
        return Err(refused("it offers a secret that is too long"));
    }
    let mut offered = vec![0; bytes];
    stream.read_exact(&mut offered).await?;
    if secret.is_some_and(|secret| !secret.matches(&offered)) {
        return Err(refused(
            "it has another secret, or none: all members of a group need the same",
        ));
    }
    Ok(hello)
}

/// Looks after a connection that another member has opened.
pub(in crate::tcp) async fn serve(group: Rc<Group>, mut stream: TcpStream, member: MemberId) -> io::Result<()> {
    let me = group.member.borrow().me().id;
    say_hello(&mut stream, group.secret.as_ref(), Purpose::Member, me).await?;
    converse(&group, stream, member, None).await
}

/// Keeps a connection to whoever this member should be connected to.
pub(super) async fn dial(group: Rc<Group>) {
    let lease_ns = group.member.borrow().settings().lease_ns;
    loop {
        let wanted = wanted(&group);
        for (address, waits) in wanted {
            if waits {
                // The other side dials first.
                HostClock.sleep(lease_ns).await;
            }
            if is_linked(&group, &address) {
                continue;
            }
            let deadline = Deadline(HostClock.now_ns().saturating_add(HELLO_NS_MAX));
            match HostClock.until(deadline, call(&group, &address)).await {
                Some(Ok((stream, member))) => {
                    let group = group.clone();
                    let peer = address.clone();
                    crate::host::spawn_local(Box::pin(async move {
                        if let Err(error) = converse(&group, stream, member, Some(peer.clone())).await {
                            tracing::info!("the connection to the member at {peer} ended: {error}");
                        }
                        group.dials.notify_one();
                    }));
                }
                Some(Err(error)) => tracing::debug!("cannot connect to the member at {address}: {error}"),
                None => tracing::debug!("the member at {address} does not answer"),
            }
        }
        let deadline = Deadline(HostClock.now_ns().saturating_add(lease_ns / 4));
        HostClock.until(deadline, group.dials.notified()).await;
    }
}

/// Whom to dial, and whether to wait before.
fn wanted(group: &Group) -> Vec<(String, bool)> {
    let member = group.member.borrow();
    let me = member.me();
    let mut wanted: Vec<(String, bool)> = Vec::new();
    if let Some(view) = member.view() {
        if view.primary.address != me.address {
            wanted.push((view.primary.address.clone(), false));
        } else {
            // If an earlier process of this member was primary, the others know whether somebody else is now.
            wanted.extend(view.backups.iter().map(|backup| (backup.address.clone(), true)));
        }
    }
    // What the operator calls the primary may be another name for the same: nobody is dialled twice.
    let has_primary = || {
        let primary = member.view().map(|view| view.primary.id);
        primary.is_some_and(|primary| group.links.borrow().contains_key(&primary))
    };
    if has_primary() {
        return Vec::new();
    }
    if !member.is_primary() {
        let told = group.backup_of.borrow();
        wanted.extend(told.iter().map(|address| (address.clone(), false)));
    }
    wanted.retain(|(address, _)| *address != me.address);
    wanted
}

fn is_linked(group: &Group, address: &str) -> bool {
    group
        .links
        .borrow()
        .values()
        .any(|link| link.address.borrow().as_deref() == Some(address))
}

async fn call(group: &Rc<Group>, address: &str) -> io::Result<(TcpStream, MemberId)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let me = group.member.borrow().me().id;
    say_hello(&mut stream, group.secret.as_ref(), Purpose::Member, me).await?;
    let hello = hear_hello(&mut stream, group.secret.as_ref(), false).await?;
    Ok((stream, MemberId(hello.member.get())))
}

/// Sends and receives notes until the connection ends.
async fn converse(group: &Rc<Group>, stream: TcpStream, member: MemberId, dialed: Option<String>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let queue: Rc<LinkQueue> = Rc::default();
    queue.address.replace(dialed.or_else(|| group.address_of(member)));
    let before = group.links.borrow_mut().insert(member, queue.clone());
    if let Some(before) = before {
        before.end();
    }
    group.with(|of_group, now_ns| of_group.linked(now_ns, member));
    let (mut reader, mut writer) = stream.into_split();
    let reading = async {
        let mut input = Vec::with_capacity(READ_BYTES);
        loop {
            input.reserve(READ_BYTES);
            if reader.read_buf(&mut input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut at = 0;
            while let Some(length) = input[at..].first_chunk::<4>() {
                let bytes = u32::from_le_bytes(*length) as usize;
                if bytes > NOTE_BYTES_MAX {
                    return Err(io::Error::other("a note that is too long"));
                }
                let Some(note) = input[at + 4..].get(..bytes) else {
                    break;
                };
                let note = Note::decode(note).map_err(io::Error::other)?;
                let mut of_group = group.member.borrow_mut();
                of_group
                    .told(HostClock.now_ns(), member, note)
                    .map_err(io::Error::other)?;
                at += 4 + bytes;
            }
            input.drain(..at);
            group.with(|_, _| ());
        }
    };
    let writing = async {
        loop {
            queue.ready.notified().await;
            if queue.is_over.get() {
                return Err(io::Error::other("there is a later connection"));
            }
            // Also what sessions have executed since.
            group.with(|_, _| ());
            let output = core::mem::take(&mut *queue.output.borrow_mut());
            writer.write_all(&output).await?;
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    };
    let is_current = group
        .links
        .borrow()
        .get(&member)
        .is_some_and(|current| Rc::ptr_eq(current, &queue));
    if is_current {
        group.links.borrow_mut().remove(&member);
        group.with(|of_group: &mut Member, _| of_group.unlinked(member));
    }
    ended
}

/// How long a member may take to say how it is.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// How long an operator's command may take to be answered.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
