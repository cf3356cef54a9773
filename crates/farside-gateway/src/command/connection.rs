//! The connection itself: PING, HELLO, AUTH, QUIT.

use farside_value::integer;

use super::{Call, Handled, Refusal, SYNTAX, wrong_arity};
use crate::REDIS_VERSION;
use crate::acl::Refused;
use crate::acl::log::Reason;
use crate::acl::user::DEFAULT;
use crate::reply::Protocol;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured for the default user. \
                               Are you sure your configuration is correct?";
const HELLO_NEEDS_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                                HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                                select the RESP protocol version at the same time";

pub(crate) async fn ping(call: &mut Call<'_>) -> Handled {
    match call.request.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.request.arg(1)),
        _ => return Err(wrong_arity("ping").into()),
    }
    Ok(())
}

pub(crate) async fn echo(call: &mut Call<'_>) -> Handled {
    call.reply.bulk(call.request.arg(1));
    Ok(())
}

pub(crate) async fn quit(call: &mut Call<'_>) -> Handled {
    call.client.is_leaving = true;
    call.reply.ok();
    Ok(())
}

/// Makes the client this user if it knows the password.
fn authenticate(call: &mut Call<'_>, name: &[u8], offered: &[u8]) -> Handled {
    let user = call.context.shared.users.find(name);
    let Some(user) = user.filter(|user| user.lets_in(offered)) else {
        let refused = Refused {
            reason: Reason::Auth,
            is_in_multi: call.client.queue.is_open(),
            object: call.request.arg(0).to_vec(),
            user: name.to_vec(),
        };
        let now_ms = call.context.store.endpoint().unix_ms();
        call.client.note_refused(refused, now_ms);
        return Err(WRONG_PASSWORD.into());
    };
    call.client.become_user(user);
    Ok(())
}

pub(crate) async fn auth(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 if call.context.shared.users.default().needs_no_password() => return Err(NO_PASSWORD_SET.into()),
        2 => authenticate(call, DEFAULT, request.arg(1))?,
        3 => authenticate(call, request.arg(1), request.arg(2))?,
        _ => return Err(SYNTAX.into()),
    }
    call.reply.ok();
    Ok(())
}

pub(crate) async fn hello(call: &mut Call<'_>) -> Handled {
    let request = call.request;
    let mut protocol = None;
    if request.len() > 1 {
        let number = integer::parse(request.arg(1)).ok_or("ERR Protocol version is not an integer or out of range")?;
        protocol = Some(match number {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err("NOPROTO unsupported protocol version".into()),
        });
    }
    let mut name = None;
    let mut index = 2;
    while index < request.len() {
        if request.arg_is(index, "auth") && index + 2 < request.len() {
            authenticate(call, request.arg(index + 1), request.arg(index + 2))?;
            index += 3;
        } else if request.arg_is(index, "setname") && index + 1 < request.len() {
            name = Some(request.arg(index + 1));
            index += 2;
        } else {
            let option = super::excerpt(request.arg(index));
            return Err(Refusal::from(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if call.client.is_stranger() {
        return Err(HELLO_NEEDS_AUTH.into());
    }
    if let Some(name) = name {
        call.client.set_name(name)?;
    }
    if let Some(protocol) = protocol {
        call.reply.set_protocol(protocol);
    }
    greet(call);
    Ok(())
}

fn greet(call: &mut Call<'_>) {
    let version = match call.reply.protocol() {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    let reply = &mut *call.reply;
    reply.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(version);
    reply.bulk(b"id");
    reply.count(call.client.card.id);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}
