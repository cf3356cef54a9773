//! FARSIDE LOCKS: which named locks are held, by whom and since when.

use farside_kv::locks::Mode;
use farside_value::integer;

use super::{Call, Handled, NOT_AN_INTEGER};

/// How many locks there are at most if nobody says.
const LOCKS: usize = 1000;

pub(super) async fn held_locks(call: &mut Call<'_>) -> Handled {
    let most = match call.request.len() {
        2 => LOCKS,
        _ => {
            let most = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
            usize::try_from(most).map_err(|_| "ERR count must not be negative")?
        }
    };
    let mut held = call.context.store.held_locks(most).await?;
    held.sort_unstable_by(|one, next| one.name.cmp(&next.name));
    call.reply.array(held.len());
    for lock in held {
        call.reply.array(5);
        call.reply.bulk(&lock.name);
        let (owner, mode, since_ms) = lock.holder.map_or((String::new(), "unknown", 0), |holder| {
            let mode = match holder.mode {
                Mode::Exclusive => "exclusive",
                Mode::Shared => "shared",
            };
            (holder.owner, mode, holder.since_ms)
        });
        call.reply.bulk(owner.as_bytes());
        call.reply.bulk(mode.as_bytes());
        call.reply.count(since_ms);
        call.reply.count(lock.in_queue);
    }
    Ok(())
}
