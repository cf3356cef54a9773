//! What all sessions of a server share: the segment, who is connected, who is cut off.
//!
//! On the path: a session asks here before it executes, and goes through here to reach other
//! clients. All sessions run on one thread, so nothing here is locked.
//!
//! A client is in one of three places:
//! - `sessions`: connected;
//! - `departed`: its connection ended, and it may come back under its identity. Only the last
//!   [`DEPARTED_MAX`] are remembered, and fewer if the segment's table runs full;
//! - `fenced`: cut off. Never forgotten while the server runs.

use core::cell::RefCell;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicU8, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::hello::Verdict;
use super::session::SessionHandle;
use crate::addr::NodeId;
use crate::backend::Fence;
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::message::{EndpointId, Message};
use crate::rdma::{Exported, Introduction, IntroductionKind};
use crate::region::Region;
use crate::shm::{Connected, Segment, SegmentError};

/// How many clients whose connection ended are remembered.
const DEPARTED_MAX: usize = 64;

/// What a server is told to do from outside.
#[derive(Default, Debug)]
pub(super) struct Control {
    mode: AtomicU8,
    changed: Notify,
}

const RUNNING: u8 = 0;
const PAUSED: u8 = 1;
const STOPPED: u8 = 2;

impl Control {
    pub(super) fn pause(&self) {
        self.set(RUNNING, PAUSED);
    }

    pub(super) fn resume(&self) {
        self.set(PAUSED, RUNNING);
    }

