//! Requests to etcd: which of its members is asked, for how long, and what it means if none answers.

use core::cell::Cell;
use core::pin::{Pin, pin};

use farside_fabric::Deadline;
use farside_fabric::host::HostClock;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::wire::{self, Change};

/// How long connecting may take, before the next member of etcd is asked.
const CONNECT_NS_MAX: u64 = 500_000_000;
/// How long an answer may take: etcd waits for its disks.
const ANSWER_NS_MAX: u64 = 2_000_000_000;
/// The longest answer and the longest line of a watch; views are a few hundred bytes.
const BYTES_MAX: usize = 16 << 20;

/// etcd cannot be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EtcdError {
    /// No connection, or no answer.
    #[error("etcd at {endpoint} does not answer: {reason}")]
    Unreachable {
        /// `host:port`.
        endpoint: String,
        /// What the system says.
        reason: String,
    },
    /// It says no.
    #[error("etcd at {endpoint} refuses {path}: {reason}")]
    Refused {
        /// `host:port`.
        endpoint: String,
        /// What was asked.
        path: &'static str,
        /// Why, and what would be right if that is known.
        reason: String,
    },
    /// The answer makes no sense.
    #[error("what answers at {endpoint} is not etcd 3.4 or later: {reason}")]
    Answer {
        /// `host:port`.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
}

type Requests = SendRequest<Full<Bytes>>;
type Driver = Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// Asks one member of etcd after the other.
#[derive(Debug)]
pub(crate) struct Client {
    endpoints: Vec<String>,
    /// The one that answered last.
    current: Cell<usize>,
}

impl Client {
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            current: Cell::new(0),
        }
    }

    /// The member of etcd that is asked first.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoints[self.current.get()]
    }

    /// Asks, from the one that answered last on, until one answers. What it reads is not older than any answer before.
    ///
    /// A request may be executed although nobody answers in time, and again by the next: whoever asks must bear that.
    pub(crate) async fn ask<T>(
        &self,
        path: &'static str,
        body: &Value,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, EtcdError> {
        let mut failure = None;
        for _ in 0..self.endpoints.len() {
            let endpoint = self.endpoint();
            let deadline = Deadline(HostClock.now_ns().saturating_add(ANSWER_NS_MAX));
            let asked = HostClock.until(deadline, exchange(endpoint, path, body)).await;
            let read = match asked {
                Some(Ok(bytes)) => read(&bytes).map_err(|reason| EtcdError::Answer {
                    endpoint: endpoint.to_owned(),
                    reason,
                }),
                Some(Err(error)) => Err(error),
                None => Err(unreachable(endpoint, "it takes too long")),
            };
            match read {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = failure.or(Some(error)),
            }
            self.skip();
        }
        // The first of them is where things usually work.
        Err(failure.expect("there is an endpoint, which failed"))
    }

    /// Another member of etcd is to be asked first.
    pub(crate) fn skip(&self) {
        self.current.set((self.current.get() + 1) % self.endpoints.len());
    }

    /// Watches a key from a revision on, through the member that answered last.
    pub(crate) async fn watch(&self, key: &str, revision: u64) -> Result<Watch, EtcdError> {
        let endpoint = self.endpoint().to_owned();
        let deadline = Deadline(HostClock.now_ns().saturating_add(ANSWER_NS_MAX));
        let body = wire::watch(key, revision);
        let opening = async {
            let (mut requests, driver) = connect(&endpoint).await?;
            let mut driver = Box::pin(driver);
            let response = with(
                driver.as_mut(),
                post(&mut requests, &endpoint, "/v3/watch", &body),
                &endpoint,
            )
            .await?;
            Ok((requests, driver, response))
        };
        let (requests, driver, response) = match HostClock.until(deadline, opening).await {
            Some(opened) => opened?,
            None => return Err(unreachable(&endpoint, "it takes too long")),
        };
        if response.status() != StatusCode::OK {
            return Err(refusal(&endpoint, "/v3/watch", response.status(), b""));
        }
        Ok(Watch {
            endpoint,
            driver,
            body: response.into_body(),
            line: Vec::new(),
            _requests: requests,
        })
    }
}

/// What happens to a key, as it happens.
pub(crate) struct Watch {
    endpoint: String,
    driver: Pin<Box<Driver>>,
    body: Incoming,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The connection lasts as long as somebody may send.
    _requests: Requests,
}

