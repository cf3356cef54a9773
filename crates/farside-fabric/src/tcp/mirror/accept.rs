//! Who connects to a mirrored node: a client, another member, or an operator.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

use super::super::hello::{Hello, MAGIC, VERSION, Verdict, Welcome};
use super::super::secret::Secret;
use super::super::server::{ACCEPT_PAUSE_NS, HELLO_NS_MAX, Refusal, check_secret, hear_hello, hear_magic};
use super::super::service::Control;
use super::link::{self, PEER_MAGIC, Purpose};
use super::session::{Admitted, Session};
use super::{Group, MirrorOptions, control};
use crate::clock::Deadline;
use crate::host::{HostClock, spawn_local};
use crate::message::EndpointId;
use crate::mirror::{self, MemberId};
use crate::region::Region;
use crate::shm::Segment;

/// Serves until the server is stopped.
pub(in crate::tcp) async fn serve(
    listener: TcpListener,
    segment: &Segment,
    secret: Option<Secret>,
    options: MirrorOptions,
    control: &Arc<Control>,
) -> io::Result<()> {
    let (group, decisions) = Group::new(segment, secret, options)?;
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            group.start(decisions);
            while !control.is_stopped() {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, peer)) => spawn_local(Box::pin(attend(group.clone(), control.clone(), stream, peer))),
                        Err(error) => {
                            let listen = listener.local_addr().ok();
                            tracing::warn!(?listen, "cannot accept a connection: {error}");
                            HostClock.sleep(ACCEPT_PAUSE_NS).await;
                        }
                    },
                    () = control.changed() => group.wake_all(),
                }
            }
        })
        .await;
    Ok(())
}

/// Who said hello.
enum Guest {
    Client(Admitted),
    Member(MemberId),
    Operator,
}

async fn attend(group: Rc<Group>, control: Arc<Control>, mut stream: TcpStream, peer: SocketAddr) {
    let deadline = Deadline(HostClock.now_ns().saturating_add(HELLO_NS_MAX));
    let guest = match HostClock.until(deadline, greet(&group, &mut stream)).await {
        Some(Ok(guest)) => guest,
        Some(Err(refusal)) => {
            tracing::debug!("refused the connection from {peer}: {refusal}");
            return;
        }
        None => {
            tracing::info!("refused the connection from {peer}: it did not say hello in time");
            return;
        }
    };
    match guest {
        Guest::Client(admitted) => {
            let end = Session::new(group, control, &admitted).run(&mut stream).await;
            if end.is_fault() {
                tracing::warn!("closed the connection from {peer}: {end}");
            } else {
                tracing::debug!("closed the connection from {peer}: {end}");
            }
        }
        Guest::Member(member) => {
            if let Err(error) = link::serve(group.clone(), stream, member).await {
                tracing::info!("the connection from the member at {peer} ended: {error}");
            }
        }
        Guest::Operator => {
            if let Err(error) = control::serve(group, stream).await {
                tracing::info!("the operator's connection from {peer} ended: {error}");
            }
        }
    }
}

async fn greet(group: &Rc<Group>, stream: &mut TcpStream) -> Result<Guest, Refusal> {
    let magic = hear_magic(stream).await?;
    if magic == PEER_MAGIC {
        let peer = link::hear_hello(stream, group.secret.as_ref(), true).await?;
        return match peer.purpose.get() {
            purpose if purpose == Purpose::Member as u16 => Ok(Guest::Member(MemberId(peer.member.get()))),
            purpose if purpose == Purpose::Operator as u16 => Ok(Guest::Operator),
            _ => Err(Refusal::Magic),
        };
    }
    let (hello, offered) = match hear_hello(stream, magic).await {
        Err(Refusal::Version { version }) => {
            answer(group, stream, Verdict::VersionUnknown, 0).await?;
            return Err(Refusal::Version { version });
        }
        heard => heard?,
    };
    match admit(group, &hello, &offered).await {
        Ok(admitted) => {
            answer(group, stream, Verdict::Accepted, admitted.id.0).await?;
            Ok(Guest::Client(admitted))
        }
        Err(verdict) => {
            answer(group, stream, verdict, 0).await?;
            Err(Refusal::Verdict { verdict })
        }
    }
}

async fn admit(group: &Rc<Group>, hello: &Hello, offered: &[u8]) -> Result<Admitted, Verdict> {
    check_secret(group.secret.as_ref(), offered)?;
    let id = Some(EndpointId(hello.endpoint.get())).filter(|id| id.0 != 0);
    let run = hello.run.get();
    let messages = hello.messages.get();
    let executed = group.with(|member, _| {
        if let Some(id) = id
            && run != 0
        {
            if member.is_primary() && member.group() != run {
                return Err(mirror::Refusal::Stranger);
            }
            let resumed = member.resume(id, hello.answered.get(), messages)?;
            return Ok((id, resumed.hold));
        }
        let admitted = member.admit(id)?;
        Ok((admitted.answer, admitted.hold))
    });
    if let Ok((id, _)) = executed
        && run == 0
    {
        // It may never get as far as a session.
        group.has_no_session(id);
    }
    let (id, hold) = executed.map_err(|refusal| match refusal {
        mirror::Refusal::NotPrimary => Verdict::NotPrimary,
        mirror::Refusal::Fenced => Verdict::Fenced,
        mirror::Refusal::Stranger => Verdict::Restarted,
    })?;
    // A client that knows of its admission must not be unknown to the next primary.
    if !group.release(hold).await {
        return Err(Verdict::NotPrimary);
    }
    Ok(Admitted {
        id,
        taken: messages,
        ungranted: hello.ungranted.get().into(),
    })
}

async fn answer(group: &Group, stream: &mut TcpStream, verdict: Verdict, endpoint: u64) -> io::Result<()> {
    let mut view = Vec::new();
    let welcome = group.execute(|member| {
        member.put_view(&mut view);
        Welcome {
            magic: MAGIC,
            version: U32::new(VERSION),
            verdict: verdict as u8,
            capabilities: Welcome::pack(Region::capabilities(), false),
            // A few addresses.
            view_bytes: U16::new(view.len() as u16),
            node_bytes: U64::new(member.memory().bytes()),
            endpoint: U64::new(endpoint),
            run: U64::new(member.group()),
            lease_ns: U64::new(member.settings().lease_ns),
        }
    });
    stream.write_all(&[welcome.as_bytes(), &view].concat()).await
}
