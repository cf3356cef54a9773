//! CLIENT: who is connected, what a connection is called, and ending one. RESET.

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use farside_value::integer;

use super::table::{Numbered, numbered};
use super::{Call, Handled, NOT_AN_INTEGER, Refusal, SYNTAX, help};
use crate::acl::Users;
use crate::client::{Replies, is_plain};
use crate::pause::Held;
use crate::reply::{Protocol, Reply};
use crate::request::Request;
use crate::roster::{Card, Notices};

const HELP: &[&str] = &[
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return -1: there is no tracking.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR <ip:port>, LADDR <ip:port>, ID <client-id>, TYPE <type>, USER <username>, MAXAGE <seconds>,",
    "      SKIPME (YES|NO)",
    "LIST [TYPE <type>] [ID <client-id> [<client-id> ...]]",
    "    Return information about client connections.",
    "NO-EVICT (ON|OFF)",
    "    Accepted: no client is ever evicted.",
    "NO-TOUCH (ON|OFF)",
    "    Accepted: no command changes the time of the last access, which is not kept.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients of this gateway for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are LIB-NAME and LIB-VER.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection: it is off.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Return 0: no command blocks.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
];

pub(crate) async fn client(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let is = |name: &str| request.arg_is(1, name);
    if is("id") {
        call.reply.count(call.client.card.id);
    } else if is("getname") {
        let name = call.client.card.labels().name;
        call.reply
            .bulk_or_null(Some(name.as_slice()).filter(|name| !name.is_empty()));
    } else if is("setname") {
        call.client.set_name(request.arg(2))?;
        call.reply.ok();
    } else if is("setinfo") {
        set_info(call)?;
    } else if is("info") {
        let line = describe(call, &call.client.card);
        call.reply.text(&line);
    } else if is("list") {
        list(call)?;
    } else if is("kill") {
        kill(call)?;
    } else if is("reply") {
        set_replies(call)?;
    } else if is("no-evict") || is("no-touch") {
        if !request.arg_is(2, "on") && !request.arg_is(2, "off") {
            return Err(SYNTAX.into());
        }
        call.reply.ok();
    } else if is("getredir") {
        call.reply.integer(-1);
    } else if is("trackinginfo") {
        track_nothing(call.reply);
    } else if is("unblock") {
        integer::parse(request.arg(2)).ok_or(NOT_AN_INTEGER)?;
        call.reply.integer(0);
    } else if is("pause") {
        pause(call)?;
    } else if is("unpause") {
        let live = &call.context.shared.live;
        live.pause.end();
        // Those who wait go on.
        live.roster.cards().iter().for_each(|card| card.call());
        call.reply.ok();
    } else {
        help(call.reply, "CLIENT", HELP);
    }
    Ok(())
}

/// What CLIENT TRACKINGINFO says of a client that has not switched tracking on.
fn track_nothing(reply: &mut Reply) {
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.integer(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
}

fn pause(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let held = match request.len() {
        3 => Held::All,
        4 if request.arg_is(3, "all") => Held::All,
        4 if request.arg_is(3, "write") => Held::Writes,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return Err(SYNTAX.into()),
    };
    let time_ms = integer::parse(request.arg(2)).ok_or("ERR timeout is not an integer or out of range")?;
    let time_ms = u64::try_from(time_ms).map_err(|_| "ERR timeout is negative")?;
    let live = &call.context.shared.live;
    live.pause.begin(Duration::from_millis(time_ms), held);
    live.roster.notify_all(Notices::PAUSE);
    // Who waits already may have to wait longer.
    live.roster.cards().iter().for_each(|card| card.call());
    call.reply.ok();
    Ok(())
}

fn set_info(call: &mut Call<'_>) -> Handled {
    let (option, value) = (call.request.arg(2), call.request.arg(3));
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        return Err(format!("ERR Unrecognized option '{}'", super::excerpt(option)).into());
    }
    if !is_plain(value) {
        let option = if is_name { "lib-name" } else { "lib-ver" };
        return Err(format!("ERR {option} cannot contain spaces, newlines or special characters.").into());
    }
    call.client.card.label(|labels| match is_name {
        true => labels.library = value.to_vec(),
        false => labels.library_version = value.to_vec(),
    });
    call.reply.ok();
    Ok(())
}

fn set_replies(call: &mut Call<'_>) -> Handled {
    if call.request.arg_is(2, "on") {
        call.client.replies = Replies::On;
        call.reply.ok();
    } else if call.request.arg_is(2, "off") {
        call.client.replies = Replies::Off;
    } else if call.request.arg_is(2, "skip") {
        if call.client.replies != Replies::Off {
            call.client.replies = Replies::SkipNext;
        }
    } else {
        return Err(SYNTAX.into());
    }
    Ok(())
}

/// A line for one connection, with its end.
fn describe(call: &Call<'_>, card: &Arc<Card>) -> String {
    if card.id == call.client.card.id {
        // What it does now, not what it did in the burst before.
        let speaks_resp3 = call.reply.protocol() == Protocol::Resp3;
        card.note(
            call.client.command,
            call.context.store.endpoint().unix_ms(),
            speaks_resp3,
        );
    }
    let now_ms = call.context.store.endpoint().unix_ms();
    let mut line = card.describe(now_ms, |number| numbered(number).map(Numbered::full_name));
    line.push('\n');
    line
}

