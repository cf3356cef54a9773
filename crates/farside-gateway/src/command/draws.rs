//! Replies of SRANDMEMBER, HRANDFIELD and ZRANDMEMBER, which may be longer than what they are drawn from.
//!
//! On the path: elements that may repeat are drawn some at a time, and written out in between.

use std::io;

use farside_kv::Tag;
use farside_value::{Draw, ValueError};
use tokio::task::yield_now;

use super::transactions::ANSWERS_BYTES_MAX;
use super::{Call, Handled, Keys};
use crate::client::{Client, Replies};
use crate::connection::{REPLY_BYTES_MAX, flush};
use crate::context::Context;
use crate::reply::Reply;
use crate::stream::Stream;

/// How many elements a value has.
type Count<'c> = &'c dyn Fn(Option<&[u8]>) -> Result<u32, ValueError>;

/// Draws from a value, and shows what it has drawn. It is given a source of chance.
pub(super) type Show<'s> = &'s mut dyn FnMut(Option<&[u8]>, Draw, &mut dyn FnMut(u64) -> u64, &mut Reply) -> Handled;

/// Draws from the value of the key that is argument 1, which has this type and so many elements, as often as a count says, and
/// replies. `width` elements of the reply stand for each that is drawn.
pub(super) async fn draw(
    call: &mut Call<'_>,
    (tag, count): (Tag, i64),
    elements: Count<'_>,
    width: u64,
    show: Show<'_>,
) -> Handled {
    let Call {
        request,
        client,
        reply,
        keys,
        stream,
        context,
    } = call;
    let is_alone = matches!(keys, Keys::Apart(_));
    let value = keys.value(request.arg(1), tag).await?;
    context.count_lookup(value.is_some());
    let drawn = drawn(elements(value)?.into(), count);
    reply.array((drawn.promised() * width) as usize);
    let random = &mut |bound| context.store.endpoint().random_below(bound);
    for draw in drawn.steps(value.map_or(0, <[u8]>::len)) {
        show(value, draw, random, reply)?;
        if is_enough(is_alone, stream, reply, client, context).await? {
            break;
        }
    }
    Ok(())
}

/// What a count in a command means, of so many elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Drawn {
    draw: Draw,
    elements: u64,
}

/// A negative count allows repetitions; but nothing is drawn from nothing.
fn drawn(elements: u64, count: i64) -> Drawn {
    let draw = match Draw::from_count(count) {
        Draw::Distinct(count) => Draw::Distinct(count.min(elements)),
        Draw::Repeated(_) if elements == 0 => Draw::Distinct(0),
        repeated => repeated,
    };
    Drawn { draw, elements }
}

impl Drawn {
    /// How many elements the reply has.
    fn promised(self) -> u64 {
        let (Draw::Distinct(count) | Draw::Repeated(count)) = self.draw;
        count
    }

    /// The same in steps, of elements that take so many bytes. On average, the reply of a step is not longer than a burst of
    /// replies may get, or than the value.
    fn steps(self, bytes: usize) -> impl Iterator<Item = Draw> {
        let step = (REPLY_BYTES_MAX / bytes.max(1)).max(1) as u64;
        let step = step.max(self.elements);
        let (all_at_once, mut left) = match self.draw {
            Draw::Distinct(0) | Draw::Repeated(0) => (None, 0),
            Draw::Distinct(count) => (Some(Draw::Distinct(count)), 0),
            Draw::Repeated(count) => (None, count),
        };
        let repeated = core::iter::from_fn(move || {
            let now = left.min(step);
            left -= now;
            (now > 0).then_some(Draw::Repeated(now))
        });
        all_at_once.into_iter().chain(repeated)
    }
}

/// Writes out what has been drawn, if it is much, and lets others run. Returns whether nothing more need be drawn: EXEC refuses
/// replies that are too long. `is_alone` if the command is not run by EXEC.
async fn is_enough(
    is_alone: bool,
    stream: &mut Stream,
    reply: &mut Reply,
    client: &Client,
    context: &Context,
) -> io::Result<bool> {
    if !is_alone {
        return Ok(reply.len() > ANSWERS_BYTES_MAX);
    }
    if reply.len() > REPLY_BYTES_MAX {
        // What the client does not want is taken back in the end.
        if client.replies != Replies::On {
            return Ok(true);
        }
        if !flush(stream, reply, client, context).await? {
            return Err(io::Error::other("nobody waits for the rest of a reply"));
        }
    }
    // However much is to be drawn, others are served meanwhile.
    yield_now().await;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(elements: u64, count: i64, bytes: usize) -> (u64, Vec<Draw>) {
        let drawn = drawn(elements, count);
        (drawn.promised(), drawn.steps(bytes).collect())
    }

    #[test]
    fn different_elements_are_drawn_at_once() {
        assert_eq!(steps(5, 3, 1 << 30), (3, vec![Draw::Distinct(3)]));
        assert_eq!(steps(5, 9, 10), (5, vec![Draw::Distinct(5)]));
        assert_eq!(steps(5, 0, 10), (0, vec![]));
        for count in [-1, 0, 1, -i64::MAX] {
            assert_eq!(steps(0, count, 0), (0, vec![]));
        }
    }

    #[test]
    fn repetitions_are_drawn_some_at_a_time() {
        assert_eq!(steps(5, -9, 10), (9, vec![Draw::Repeated(9)]));
        let few = vec![Draw::Repeated(4), Draw::Repeated(4), Draw::Repeated(1)];
        assert_eq!(steps(2, -9, REPLY_BYTES_MAX / 4), (9, few.clone()));
        assert_eq!(steps(4, -9, 4 * REPLY_BYTES_MAX), (9, few));
    }
}
