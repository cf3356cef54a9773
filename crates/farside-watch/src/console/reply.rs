//! Answers of the console: files, JSON, and refusals of one line.
//!
//! Invariant: whatever the console sends tells the browser to run and to show nothing that is not of this address, and to
//! believe the type that is said.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;

/// What is sent.
pub(crate) type Page = Response<Full<Bytes>>;
/// What is sent, or why not.
pub(super) type Answer = Result<Page, Refusal>;

/// Only files of this address; no other page may show this one in a frame, and no form may lead elsewhere.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const GUARDS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Why a request is refused; one line.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    line: String,
    allow: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, line: impl Into<String>) -> Self {
        Self {
            status,
            line: line.into(),
            allow: None,
        }
    }

    /// What was asked makes no sense.
    pub(super) fn bad(line: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, line)
    }

    /// This is asked in another way.
    pub(super) fn method(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("this is asked with {allow}"))
        }
    }
}

fn guarded(status: StatusCode, kind: &'static str, cache: &'static str, body: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::from(body.into()));
    *page.status_mut() = status;
    let head = page.headers_mut();
    for (name, value) in GUARDS {
        head.insert(name, HeaderValue::from_static(value));
    }
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    page
}

/// A file of the program; another version may have another one.
pub(super) fn file(kind: &'static str, text: &'static str) -> Page {
    let mut page = guarded(StatusCode::OK, kind, "no-cache", text);
    if let Ok(kind) = HeaderValue::from_str(&format!("{kind}; charset=utf-8")) {
        page.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    page
}

/// JSON.
pub(super) fn say(value: &Value) -> Page {
    guarded(StatusCode::OK, "application/json", "no-store", value.to_string())
}

/// A refusal; what others have put into the line cannot break it.
pub(super) fn refuse(refusal: &Refusal) -> Page {
    let line: String = refusal.line.chars().filter(|letter| !letter.is_control()).collect();
    let mut page = guarded(refusal.status, "text/plain; charset=utf-8", "no-store", line + "\n");
    if let Some(allow) = refusal.allow {
        page.headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    page
}
