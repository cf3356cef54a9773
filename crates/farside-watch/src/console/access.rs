//! Who may see keys, values and people, and change something.
//!
//! 1. Who has logged in: the browser sends the token of its session, and the session has a connection to the gateway on which
//!    the password was given. The gateway itself has checked it, and knows whose commands they are.
//! 2. If the gateway asks for no password: clients of this machine itself. A page elsewhere must not become one by giving its
//!    own name this machine's address (DNS rebinding), so the browser has to say that it asked for `localhost` or such; and
//!    a proxy, behind which everybody looks like this machine, must not have said that it is one.
//! 3. Nobody else.
//!
//! Beside that, requests that a page of another site makes the browser send are refused (`same_site`, `own_page`).

use core::cell::{Cell, RefCell};
use core::hint::black_box;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::SocketAddr;
use std::rc::Rc;

use farside_fabric::host::HostClock;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{StatusCode, Uri};
use redis_protocol::resp2::types::OwnedFrame;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::Asked;
use super::link::Link;
use super::reply::{Answer, Page, Refusal, say};
use crate::metrics::Source;

/// A session that nobody uses ends after a quarter of an hour.
const IDLE_NS: u64 = 15 * 60 * 1_000_000_000;
/// Sessions at once; the one that was not used for longest gives way.
const SESSIONS_MAX: usize = 64;
/// How many wrong passwords are looked at within a second.
const FAILURES_MAX: u32 = 5;
const FAILURES_NS: u64 = 1_000_000_000;
/// For how long is believed whether the gateway asks for a password.
const DOOR_NS: u64 = 5_000_000_000;
/// What proxies say.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "via"];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const LOGIN_FIRST: &str = "log in first";
const NOT_FROM_HERE: &str = "this gateway has no password: only clients of its own machine, at an address such as localhost \
                             and without a proxy, see keys and people";

/// Several requests of a browser take turns.
pub(super) type SharedLink = Rc<Mutex<Link>>;

/// What a login is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    user: String,
    password: String,
}

struct Session {
    token: [u8; 32],
    user: String,
    link: SharedLink,
    used_ns: Cell<u64>,
}

/// What happens to strangers at the gateway.
#[derive(Clone)]
enum Door {
    /// They are served.
    Open(SharedLink),
    /// They have to give a password.
    Locked,
}

/// All sessions.
pub(super) struct Access {
    cookie: String,
    sessions: RefCell<Vec<Rc<Session>>>,
    door: RefCell<Option<(u64, Door)>>,
    /// When the present second of failures began, and how many it has had.
    failures: Cell<(u64, u32)>,
}