impl Watch {
    /// Which member of etcd tells.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Waits for the next change. May be given up and called again.
    pub(crate) async fn next(&mut self) -> Result<Vec<Change>, EtcdError> {
        loop {
            if let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                let read = wire::read_watch(&line);
                return read.map_err(|reason| unreachable(&self.endpoint, &reason));
            }
            let ended = || unreachable(&self.endpoint, "it closed the connection of a watch");
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                _ = self.driver.as_mut() => return Err(ended()),
            };
            let frame = frame
                .ok_or_else(ended)?
                .map_err(|error| unreachable(&self.endpoint, &error.to_string()))?;
            if let Some(data) = frame.data_ref() {
                self.line.extend_from_slice(data);
            }
            if self.line.len() > BYTES_MAX {
                return Err(unreachable(&self.endpoint, "a line without an end"));
            }
        }
    }
}

fn unreachable(endpoint: &str, reason: &str) -> EtcdError {
    EtcdError::Unreachable {
        endpoint: endpoint.to_owned(),
        reason: reason.to_owned(),
    }
}

fn refusal(endpoint: &str, path: &'static str, status: StatusCode, body: &[u8]) -> EtcdError {
    let said = wire::read_error(body);
    let reason = match status {
        StatusCode::NOT_FOUND if !said.contains("etcdserver") => {
            "there is no JSON gateway: run etcd 3.4 or later, with --enable-grpc-gateway".to_owned()
        }
        _ if said.contains("user name is empty")
            || said.contains("permission denied")
            || said.contains("auth token") =>
        {
            format!("{said}: users of etcd are not supported, so switch authentication off and let only nodes reach it")
        }
        _ => format!("{said} ({status})"),
    };
    EtcdError::Refused {
        endpoint: endpoint.to_owned(),
        path,
        reason,
    }
}

async fn connect(endpoint: &str) -> Result<(Requests, Driver), EtcdError> {
    let deadline = Deadline(HostClock.now_ns().saturating_add(CONNECT_NS_MAX));
    let connecting = async {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>(stream)
    };
    let stream = match HostClock.until(deadline, connecting).await {
        Some(stream) => stream.map_err(|error| unreachable(endpoint, &error.to_string()))?,
        None => return Err(unreachable(endpoint, "no connection in time")),
    };
    let shaken = handshake(TokioIo::new(stream)).await;
    shaken.map_err(|error| unreachable(endpoint, &error.to_string()))
}

async fn post(
    requests: &mut Requests,
    endpoint: &str,
    path: &'static str,
    body: &Value,
) -> Result<Response<Incoming>, EtcdError> {
    let request = Request::post(path)
        .header(HOST, endpoint)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())));
    let request = request.map_err(|error| unreachable(endpoint, &error.to_string()))?;
    let response = requests.send_request(request).await;
    response.map_err(|error| unreachable(endpoint, &error.to_string()))
}

/// Does work that the connection has to be driven for.
async fn with<T>(
    mut driver: Pin<&mut Driver>,
    work: impl Future<Output = Result<T, EtcdError>>,
    endpoint: &str,
) -> Result<T, EtcdError> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => done,
        ended = &mut driver => {
            ended.map_err(|error| unreachable(endpoint, &error.to_string()))?;
            // The other side has closed it after the answer.
            work.await
        }
    }
}

/// One request over a connection of its own: they are few.
async fn exchange(endpoint: &str, path: &'static str, body: &Value) -> Result<Bytes, EtcdError> {
    let (mut requests, driver) = connect(endpoint).await?;
    let asking = async {
        let response = post(&mut requests, endpoint, path, body).await?;
        let status = response.status();
        let body = http_body_util::Limited::new(response.into_body(), BYTES_MAX)
            .collect()
            .await;
        let bytes = body
            .map_err(|error| unreachable(endpoint, &error.to_string()))?
            .to_bytes();
        match status {
            StatusCode::OK => Ok(bytes),
            _ => Err(refusal(endpoint, path, status, &bytes)),
        }
    };
    with(pin!(driver), asking, endpoint).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_would_be_right() {
        let old = refusal("a:1", "/v3/kv/range", StatusCode::NOT_FOUND, b"404 page not found\n");
        assert_eq!(
            old.to_string(),
            "etcd at a:1 refuses /v3/kv/range: there is no JSON gateway: run etcd 3.4 or later, with --enable-grpc-gateway"
        );
        let users =
            br#"{"error":"etcdserver: user name is empty","message":"etcdserver: user name is empty","code":3}"#;
        let users = refusal("a:1", "/v3/kv/range", StatusCode::BAD_REQUEST, users).to_string();
        assert!(users.contains("users of etcd are not supported"), "{users}");
    }

    #[test]
    fn whoever_does_not_answer_is_named() {
        let client = Client::new(vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()]);
        let asked =
            farside_fabric::host::on_this_thread(client.ask("/v3/kv/range", &wire::range("a"), wire::read_range));
        let error = asked.expect("a loop").expect_err("nobody listens there").to_string();
        assert!(error.starts_with("etcd at 127.0.0.1:1 does not answer: "), "{error}");
    }
}
