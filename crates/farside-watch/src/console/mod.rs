//! The console: what a browser shows at the address of `--metrics`.
//!
//! On the path: nowhere; people look. The thread of the metrics answers: files that are part of the program, and JSON under `/api/`.
//!
//! - `/api/status` has numbers alone: rates, latencies, memory, nodes. Whoever sees the metrics may see it.
//! - Everything that shows keys, values or people, and every change, is a command that goes over a connection to the gateway
//!   (`link`), as any client's: the gateway decides what its user may do.
//! - `access` decides who gets such a connection: who has logged in, or this machine's own clients if no password is asked for.

mod access;
mod keys;
mod link;
mod people;
mod reply;
mod status;

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;

use self::access::{Access, Login};
pub(crate) use self::reply::Page;
use self::reply::{Answer, Refusal, file, refuse, say};
use self::status::Status;
use crate::metrics::Source;

/// No request has a longer body: a value that can be edited, twice as long in hexadecimal digits, and the rest.
const BODY_BYTES_MAX: usize = 2 * keys::VALUE_BYTES_SHOWN + (128 << 10);

/// Where a file is, of what type it is, and the file.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html", include_str!("page/index.html")),
    ("/console.css", "text/css", include_str!("page/console.css")),
    ("/console.js", "text/javascript", include_str!("page/console.js")),
    ("/charts.js", "text/javascript", include_str!("page/charts.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];
/// What is asked for.
const READ: [&str; 5] = ["/api/status", "/api/people", "/api/keys", "/api/key", "/api/count"];
/// What changes something.
const CHANGED: [&str; 6] = [
    "/api/login",
    "/api/logout",
    "/api/create",
    "/api/replace",
    "/api/expire",
    "/api/delete",
];

/// What the console remembers between two requests.
pub(crate) struct Console {
    access: Access,
    status: Status,
}

/// A request as the console sees it.
pub(crate) struct Asked {
    pub(crate) request: Request<Incoming>,
    pub(crate) peer: SocketAddr,
}

impl Console {
    /// The console at this address.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            access: Access::new(address),
            status: Status::new(address),
        }
    }

    /// The answer to a request; `None` if the console has nothing there.
    pub(crate) async fn answer(&self, asked: Asked, source: &dyn Source) -> Option<Page> {
        let path = asked.request.uri().path().to_owned();
        let method = asked.request.method();
        let is_reading = matches!(*method, Method::GET | Method::HEAD);
        let answer = if let Some(&(_, kind, text)) = FILES.iter().find(|(name, ..)| *name == path) {
            match is_reading {
                true => Ok(file(kind, text)),
                false => Err(Refusal::method("GET, HEAD")),
            }
        } else if READ.contains(&path.as_str()) {
            match is_reading {
                true => Box::pin(self.read(&path, &asked, source)).await,
                false => Err(Refusal::method("GET, HEAD")),
            }
        } else if CHANGED.contains(&path.as_str()) {
            match *method == Method::POST {
                true => Box::pin(self.change(&path, asked, source)).await,
                false => Err(Refusal::method("POST")),
            }
        } else {
            return None;
        };
        Some(answer.unwrap_or_else(|refusal| refuse(&refusal)))
    }

    async fn read(&self, path: &str, asked: &Asked, source: &dyn Source) -> Answer {
        let head = asked.request.headers();
        access::same_site(head)?;
        let query = asked.request.uri().query().unwrap_or_default();
        if path == "/api/status" {
            let (access, user) = self.access.describe(asked, source).await;
            return Ok(say(&self.status.tell(query, source, access, user).await));
        }
        let link = self.access.link(asked, source).await?;
        let mut link = link.lock().await;
        let value = match path {
            "/api/people" => people::tell(&mut link).await?,
            "/api/keys" => keys::list(&mut link, query).await?,
            "/api/key" => keys::show(&mut link, query).await?,
            _ => json!({ "keys": link.number(&[b"DBSIZE"]).await? }),
        };
        Ok(say(&value))
    }

    async fn change(&self, path: &str, asked: Asked, source: &dyn Source) -> Answer {
        access::own_page(asked.request.headers())?;
        if path == "/api/logout" {
            return Ok(self.access.logout(&asked));
        }
        if path == "/api/login" {
            self.access.check_login(&asked, source).await?;
            let peer = asked.peer;
            let login: Login = body(asked.request, "{\"user\": \"..\", \"password\": \"..\"}").await?;
            return self.access.login(&login, peer, source).await;
        }
        let link = self.access.link(&asked, source).await?;
        let change: keys::Change = body(asked.request, keys::Change::LIKE).await?;
        let mut link = link.lock().await;
        keys::change(&mut link, path, &change).await.map(|value| say(&value))
    }
}

/// The body of a request, which is `like` that.
async fn body<T: DeserializeOwned>(request: Request<Incoming>, like: &str) -> Result<T, Refusal> {
    let head = request.headers();
    let kind = head
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    if !kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .eq_ignore_ascii_case("application/json")
    {
        let line = format!("this wants a body of the type application/json, such as {like}");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line));
    }
    let length = head
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let long = || {
        let line = format!("the body is too long: at most {BODY_BYTES_MAX} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, line)
    };
    if length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(long());
    }
    let bytes = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    let bytes = bytes.map_err(|_| long())?.to_bytes();
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::bad(format!("the body should be JSON like {like}: {error}")))
}
