//! Leaving the roster: by oneself, or by having died; and staying in it.
//!
//! On the path: nowhere; when a client closes, and when an endpoint finds the roster full. A roster whose
//! members only come would be full one day, and each reset would ask the dead.

use farside_fabric::{Deadline, Endpoint, FabricError, LocalFuture, OpContext, RemoteAddr};

use super::client::Client;
use crate::letter::{ANY_STAMP, Letter, LetterKind, NO_SEAT};
use crate::{LockError, Site};

/// Gives up the endpoint's place in the roster, if no client of the site uses a DecLock at the moment.
/// Returns whether it was given up. Who goes on afterwards joins anew.
///
/// # Errors
/// What the fabric reports; the place is then given up by who finds out that the endpoint is gone.
pub fn leave<'f>(endpoint: &'f Endpoint, site: &'f Site) -> LocalFuture<'f, Result<bool, LockError>> {
    Box::pin(async move {
        let node = site.declock();
        let (Some(roster), true) = (node.roster(), node.is_idle()) else {
            return Ok(false);
        };
        let Some(member) = node.member(endpoint.id()) else {
            return Ok(false);
        };
        // From here on clients join anew, with another place: this one holds nothing.
        node.set_membership(endpoint.id(), None);
        roster.strike(endpoint, member).await?;
        Ok(true)
    })
}

/// Whether nobody cuts the endpoint off until [`LockOptions::declock_notice_ns`](crate::LockOptions) after this was
/// called, by a clock that runs as fast as those of the others. Once it says no it always does, and the endpoint should
/// be given up. Over mapped memory nobody is cut off who lives.
///
/// Cost: one READ, if the endpoint is in the roster.
///
/// # Errors
/// What the fabric reports; nothing is known then.
pub fn vouch<'f>(
    endpoint: &'f Endpoint,
    site: &'f Site,
    deadline: Deadline,
) -> LocalFuture<'f, Result<bool, FabricError>> {
    Box::pin(async move {
        let node = site.declock();
        let Some((roster, member)) = node.roster().zip(node.member(endpoint.id())) else {
            // Who is not in the roster is asked for nothing.
            return Ok(true);
        };
        let is_safe = roster.is_safe(endpoint, member, deadline).await?;
        // It may have left meanwhile.
        Ok(is_safe || node.member(endpoint.id()) != Some(member))
    })
}

impl Client {
    /// Strikes everybody off the roster who has died.
    pub(super) async fn weed(&self) -> Result<(), LockError> {
        let mut cx = OpContext::new(self.endpoint.clone());
        let mut dead = Vec::new();
        for (member, desk) in self.roster().everybody(&mut cx).await? {
            // A question that needs no answer: what matters is whether somebody is there to get it.
            let letter = Letter {
                kind: LetterKind::AskReset,
                seat: desk.seat,
                reply: NO_SEAT,
                stamp: ANY_STAMP,
                entry: RemoteAddr::NULL,
                words: [u64::MAX, 0, 0],
            };
            match self.inbox.send(&self.endpoint, desk.endpoint, letter).await {
                Err(FabricError::PeerUnknown { .. }) => dead.push((member, desk.endpoint)),
                other => other?,
            }
        }
        self.cut_off(&dead).await?;
        Ok(())
    }
}
