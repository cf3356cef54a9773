//! What an operator asks of a member: how it is, and to change roles.
//!
//! One command per connection; both ways a length and bytes.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::secret::Secret;
use super::Group;
use super::link::{COMMAND_TIMEOUT, Purpose, STATUS_TIMEOUT, hear_hello, say_hello};
use crate::clock::Deadline;
use crate::host::HostClock;
use crate::mirror::{Member, MemberId, Standing, View};
use crate::posted::{LocalFuture, join_all};

/// What an operator wants of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// How is it?
    Status,
    /// That this backup becomes primary.
    Promote,
    /// That this primary goes on without the backup at an address.
    RemoveBackup(String),
    /// That this member, which is none of a group yet, becomes a backup of the one at an address.
    Follow(String),
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Nobody answered.
    #[error("the node at {address} does not answer: {source}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The member says no.
    #[error("the node at {address} refuses: {reason}")]
    Refused {
        /// Where.
        address: String,
        /// Why.
        reason: String,
    },
}

/// The longest command and answer.
const BYTES_MAX: u32 = 1 << 20;

async fn put(stream: &mut TcpStream, code: u8, bytes: &[u8]) -> io::Result<()> {
    let length = (bytes.len() as u32 + 1).to_le_bytes();
    stream.write_all(&[&length[..], &[code], bytes].concat()).await
}

async fn get(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let length = stream.read_u32_le().await?;
    if length == 0 || length > BYTES_MAX {
        return Err(io::Error::other("it speaks another language"));
    }
    let code = stream.read_u8().await?;
    let mut bytes = vec![0; length as usize - 1];
    stream.read_exact(&mut bytes).await?;
    Ok((code, bytes))
}

/// Carries out the command of a connection.
pub(in crate::tcp) async fn serve(group: Rc<Group>, mut stream: TcpStream) -> io::Result<()> {
    let me = group.member.borrow().me().id;
    say_hello(&mut stream, group.secret.as_ref(), Purpose::Operator, me).await?;
    let (code, bytes) = get(&mut stream).await?;
    let done = match code {
        1 => Ok(()),
        2 => group.with(|member, _| member.promote()),
        3 if group.proposals.is_some() => {
            Err("etcd decides on its group: stop that backup, and the group goes on without it")
        }
        3 => {
            let address = String::from_utf8_lossy(&bytes).into_owned();
            group.with(|member, now_ns| member.remove_backup(now_ns, &address))
        }
        4 => group.follow(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err("it does not know this command: run the same release on both"),
    };
    match done {
        Ok(()) => {
            let mut standing = Vec::new();
            group
                .execute(|member: &mut Member| member.standing())
                .encode(&mut standing);
            put(&mut stream, 0, &standing).await
        }
        Err(reason) => put(&mut stream, 1, reason.as_bytes()).await,
    }
}

/// Asks the member at an address. Returns how it is afterwards.
///
/// # Errors
/// [`CommandError`].
pub async fn command(address: &str, secret: Option<&Secret>, command: &Command) -> Result<Standing, CommandError> {
    // Whoever only looks at a member that was stopped does not want to wait for it.
    let timeout = if *command == Command::Status {
        STATUS_TIMEOUT
    } else {
        COMMAND_TIMEOUT
    };
    let timeout_ns = timeout.as_nanos() as u64;
    let deadline = Deadline(HostClock.now_ns().saturating_add(timeout_ns));
    let asked = HostClock.until(deadline, ask(address, secret, command)).await;
    let unreachable = |source| CommandError::Unreachable {
        address: address.to_owned(),
        source,
    };
    let refused = |reason: String| CommandError::Refused {
        address: address.to_owned(),
        reason,
    };
    match asked {
        None => Err(unreachable(io::ErrorKind::TimedOut.into())),
        Some(Err(error)) => Err(unreachable(error)),
        Some(Ok((0, bytes))) => Standing::decode(&bytes).map_err(|error| refused(error.to_string())),
        Some(Ok((_, reason))) => Err(refused(String::from_utf8_lossy(&reason).into_owned())),
    }
}

/// How a member is. On a busy machine it may take longer to say so than it is given; then it is asked again, `attempts` times in all.
///
/// # Errors
/// [`CommandError`].
pub async fn status(address: &str, secret: Option<&Secret>, attempts: usize) -> Result<Standing, CommandError> {
    for _ in 1..attempts {
        match command(address, secret, &Command::Status).await {
            Err(CommandError::Unreachable { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {}
            said => return said,
        }
    }
    command(address, secret, &Command::Status).await
}

/// What the members of a group say of themselves, by address; `None` of one that does not answer.
pub type Said = BTreeMap<String, Option<Standing>>;

/// Asks the members with these addresses and whomever they name, all at once, each up to `attempts` times.
pub async fn ask_members(names: impl Iterator<Item = String>, secret: Option<&Secret>, attempts: usize) -> Said {
    let mut said = Said::new();
    let mut waiting: Vec<String> = names.collect();
    // Ends: each round asks addresses that were not asked before, and members name few.
    while !waiting.is_empty() {
        waiting.sort_unstable();
        waiting.dedup();
        let asked = waiting.iter().map(|address| {
            let asked: LocalFuture<'_, _> = Box::pin(async move { status(address, secret, attempts).await.ok() });
            asked
        });
        let answers = join_all(asked.collect()).await;
        said.extend(waiting.drain(..).zip(answers));
        let views = said.values().flatten().filter_map(|standing| standing.view.as_ref());
        let peers = views.flat_map(View::peers).map(|peer| peer.address.clone());
        waiting.extend(peers.filter(|address| !said.contains_key(address)));
    }
    said
}

/// The newest view that any of them knows.
#[must_use]
pub fn newest_view(said: &Said) -> Option<&View> {
    let views = said.values().flatten().filter_map(|standing| standing.view.as_ref());
    views.max_by_key(|view| view.epoch)
}

async fn ask(address: &str, secret: Option<&Secret>, command: &Command) -> io::Result<(u8, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    say_hello(&mut stream, secret, Purpose::Operator, MemberId(0)).await?;
    hear_hello(&mut stream, None, false).await?;
    match command {
        Command::Status => put(&mut stream, 1, &[]).await?,
        Command::Promote => put(&mut stream, 2, &[]).await?,
        Command::RemoveBackup(backup) => put(&mut stream, 3, backup.as_bytes()).await?,
        Command::Follow(primary) => put(&mut stream, 4, primary.as_bytes()).await?,
    }
    get(&mut stream).await
}
