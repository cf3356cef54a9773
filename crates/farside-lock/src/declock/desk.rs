//! The desk of an endpoint: answers whoever resets a lock (DecLock, section 4.4, step 2).
//!
//! On the path: nowhere, as long as nothing goes wrong. It is a task of each endpoint in the roster,
//! and waits for letters of two kinds:
//!
//! - **Reset**: somebody has begun to reset a lock. Our clients that wait for it start over. If one may
//!   hold it the answer is *busy* now, and *done* when it has released it; otherwise *done* at once.
//! - **Ask**: somebody wants to know whether we are still about to reset a lock.

use farside_fabric::{Deadline, RemoteAddr};

use super::client::Client;
use super::node::Asked;
use crate::inbox::Seat;
use crate::letter::LetterKind;

/// Answers until the fabric fails: then the endpoint is cut off, or its node gone.
pub(super) async fn serve(client: Client, seat: Seat) {
    while let Ok(arrived) = seat.receive(&client.endpoint, Deadline::NEVER).await {
        let Some(arrived) = arrived else { continue };
        let Some(entry) = RemoteAddr::from_bits(arrived.letter.words[0]) else {
            continue;
        };
        let asked = Asked {
            place: arrived.sender(),
            stamp: arrived.letter.words[1] as u32,
            desk: client.endpoint.id(),
        };
        let local = client.node.known(entry);
        let kind = match arrived.letter.kind {
            LetterKind::Reset if local.as_ref().is_none_or(|local| local.ask(asked)) => LetterKind::Done,
            LetterKind::AskReset if local.as_ref().is_none_or(|local| !local.is_resetting.get()) => LetterKind::Done,
            LetterKind::Reset | LetterKind::AskReset => LetterKind::Busy,
            _ => continue,
        };
        if client.answer(entry, asked, kind).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