impl Access {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            // Browsers do not tell ports of a host apart when they send cookies.
            cookie: format!("farside-console-{}", address.port()),
            sessions: RefCell::default(),
            door: RefCell::default(),
            failures: Cell::default(),
        }
    }

    /// What the page is to offer, and as whom it is logged in.
    pub(super) async fn describe(&self, asked: &Asked, source: &dyn Source) -> (&'static str, Option<String>) {
        if let Some(session) = self.session(asked) {
            return ("session", Some(session.user.clone()));
        }
        match self.door(source).await {
            Ok(Door::Open(_)) if is_own(asked) => ("open", None),
            Ok(Door::Open(_)) => ("none", None),
            Ok(Door::Locked) => ("login", None),
            Err(_) => ("absent", None),
        }
    }

    /// A connection for whoever asks.
    pub(super) async fn link(&self, asked: &Asked, source: &dyn Source) -> Result<SharedLink, Refusal> {
        if let Some(session) = self.session(asked) {
            return Ok(Rc::clone(&session.link));
        }
        match self.door(source).await? {
            Door::Open(link) if is_own(asked) => Ok(link),
            Door::Open(_) => Err(Refusal::new(StatusCode::FORBIDDEN, NOT_FROM_HERE)),
            Door::Locked => Err(Refusal::new(StatusCode::UNAUTHORIZED, LOGIN_FIRST)),
        }
    }

    /// Whether a password of this client is looked at.
    pub(super) async fn check_login(&self, asked: &Asked, source: &dyn Source) -> Result<(), Refusal> {
        if let Door::Open(_) = self.door(source).await?
            && !is_own(asked)
        {
            return Err(Refusal::new(StatusCode::FORBIDDEN, NOT_FROM_HERE));
        }
        Ok(())
    }

    /// Begins a session, if the gateway accepts the password.
    pub(super) async fn login(&self, login: &Login, peer: SocketAddr, source: &dyn Source) -> Answer {
        let (began_ns, count) = self.failures.get();
        let now_ns = HostClock.now_ns();
        let is_new = now_ns.saturating_sub(began_ns) >= FAILURES_NS;
        if !is_new && count >= FAILURES_MAX {
            let line = "too many wrong passwords: try again in a second";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, line));
        }
        // Counted before the answer is there, so that many at once are no way around it.
        self.failures
            .set(if is_new { (now_ns, 1) } else { (began_ns, count + 1) });
        let mut link = Link::open(connect(source)?)?;
        match link
            .ask(&[b"AUTH", login.user.as_bytes(), login.password.as_bytes()])
            .await?
        {
            OwnedFrame::SimpleString(_) => {}
            OwnedFrame::Error(line) if line.starts_with("WRONGPASS") => {
                tracing::warn!(%peer, "a login to the console was refused");
                return Err(Refusal::new(StatusCode::UNAUTHORIZED, "wrong user or password"));
            }
            OwnedFrame::Error(line) => return Err(Refusal::new(StatusCode::FORBIDDEN, line)),
            _ => return Err(Refusal::new(StatusCode::BAD_GATEWAY, "the gateway gave no answer")),
        }
        tracing::info!(%peer, user = login.user, "a login to the console");
        let (began_ns, count) = self.failures.get();
        self.failures.set((began_ns, count.saturating_sub(1)));
        // For lists of clients; a user who may not do that has no name there.
        link.ask(&[b"CLIENT", b"SETNAME", b"console"]).await?;
        let mut token = [0; 32];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut token));
        random
            .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random number: {error}")))?;
        let session = Session {
            token,
            user: login.user.clone(),
            link: Rc::new(Mutex::new(link)),
            used_ns: Cell::new(HostClock.now_ns()),
        };
        let mut sessions = self.sessions.borrow_mut();
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions
                .iter()
                .enumerate()
                .min_by_key(|(_, session)| session.used_ns.get());
            if let Some((index, _)) = oldest {
                sessions.remove(index);
            }
        }
        sessions.push(Rc::new(session));
        let text = token.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Ok(self.with_cookie(&text, ""))
    }

    /// Ends the session of this browser, if it has one.
    pub(super) fn logout(&self, asked: &Asked) -> Page {
        if let Some(ended) = self.session(asked) {
            self.sessions
                .borrow_mut()
                .retain(|session| !Rc::ptr_eq(session, &ended));
        }
        self.with_cookie("", "; Max-Age=0")
    }

    fn with_cookie(&self, value: &str, more: &str) -> Page {
        let mut page = say(&json!({}));
        let cookie = format!("{}={value}; HttpOnly; SameSite=Strict; Path=/{more}", self.cookie);
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            page.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        page
    }

    /// The session of this browser; those that are over are forgotten.
    fn session(&self, asked: &Asked) -> Option<Rc<Session>> {
        let now_ns = HostClock.now_ns();
        let mut sessions = self.sessions.borrow_mut();
        sessions.retain(|session| {
            // One that is in use is not broken yet.
            let is_broken = session.link.try_lock().is_ok_and(|link| link.is_broken());
            !is_broken && now_ns.saturating_sub(session.used_ns.get()) < IDLE_NS
        });
        let offered = cookies(asked.request.headers()).find_map(|cookie| {
            let value = cookie.strip_prefix(&self.cookie)?.strip_prefix('=')?;
            token_of(value)
        })?;
        let found = sessions.iter().find(|session| is_same(&session.token, &offered))?;
        found.used_ns.set(now_ns);
        Some(Rc::clone(found))
    }

    /// Finds out what happens to strangers, by being one.
    async fn door(&self, source: &dyn Source) -> Result<Door, Refusal> {
        let now_ns = HostClock.now_ns();
        let known = self.door.borrow().clone();
        if let Some((seen_ns, door)) = known
            && now_ns.saturating_sub(seen_ns) < DOOR_NS
            && !matches!(&door, Door::Open(link) if link.try_lock().is_ok_and(|link| link.is_broken()))
        {
            return Ok(door);
        }
        let mut link = Link::open(connect(source)?)?;
        let reply = link.ask(&[b"CLIENT", b"SETNAME", b"console"]).await?;
        let door = match reply {
            OwnedFrame::Error(line) if line.starts_with("NOAUTH") => Door::Locked,
            _ => Door::Open(Rc::new(Mutex::new(link))),
        };
        *self.door.borrow_mut() = Some((now_ns, door.clone()));
        Ok(door)
    }
}

