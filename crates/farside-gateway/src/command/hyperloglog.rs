//! HyperLogLog: PFADD, PFCOUNT, PFMERGE, PFDEBUG.

use farside_kv::{Decision, Item};

use super::keyspace::replaced;
use super::{Call, Handled, Refusal, excerpt};
use crate::hyperloglog::{self as loglog, Flaw, Union};

impl From<Flaw> for Refusal {
    fn from(flaw: Flaw) -> Self {
        Self::from(match flaw {
            Flaw::NotOne => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Flaw::Corrupt => "INVALIDOBJ Corrupted HLL object detected",
        })
    }
}

pub(crate) async fn pfadd(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let mut added = Ok(false);
    let decide = &mut |stored: Option<Item<'_>>| {
        let mut value = stored.map_or_else(loglog::empty, |item| item.value.to_vec());
        added = add_all(&mut value, &mut request.args(2)).map(|is_changed| is_changed || stored.is_none());
        match added {
            Ok(true) => {
                loglog::forget_count(&mut value);
                replaced(stored, value)
            }
            _ => Decision::Keep,
        }
    };
    call.keys.grow(request.arg(1), decide).await?;
    call.reply.integer(added?.into());
    Ok(())
}

/// Returns whether the value has changed.
fn add_all(value: &mut Vec<u8>, elements: &mut dyn Iterator<Item = &[u8]>) -> Result<bool, Flaw> {
    // It may be none even if nothing is added.
    loglog::known_count(value)?;
    let mut is_changed = false;
    for element in elements {
        is_changed |= loglog::add(value, element)?;
    }
    Ok(is_changed)
}

pub(crate) async fn pfcount(call: &mut Call<'_>) -> Handled {
    let count = match call.request.len() {
        2 => count_one(call).await?,
        _ => count_several(call).await?,
    };
    call.reply.count(count);
    Ok(())
}

/// Notes the estimate in the value, so that nobody has to make it again.
async fn count_one(call: &mut Call<'_>) -> Result<u64, Refusal> {
    let key = call.request.arg(1);
    let value = call.keys.get(key).await?;
    call.context.count_lookup(value.is_some());
    let Some(value) = value else {
        return Ok(0);
    };
    if let Some(count) = loglog::known_count(value)? {
        return Ok(count);
    }
    let mut counted = Ok(0);
    let decide = &mut |stored: Option<Item<'_>>| {
        let Some(item) = stored else {
            counted = Ok(0);
            return Decision::Keep;
        };
        counted = loglog::count(item.value);
        match counted {
            Ok(count) => {
                let mut value = item.value.to_vec();
                loglog::set_count(&mut value, count);
                replaced(stored, value)
            }
            Err(_) => Decision::Keep,
        }
    };
    match call.keys.change(key, decide).await {
        Ok(()) => {}
        // A read is answered even if nothing can be stored.
        Err(error) if error.is_out_of_memory() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(counted?)
}

/// Of the keys together, as they are at one instant.
async fn count_several(call: &mut Call<'_>) -> Result<u64, Refusal> {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    let mut lookups = Vec::new();
    let counted = call.keys.together(&keys, |transaction| {
        lookups.clear();
        let mut union = Union::new();
        for key in &keys {
            let value = transaction.get(key)?;
            lookups.push(value.is_some());
            if let Err(flaw) = union.add_if_there(value) {
                return Ok(Err(flaw));
            }
        }
        Ok(Ok(union.count()))
    });
    let counted = counted.await?;
    lookups.iter().for_each(|&is_there| call.context.count_lookup(is_there));
    Ok(counted?)
}

pub(crate) async fn pfmerge(call: &mut Call<'_>) -> Handled {
    let keys: Vec<&[u8]> = call.request.args(1).collect();
    let merged = call.keys.together(&keys, |transaction| {
        let mut union = Union::new();
        for key in &keys {
            if let Err(flaw) = union.add_if_there(transaction.get(key)?) {
                return Ok(Err(flaw));
            }
        }
        let mut stored_as = Ok(());
        transaction.change(keys[0], &mut |stored| {
            let mut value = stored.map_or_else(loglog::empty, |item| item.value.to_vec());
            stored_as = union.store(&mut value);
            match stored_as {
                Ok(()) => replaced(stored, value),
                Err(_) => Decision::Keep,
            }
        })?;
        Ok(stored_as)
    });
    merged.await??;
    call.reply.ok();
    Ok(())
}

/// What tests ask about the bytes of a value. As in Redis, whoever asks for its registers makes it dense.
pub(crate) async fn pfdebug(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let value = call.keys.get(request.arg(2)).await?;
    let value = value.ok_or("ERR The specified key does not exist")?;
    let is_dense = loglog::is_dense(value)?;
    let wants_registers = request.arg_is(1, "getreg");
    if request.arg_is(1, "encoding") {
        call.reply.simple(if is_dense { "dense" } else { "sparse" });
        return Ok(());
    }
    if request.arg_is(1, "decode") {
        if is_dense {
            return Err("ERR HLL encoding is not sparse".into());
        }
        call.reply.bulk(loglog::opcodes(value)?.as_bytes());
        return Ok(());
    }
    if !wants_registers && !request.arg_is(1, "todense") {
        return Err(format!("ERR Unknown PFDEBUG subcommand '{}'", excerpt(request.arg(1))).into());
    }
    let mut union = Union::new();
    let mut was_sparse = Ok(false);
    let decide = &mut |stored: Option<Item<'_>>| {
        union = Union::new();
        let mut value = stored.map_or_else(loglog::empty, |item| item.value.to_vec());
        let is_there = stored.is_some();
        was_sparse = union.add_if_there(Some(&value)).and_then(|()| {
            let is_sparse = is_there && !loglog::is_dense(&value)?;
            if is_sparse {
                loglog::make_dense(&mut value)?;
            }
            Ok(is_sparse)
        });
        match was_sparse {
            Ok(true) => replaced(stored, value),
            _ => Decision::Keep,
        }
    };
    call.keys.grow(request.arg(2), decide).await?;
    let was_sparse = was_sparse?;
    if wants_registers {
        call.reply.array(union.registers().len());
        (union.registers().iter()).for_each(|&register| call.reply.integer(register.into()));
    } else {
        call.reply.integer(was_sparse.into());
    }
    Ok(())
}
