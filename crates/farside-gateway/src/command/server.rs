//! SELECT: there is one database. TIME. WAIT: there are no replicas. MODULE: there are no modules.

use farside_value::integer;

use super::{Call, Handled, NOT_AN_INTEGER, help};

pub(crate) async fn select(call: &mut Call<'_>) -> Handled {
    match integer::parse(call.request.arg(1)) {
        None => Err(NOT_AN_INTEGER.into()),
        Some(number) if i32::try_from(number).is_err() => {
            Err("ERR value is out of range, value must between -2147483648 and 2147483647".into())
        }
        Some(0) => {
            call.reply.ok();
            Ok(())
        }
        Some(_) => Err("ERR DB index is out of range".into()),
    }
}

/// Seconds and microseconds; the clock counts milliseconds.
pub(crate) async fn time(call: &mut Call<'_>) -> Handled {
    let now_ms = call.context.store.endpoint().unix_ms();
    call.reply.array(2);
    call.reply.bulk((now_ms / 1000).to_string().as_bytes());
    call.reply.bulk((now_ms % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

/// At once, however many are asked for: none can come while it would wait.
pub(crate) async fn wait(call: &mut Call<'_>) -> Handled {
    integer::parse(call.request.arg(1)).ok_or(NOT_AN_INTEGER)?;
    let timeout = integer::parse(call.request.arg(2)).ok_or("ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".into());
    }
    call.reply.integer(0);
    Ok(())
}

pub(crate) async fn module(call: &mut Call<'_>) -> Handled {
    match call.request.arg_is(1, "list") {
        true => call.reply.array(0),
        false => help(
            call.reply,
            "MODULE",
            &["LIST", "    Return an empty list: there are no modules."],
        ),
    }
    Ok(())
}