/// Which of the types of Redis are there: only normal clients connect.
fn is_type_of_clients(name: &[u8]) -> Result<bool, Refusal> {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if is("normal") {
        Ok(true)
    } else if is("master") || is("replica") || is("slave") || is("pubsub") {
        Ok(false)
    } else {
        Err(format!("ERR Unknown client type '{}'", super::excerpt(name)).into())
    }
}

fn list(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let mut ids = None;
    let mut has_type = true;
    match request.len() {
        2 => {}
        4 if request.arg_is(2, "type") => has_type = is_type_of_clients(request.arg(3))?,
        4.. if request.arg_is(2, "id") => {
            let id = |text| integer::parse(text).ok_or("ERR Invalid client ID");
            ids = Some(request.args(3).map(id).collect::<Result<Vec<i64>, _>>()?);
        }
        _ => return Err(SYNTAX.into()),
    }
    let mut text = String::new();
    for card in call.context.shared.live.roster.cards() {
        let is_named = ids.as_ref().is_none_or(|ids| ids.contains(&(card.id as i64)));
        if is_named && has_type {
            text.push_str(&describe(call, &card));
        }
    }
    call.reply.text(&text);
    Ok(())
}

/// Whom CLIENT KILL ends: who meets all that is given.
#[derive(Default)]
struct Victims<'a> {
    id: Option<i64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// At least so old, in seconds.
    age_s: Option<u64>,
    is_no_type: bool,
    spares_me: bool,
}

impl Victims<'_> {
    fn contain(&self, card: &Card, own_id: u64, now_ms: u64) -> bool {
        self.id.is_none_or(|id| id == card.id as i64)
            && self.address.is_none_or(|address| address == card.address.as_bytes())
            && self
                .local_address
                .is_none_or(|address| address == card.local_address.as_bytes())
            && self.user.is_none_or(|user| user == card.labels().user)
            && (self.age_s).is_none_or(|age_s| now_ms.saturating_sub(card.started_ms) / 1000 >= age_s)
            && !self.is_no_type
            && !(self.spares_me && card.id == own_id)
    }
}

fn victims<'a>(request: &Request<'a>, users: &Users) -> Result<Victims<'a>, Refusal> {
    let mut victims = Victims {
        spares_me: true,
        ..Victims::default()
    };
    if request.len().is_multiple_of(2) {
        for index in (2..request.len()).step_by(2) {
            let value = request.arg(index + 1);
            if request.arg_is(index, "id") {
                let id = integer::parse(value).filter(|id| *id > 0);
                victims.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            } else if request.arg_is(index, "addr") {
                victims.address = Some(value);
            } else if request.arg_is(index, "laddr") {
                victims.local_address = Some(value);
            } else if request.arg_is(index, "type") {
                victims.is_no_type = !is_type_of_clients(value)?;
            } else if request.arg_is(index, "user") {
                if users.find(value).is_none() {
                    return Err(format!("ERR No such user '{}'", super::excerpt(value)).into());
                }
                victims.user = Some(value);
            } else if request.arg_is(index, "maxage") {
                let age_s = integer::parse(value).ok_or("ERR maxage is not an integer or out of range")?;
                victims.age_s = Some(u64::try_from(age_s).map_err(|_| "ERR maxage should be greater than 0")?);
            } else if request.arg_is(index, "skipme") && (value.eq_ignore_ascii_case(b"yes")) {
                victims.spares_me = true;
            } else if request.arg_is(index, "skipme") && (value.eq_ignore_ascii_case(b"no")) {
                victims.spares_me = false;
            } else {
                return Err(SYNTAX.into());
            }
        }
        return Ok(victims);
    }
    Err(SYNTAX.into())
}

fn kill(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    // The old form: an address alone, of oneself too.
    let is_old_form = request.len() == 3;
    let victims = match is_old_form {
        true => Victims {
            address: Some(request.arg(2)),
            ..Victims::default()
        },
        false => victims(request, &call.context.shared.users)?,
    };
    let own_id = call.client.card.id;
    let now_ms = call.context.store.endpoint().unix_ms();
    let mut count = 0;
    for card in call.context.shared.live.roster.cards() {
        if !card.is_killed() && victims.contain(&card, own_id, now_ms) {
            count += 1;
            if card.id == own_id {
                // It gets its reply first.
                call.client.is_leaving = true;
            } else {
                card.kill();
            }
        }
    }
    match (is_old_form, count) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => call.reply.ok(),
        (false, count) => call.reply.integer(count),
    }
    Ok(())
}

pub(crate) async fn reset(call: &mut Call<'_>) -> Handled {
    call.client.reset();
    call.reply.set_protocol(Protocol::Resp2);
    call.reply.simple("RESET");
    Ok(())
}

/// From now on the connection is shown every command of every client, if that is allowed.
pub(crate) async fn monitor(call: &mut Call<'_>) -> Handled {
    let live = &call.context.shared.live;
    // Relaxed: who switches it on tells the others in another way.
    if !live.settings.allows_monitor.load(Ordering::Relaxed) {
        return Err("ERR MONITOR command not allowed. CONFIG SET enable-monitor-command yes allows it.".into());
    }
    live.monitors.join(&call.client.card);
    call.reply.ok();
    Ok(())
}
