//! DUMP and RESTORE: a value in Redis's own format, which goes from one server to another with its checksum.

use farside_kv::{Condition, Expiry, SetOptions, VALUE_BYTES_MAX};
use farside_rdb::PayloadError;
use farside_value::integer;

use super::expiry::now;
use super::{Call, Handled, NOT_AN_INTEGER, SYNTAX};
use crate::request::Request;

pub(crate) async fn dump(call: &mut Call<'_>) -> Handled {
    let item = call.keys.item(call.request.arg(1)).await?;
    call.context.count_lookup(item.is_some());
    let payload = item.map(|item| farside_rdb::dump(item.tag, item.value)).transpose();
    let payload = payload.map_err(|error| format!("ERR {error}"))?;
    call.reply.bulk_or_null(payload.as_deref());
    Ok(())
}

const TAKEN: &str = "BUSYKEY Target key name already exists.";

/// What stands behind the payload.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

pub(crate) async fn restore(call: &mut Call<'_>) -> Handled {
    let options = options(call.request)?;
    // Redis looks at this first.
    if !options.replaces && call.keys.tag(call.request.arg(1)).await?.is_some() {
        return Err(TAKEN.into());
    }
    let ttl = integer::parse(call.request.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let ttl_ms = u64::try_from(ttl).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let (tag, value) = farside_rdb::restore(call.request.arg(3)).map_err(|error| match error {
        PayloadError::Other { .. } => format!("WRONGTYPE {error}"),
        error => format!("ERR {error}"),
    })?;
    if value.len() > VALUE_BYTES_MAX {
        return Err("ERR string exceeds maximum allowed size".into());
    }
    let expiry = match ttl_ms {
        0 => Expiry::Never,
        ttl_ms if options.is_absolute => Expiry::AtMs(ttl_ms),
        ttl_ms => Expiry::AtMs(now(call.context)().saturating_add(ttl_ms)),
    };
    let condition = match options.replaces {
        true => Condition::Always,
        false => Condition::IfAbsent,
    };
    let options = SetOptions {
        condition,
        expiry,
        ..SetOptions::default()
    };
    if !call.keys.set_value(call.request.arg(1), tag, value, options).await? {
        return Err(TAKEN.into());
    }
    call.reply.ok();
    Ok(())
}

/// How long a value was not used, and how often it was, is checked, and says nothing here.
fn options(request: &Request<'_>) -> Result<Options, super::Refusal> {
    let mut options = Options::default();
    let mut index = 4;
    while index < request.len() {
        let number = |index: usize| integer::parse(request.arg(index)).ok_or(NOT_AN_INTEGER);
        if request.arg_is(index, "replace") {
            options.replaces = true;
        } else if request.arg_is(index, "absttl") {
            options.is_absolute = true;
        } else if request.arg_is(index, "idletime") && index + 1 < request.len() {
            index += 1;
            if number(index)? < 0 {
                return Err("ERR Invalid IDLETIME value, must be >= 0".into());
            }
        } else if request.arg_is(index, "freq") && index + 1 < request.len() {
            index += 1;
            if !(0..=255).contains(&number(index)?) {
                return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
            }
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn parse(line: &str) -> Option<Options> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("no quotes");
        options(&request).ok()
    }

    #[test]
    fn options_combine() {
        let some = |replaces, is_absolute| Some(Options { replaces, is_absolute });
        assert_eq!(parse("RESTORE k 0 p"), some(false, false));
        assert_eq!(
            parse("RESTORE k 0 p replace IDLETIME 5 ABSTTL freq 255"),
            some(true, true)
        );
        for line in ["idletime", "idletime -1", "freq 256", "freq x", "what"] {
            assert_eq!(parse(&format!("RESTORE k 0 p {line}")), None, "{line}");
        }
    }
}
