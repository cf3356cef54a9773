//! Keys, whatever their value: DEL, EXISTS, TYPE, DBSIZE, FLUSHALL.

use farside_kv::Tag;

use super::{Call, Handled, SYNTAX};

pub(crate) async fn del(call: &mut Call<'_>) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    let count = call.keys.delete_many(&keys).await?;
    call.reply.count(count);
    Ok(())
}

pub(crate) async fn exists(call: &mut Call<'_>) -> Handled {
    let mut count = 0;
    for key in call.request.args(1) {
        count += u64::from(call.keys.expiry_ms(key).await?.is_some());
    }
    call.reply.count(count);
    Ok(())
}

/// There is nothing to free later: it is DEL.
pub(crate) async fn unlink(call: &mut Call<'_>) -> Handled {
    del(call).await
}

/// EXISTS that counts as a use.
pub(crate) async fn touch(call: &mut Call<'_>) -> Handled {
    let mut count = 0;
    for key in call.request.args(1) {
        count += u64::from(call.keys.touch(key).await?);
    }
    call.reply.count(count);
    Ok(())
}

pub(crate) async fn r#type(call: &mut Call<'_>) -> Handled {
    let tag = call.keys.tag(call.request.arg(1)).await?;
    call.reply.simple(tag.map_or("none", Tag::name));
    Ok(())
}

pub(crate) async fn dbsize(call: &mut Call<'_>) -> Handled {
    let count = call.keys.session()?.count().await?;
    call.reply.count(count);
    Ok(())
}

pub(crate) async fn flushall(call: &mut Call<'_>) -> Handled {
    let is_plain = match call.request.len() {
        1 => true,
        2 => call.request.arg_is(1, "async") || call.request.arg_is(1, "sync"),
        _ => false,
    };
    if !is_plain {
        return Err(SYNTAX.into());
    }
    call.keys.session()?.clear().await?;
    call.reply.ok();
    Ok(())
}

pub(crate) async fn flushdb(call: &mut Call<'_>) -> Handled {
    flushall(call).await
}
