//! Counters: numbers that are stored as text.

use farside_value::decimal::{self, Sum};
use farside_value::integer;

use super::{Call, Handled, NOT_AN_INTEGER, Refusal};

pub(crate) async fn incr(call: &mut Call<'_>) -> Handled {
    add(call, 1).await
}

pub(crate) async fn decr(call: &mut Call<'_>) -> Handled {
    add(call, -1).await
}

pub(crate) async fn incrby(call: &mut Call<'_>) -> Handled {
    let more = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    add(call, more).await
}

pub(crate) async fn decrby(call: &mut Call<'_>) -> Handled {
    let less = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let more = less.checked_neg().ok_or("ERR decrement would overflow")?;
    add(call, more).await
}

async fn add(call: &mut Call<'_>, more: i64) -> Handled {
    let mut sum = 0;
    let added = call.keys.update(call.request.arg(1), |value| -> Result<_, Refusal> {
        let number = integer::parse(value.unwrap_or(b"0")).ok_or(NOT_AN_INTEGER)?;
        sum = number
            .checked_add(more)
            .ok_or("ERR increment or decrement would overflow")?;
        Ok(sum.to_string().into_bytes())
    });
    added.await??;
    call.reply.integer(sum);
    Ok(())
}

pub(crate) async fn incrbyfloat(call: &mut Call<'_>) -> Handled {
    let mut sum = String::new();
    let more = call.request.arg(2);
    let added = call.keys.update(call.request.arg(1), |value| -> Result<_, Refusal> {
        sum = match decimal::add(value.unwrap_or(b"0"), more) {
            Sum::Number(number) => number,
            Sum::NotANumber => return Err("ERR value is not a valid float".into()),
            Sum::Infinite => return Err("ERR increment would produce NaN or Infinity".into()),
        };
        Ok(sum.clone().into_bytes())
    });
    added.await??;
    call.reply.bulk(sum.as_bytes());
    Ok(())
}