fn connect(source: &dyn Source) -> Result<std::io::Result<std::os::unix::net::UnixStream>, Refusal> {
    source.connect().ok_or_else(|| {
        let line = "a memory node knows no keys and no clients: ask a gateway";
        Refusal::new(StatusCode::NOT_FOUND, line)
    })
}

/// All cookies, as `name=value`.
fn cookies(head: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = head
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).map(str::trim)
}

fn token_of(text: &str) -> Option<[u8; 32]> {
    super::keys::from_hex(text)?.try_into().ok()
}

/// Takes the same time wherever they differ.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let pairs = one.iter().zip(other);
    pairs.fold(0, |difference, (one, other)| black_box(difference | (one ^ other))) == 0
}

/// Whether a client of this machine itself asks, which meant this machine.
fn is_own(asked: &Asked) -> bool {
    let head = asked.request.headers();
    let is_forwarded = FORWARDED.iter().any(|name| head.contains_key(*name));
    let host = head.get(header::HOST).and_then(|host| host.to_str().ok());
    asked.peer.ip().to_canonical().is_loopback() && !is_forwarded && host.is_some_and(is_this_machine)
}

/// Whether a name, with or without a port, can mean nothing but this machine.
fn is_this_machine(host: &str) -> bool {
    let Ok(uri) = format!("http://{host}/").parse::<Uri>() else {
        return false;
    };
    let Some(name) = uri.host() else { return false };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.to_canonical().is_loopback())
}

/// Refuses what a page of another site makes a browser ask.
pub(super) fn same_site(head: &HeaderMap) -> Result<(), Refusal> {
    match head.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "a page of another site asks: open the console itself",
        )),
    }
}

/// Refuses a change unless the console's own page asks for it: the browser says so.
pub(super) fn own_page(head: &HeaderMap) -> Result<(), Refusal> {
    same_site(head)?;
    let refusal = |line| Err(Refusal::new(StatusCode::FORBIDDEN, line));
    match head.get(header::ORIGIN) {
        Some(origin) => {
            let origin = origin.to_str().unwrap_or_default();
            let place = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"));
            let host = head.get(header::HOST).and_then(|host| host.to_str().ok());
            match place.zip(host) {
                Some((place, host)) if place.eq_ignore_ascii_case(host) => Ok(()),
                _ => refusal("a page of another site asks: open the console itself"),
            }
        }
        None if head.contains_key(SEC_FETCH_SITE) => Ok(()),
        None => refusal("who asks for a change says from where: send Origin, with the address of the console"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_this_machine_are_few() {
        for host in [
            "localhost",
            "LOCALHOST:9121",
            "127.0.0.1:9121",
            "127.5.5.5",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "localhost.example.org",
            "127.0.0.1.example.org:9121",
            "10.0.0.1",
            "[::2]:1",
            "0.0.0.0",
            "evil@127.0.0.1.nip.io",
            "a b",
            "localhost/..",
            "localhost:9121#",
        ] {
            let is_odd = host.starts_with("localhost/") || host.ends_with('#');
            assert!(is_odd || !is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn only_the_pages_own_origin_may_change_something() {
        let judge = |lines: &[(&'static str, &'static str)]| {
            let lines = lines
                .iter()
                .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            own_page(&lines.collect()).is_ok()
        };
        let host = ("host", "127.0.0.1:9121");
        assert!(judge(&[host, ("origin", "http://127.0.0.1:9121")]));
        assert!(judge(&[host, ("sec-fetch-site", "same-origin")]));
        for wrong in [
            &[host][..],
            &[host, ("origin", "http://127.0.0.1:9122")],
            &[host, ("origin", "null")],
            &[
                host,
                ("origin", "http://127.0.0.1:9121"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[host, ("sec-fetch-site", "same-site")],
            &[("origin", "http://127.0.0.1:9121")],
        ] {
            assert!(!judge(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn tokens_are_the_same_or_not() {
        let token = [7; 32];
        assert!(is_same(&token, &[7; 32]));
        for place in 0..32 {
            let mut other = token;
            other[place] ^= 1;
            assert!(!is_same(&token, &other));
        }
        assert_eq!(token_of(&"07".repeat(32)), Some(token));
        assert!(token_of("07").is_none() && token_of(&"0x".repeat(32)).is_none());
    }
}
