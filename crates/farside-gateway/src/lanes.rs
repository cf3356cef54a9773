//! Several lookups at once, so that their cache misses overlap.
//!
//! On the path: MGET, and GETs that arrive in one burst. Each lane has a session; a lookup that is
//! about to miss the cache asks for the line and lets the next lane run.

use bytes::BytesMut;
use farside_fabric::{Endpoint, interleave};
use farside_kv::{KvError, Session};
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

use crate::context::Context;

/// How many lookups are in flight at most.
pub(crate) const LANES: usize = 16;
/// A value longer than this is not copied through a lane, but read by itself.
const LANE_BYTES_MAX: usize = 64 << 10;

/// What a lookup found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// No such key.
    Nothing,
    /// A value, which the lane has encoded.
    Short,
    /// A value that has to be looked up again.
    Long,
}

/// One lookup at a time.
struct Lane<E> {
    session: Session<E>,
    reply: BytesMut,
    found: Result<Found, KvError>,
}

/// [`LANES`] lookups at a time.
pub(crate) struct Lanes<E> {
    lanes: Vec<Lane<E>>,
}

impl<E> core::fmt::Debug for Lanes<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lanes")
    }
}

impl<E: Endpoint> Lane<E> {
    async fn look_up(&mut self, context: &Context<E>, key: &[u8]) -> Result<Found, KvError> {
        self.reply.clear();
        let Some(value) = self.session.get(key).await? else {
            return Ok(Found::Nothing);
        };
        if value.len() > LANE_BYTES_MAX {
            // Its buffer has grown: sixteen of them would be a lot.
            self.session = context.store.pipelined_session(&context.pipeline);
            return Ok(Found::Long);
        }
        extend_encode_borrowed(&mut self.reply, &BorrowedFrame::BulkString(value), false)
            .expect("the codec makes the buffer as long as the frame");
        Ok(Found::Short)
    }
}

impl<E: Endpoint> Lanes<E> {
    pub(crate) fn new(context: &Context<E>) -> Self {
        let lanes = (0..LANES).map(|_| Lane {
            session: context.store.pipelined_session(&context.pipeline),
            reply: BytesMut::new(),
            found: Ok(Found::Nothing),
        });
        Self { lanes: lanes.collect() }
    }

    /// Looks up to [`LANES`] keys up; the results stand in the lanes of the same order.
    pub(crate) async fn look_up(&mut self, context: &Context<E>, keys: &[&[u8]]) {
        assert!(keys.len() <= LANES, "one key per lane");
        let pairs = self.lanes.iter_mut().zip(keys);
        let look_ups = pairs.map(async |(lane, key)| lane.found = lane.look_up(context, key).await);
        interleave(&context.pipeline, look_ups.collect()).await;
    }

    /// What a lane found, and the encoded value if it is short.
    pub(crate) fn result(&self, lane: usize) -> Result<(Found, &[u8]), KvError> {
        let lane = &self.lanes[lane];
        Ok((lane.found.clone()?, &lane.reply))
    }
}
