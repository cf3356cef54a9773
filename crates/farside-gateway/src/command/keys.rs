//! Keys, whatever their value: DEL, EXISTS, TTL, DBSIZE, FLUSHALL.

use farside_fabric::Endpoint;

use super::{Call, Handled, SYNTAX};

pub(crate) async fn del<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let mut count = 0;
    for key in call.request.args(1) {
        count += u64::from(call.session.delete(key).await?);
    }
    call.reply.count(count);
    Ok(())
}

pub(crate) async fn exists<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let mut count = 0;
    for key in call.request.args(1) {
        count += u64::from(call.session.expiry_ms(key).await?.is_some());
    }
    call.reply.count(count);
    Ok(())
}

pub(crate) async fn ttl<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let left_ms = time_left_ms(call).await?;
    call.reply
        .integer(if left_ms < 0 { left_ms } else { (left_ms + 500) / 1000 });
    Ok(())
}

pub(crate) async fn pttl<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let left_ms = time_left_ms(call).await?;
    call.reply.integer(left_ms);
    Ok(())
}

/// -2: no such key. -1: it never expires.
async fn time_left_ms<E: Endpoint>(call: &mut Call<'_, E>) -> Result<i64, super::Refusal> {
    let expiry_ms = call.session.expiry_ms(call.request.arg(1)).await?;
    let now_ms = call.context.store.endpoint().unix_ms();
    Ok(match expiry_ms {
        None => -2,
        Some(0) => -1,
        Some(at_ms) => i64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(i64::MAX),
    })
}

pub(crate) async fn dbsize<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let count = call.session.count().await?;
    call.reply.count(count);
    Ok(())
}

pub(crate) async fn flushall<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    let is_plain = match call.request.len() {
        1 => true,
        2 => call.request.arg_is(1, "async") || call.request.arg_is(1, "sync"),
        _ => false,
    };
    if !is_plain {
        return Err(SYNTAX.into());
    }
    call.session.clear().await?;
    call.reply.ok();
    Ok(())
}

pub(crate) async fn flushdb<E: Endpoint>(call: &mut Call<'_, E>) -> Handled {
    flushall(call).await
}