    pub(super) fn stop(&self) {
        self.mode.store(STOPPED, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// A server that was stopped stays so.
    fn set(&self, from: u8, to: u8) {
        let _ = self.mode.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        self.changed.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.mode.load(Ordering::SeqCst) == STOPPED
    }

    /// Whether execution is held up.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        // Acquire: a frame that was sent after the pause is not executed.
        self.mode.load(Ordering::Acquire) != RUNNING
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// A client's entry in the segment's table, and its session.
struct Seat {
    connected: Rc<Connected>,
    handle: Rc<SessionHandle>,
}

/// What the sessions share.
pub(super) struct Service {
    segment: Segment,
    /// The same memory as network cards see it; then nobody else does.
    exported: Option<Exported>,
    capabilities: Capabilities,
    run: u64,
    control: Arc<Control>,
    sessions: RefCell<BTreeMap<EndpointId, Seat>>,
    departed: RefCell<VecDeque<Rc<Connected>>>,
    fenced: RefCell<BTreeSet<EndpointId>>,
}

impl Service {
    /// `run` names this run of the server and is not 0.
    pub(super) fn new(segment: Segment, exported: Option<Exported>, run: u64, control: Arc<Control>) -> Self {
        Self {
            segment,
            exported,
            capabilities: Region::capabilities(),
            run,
            control,
            sessions: RefCell::default(),
            departed: RefCell::default(),
            fenced: RefCell::default(),
        }
    }

    pub(super) fn region(&self) -> &Region {
        self.segment.region()
    }

    /// The memory as network cards see it, if they do.
    pub(super) fn exported(&self) -> Option<&Exported> {
        self.exported.as_ref()
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// Whether execution is held up.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.control.is_paused()
    }

    /// Makes every session look at the control again.
    pub(super) fn wake_all(&self) {
        for seat in self.sessions.borrow().values() {
            seat.handle.wake();
        }
    }

    /// Lets a client in: a new one if `id` is `None`, otherwise one that this or another node has
    /// given an identity. `run` is the run in which this node let the client in before, or 0.
    pub(super) fn admit(
        &self,
        id: Option<EndpointId>,
        run: u64,
    ) -> Result<(Rc<Connected>, Rc<SessionHandle>), Verdict> {
        if run != 0 && run != self.run {
            // What this node has forgotten since may include that the client was cut off.
            return Err(Verdict::Restarted);
        }
        if let Some(id) = id
            && self.fenced.borrow().contains(&id)
        {
            return Err(Verdict::Fenced);
        }
        let connected = match id.and_then(|id| self.take_back(id)) {
            Some(connected) if connected.is_fenced() => return Err(Verdict::Fenced),
            Some(connected) => connected,
            // It was here in this run and is not remembered: it cannot come back.
            None if run != 0 => return Err(Verdict::Restarted),
            None => self.claim(id)?,
        };
        let handle = Rc::new(SessionHandle::default());
        let seat = Seat {
            connected: connected.clone(),
            handle: handle.clone(),
        };
        self.sessions.borrow_mut().insert(connected.id(), seat);
        Ok((connected, handle))
    }

    /// The entry of a client that was here before.
    fn take_back(&self, id: EndpointId) -> Option<Rc<Connected>> {
        let seat = self.sessions.borrow_mut().remove(&id);
        if let Some(seat) = seat {
            // The client knows better than we that this connection is dead.
            seat.handle.replace();
            self.announce_end(id, &seat.handle);
            return Some(seat.connected);
        }
        let mut departed = self.departed.borrow_mut();
        let index = departed.iter().position(|connected| connected.id() == id)?;
        departed.remove(index)
    }

    fn claim(&self, id: Option<EndpointId>) -> Result<Rc<Connected>, Verdict> {
        // Ends: each turn forgets one of the departed.
        loop {
            match self.segment.claim_connected(id) {
                Ok(connected) => return Ok(Rc::new(connected)),
                Err(SegmentError::CutOff { .. }) => return Err(Verdict::Fenced),
                Err(error) => {
                    if self.departed.borrow_mut().pop_front().is_none() {
                        let path = self.segment.path().display();
                        tracing::warn!("cannot register another client in {path}: {error}");
                        return Err(Verdict::Full);
                    }
                }
            }
        }
    }

    /// A session has ended.
    pub(super) fn depart(&self, connected: &Rc<Connected>, handle: &Rc<SessionHandle>) {
        let id = connected.id();
        let mut sessions = self.sessions.borrow_mut();
        if !sessions.get(&id).is_some_and(|seat| Rc::ptr_eq(&seat.handle, handle)) {
            // Replaced, or cut off.
            return;
        }
        sessions.remove(&id);
        drop(sessions);
        self.announce_end(id, handle);
        if connected.is_fenced() {
            // By a client that shares the memory.
            self.fenced.borrow_mut().insert(id);
            return;
        }
        let mut departed = self.departed.borrow_mut();
        departed.push_back(connected.clone());
        if departed.len() > DEPARTED_MAX {
            departed.pop_front();
        }
    }

    /// Sends a message in the name of `sender`.
    pub(super) fn send(&self, sender: &Connected, peer: EndpointId, message: &Message) -> Result<(), FabricError> {
        // Nobody empties the mailbox of a client that has departed.
        if self.departed.borrow().iter().any(|connected| connected.id() == peer) {
            return Err(FabricError::PeerUnknown { peer });
        }
        sender.send(peer, message)?;
        // The segment's own doorbell rings as well, but this is quicker.
        if let Some(seat) = self.sessions.borrow().get(&peer) {
            seat.handle.wake();
        }
        Ok(())
    }

    /// Tells `peer` what the client `from` says of a queue pair between the two.
    pub(super) fn introduce(
        &self,
        from: EndpointId,
        handle: &Rc<SessionHandle>,
        peer: EndpointId,
        introduction: &Introduction,
    ) {
        let sessions = self.sessions.borrow();
        // A session that was replaced may have frames left; nobody waits for what they would bring.
        let is_current = sessions.get(&from).is_some_and(|seat| Rc::ptr_eq(&seat.handle, handle));
        match sessions.get(&peer) {
            Some(seat) if is_current => seat.handle.introduce(from, introduction),
            _ => handle.introduce(peer, &Introduction::new(IntroductionKind::Gone, 0, None)),
        }
    }

    /// Tells all who have been introduced to a client that its connection has ended.
    fn announce_end(&self, id: EndpointId, handle: &SessionHandle) {
        let gone = Introduction::new(IntroductionKind::Gone, 0, None);
        let sessions = self.sessions.borrow();
        for peer in handle.take_peers() {
            if let Some(seat) = sessions.get(&peer) {
                seat.handle.introduce(id, &gone);
            }
        }
    }

    /// Cuts a client off.
    pub(super) fn fence(&self, peer: EndpointId) -> Fence {
        let outcome = poll_once(self.segment.fence(NodeId::new(0), peer, Deadline::NEVER));
        let fence = match outcome {
            Poll::Ready(Ok(fence)) => fence,
            // Somebody executes its verbs who is not this server.
            Poll::Ready(Err(_)) | Poll::Pending => Fence::StillRunning,
        };
        if fence == Fence::CutOff {
            self.fenced.borrow_mut().insert(peer);
            self.departed.borrow_mut().retain(|connected| connected.id() != peer);
            let seat = self.sessions.borrow_mut().remove(&peer);
            if let Some(seat) = seat {
                seat.handle.fence();
                self.announce_end(peer, &seat.handle);
            }
        }
        fence
    }
}

/// What a future says at once.
fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[cfg(test)]
mod tests;
