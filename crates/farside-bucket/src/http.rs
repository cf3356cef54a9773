//! HTTP/1.1 for `object_store`: hyper over a socket of tokio, with TLS by rustls and the certificates of the system
//! (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).
//!
//! Connections are kept for the next request. One that breaks is reported as such, and `object_store` asks again.

use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Uri, http::uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a connection may take to be made, TLS included.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may take from the first byte of the request on: a part of an object may have a slow way.
const ANSWER: Duration = Duration::from_secs(300);
/// How long the next piece of an answer may take.
const PIECE: Duration = Duration::from_secs(60);

/// Makes clients.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is_plain_allowed = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        Ok(HttpClient::new(Client {
            is_plain_allowed,
            idle: Arc::default(),
            tls: OnceLock::new(),
        }))
    }
}

/// Connections that wait for their next request, with whom they lead to.
type Idle = Mutex<Vec<(Peer, SendRequest<HttpRequestBody>)>>;

#[derive(Debug)]
struct Client {
    is_plain_allowed: bool,
    idle: Arc<Idle>,
    /// Made when it is first needed: certificates are read from many files.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// Whom a connection leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Peer {
    is_tls: bool,
    host: String,
    port: u16,
}

impl Peer {
    fn of(uri: &Uri) -> Result<Self, HttpError> {
        let wrong = || {
            HttpError::new(
                HttpErrorKind::Unknown,
                Reason(format!("{uri} is no address of a web server")),
            )
        };
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { is_tls, host, port })
    }
}

/// An error that is a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reason(String);

fn failed(kind: HttpErrorKind, what: &str, peer: &Peer) -> HttpError {
    HttpError::new(kind, Reason(format!("{}:{}: {what}", peer.host, peer.port)))
}

fn kind(error: &hyper::Error) -> HttpErrorKind {
    if error.is_parse() {
        HttpErrorKind::Decode
    } else if error.is_canceled() || error.is_closed() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Interrupted
    }
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().clone();
        let peer = Peer::of(&uri)?;
        if !peer.is_tls && !self.is_plain_allowed {
            let what = "http:// sends everything in the clear: set AWS_ALLOW_HTTP=true if that is meant (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP)";
            return Err(failed(HttpErrorKind::Unknown, what, &peer));
        }
        if !request.headers().contains_key(HOST) {
            let host = uri.authority().map_or("", |authority| authority.as_str());
            let host = HeaderValue::from_str(host);
            let host = host.map_err(|error| failed(HttpErrorKind::Unknown, &error.to_string(), &peer))?;
            request.headers_mut().insert(HOST, host);
        }
        let path = uri.path_and_query().cloned();
        *request.uri_mut() = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
        let mut sender = match self.idle_one(&peer).await {
            Some(sender) => sender,
            None => within(CONNECT, self.connect(&peer)).await.unwrap_or_else(|| {
                Err(failed(
                    HttpErrorKind::Timeout,
                    "no connection within ten seconds",
                    &peer,
                ))
            })?,
        };
        let answer = within(ANSWER, sender.send_request(request)).await;
        let answer = answer.ok_or_else(|| failed(HttpErrorKind::Timeout, "no answer within five minutes", &peer))?;
        let answer = answer.map_err(|error| failed(kind(&error), &error.to_string(), &peer))?;
        let idle = Arc::clone(&self.idle);
        Ok(answer.map(|body| {
            HttpResponseBody::new(Answer {
                body,
                patience: Box::pin(tokio::time::sleep(PIECE)),
                connection: Some((peer, sender)),
                idle,
            })
        }))
    }
}

impl Client {
    /// A connection that waits, and still is one.
    async fn idle_one(&self, peer: &Peer) -> Option<SendRequest<HttpRequestBody>> {
        loop {
            let mut sender = {
                let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
                let place = idle.iter().position(|(other, _)| other == peer)?;
                idle.swap_remove(place).1
            };
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(&self, peer: &Peer) -> Result<SendRequest<HttpRequestBody>, HttpError> {
        let no_connection = |error: &dyn core::error::Error| failed(HttpErrorKind::Connect, &error.to_string(), peer);
        let stream = TcpStream::connect((peer.host.as_str(), peer.port)).await;
        let stream = stream.map_err(|error| no_connection(&error))?;
        stream.set_nodelay(true).map_err(|error| no_connection(&error))?;
        if !peer.is_tls {
            return begin(stream, peer).await;
        }
        let tls = self.tls.get_or_init(tls);
        let tls = tls
            .as_ref()
            .map_err(|reason| failed(HttpErrorKind::Unknown, reason, peer))?;
        let name = ServerName::try_from(peer.host.clone()).map_err(|error| no_connection(&error))?;
        let tls = TlsConnector::from(Arc::clone(tls));
        let stream = tls.connect(name, stream).await.map_err(|error| no_connection(&error))?;
        begin(stream, peer).await
    }
}

fn tls() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let why = found.errors.first().map_or("", |error| error.context);
        return Err(format!(
            "no certificates to trust, {why}: install ca-certificates, or name a file in SSL_CERT_FILE"
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Speaks HTTP on a connection; a task drives it until either side closes it.
async fn begin<S>(stream: S, peer: &Peer) -> Result<SendRequest<HttpRequestBody>, HttpError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    TokioIo<S>: Read + Write,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(HttpErrorKind::Connect, &error.to_string(), peer))?;
    tokio::spawn(async {
        // Whoever waits for an answer is told what went wrong.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Waits for something, but no longer than that.
async fn within<T>(time: Duration, wanted: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, wanted).await.ok()
}

/// The body of an answer. When it is whole, its connection waits for the next request.
struct Answer {
    body: Incoming,
    patience: Pin<Box<tokio::time::Sleep>>,
    connection: Option<(Peer, SendRequest<HttpRequestBody>)>,
    idle: Arc<Idle>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.patience.as_mut().reset(tokio::time::Instant::now() + PIECE);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(HttpError::new(kind(&error), error)))),
            Poll::Ready(None) => {
                if let Some(connection) = this.connection.take() {
                    let mut idle = this.idle.lock().unwrap_or_else(PoisonError::into_inner);
                    idle.push(connection);
                }
                Poll::Ready(None)
            }
            Poll::Pending => this.patience.as_mut().poll(context).map(|()| {
                let reason = Reason("the answer stopped for a minute".to_owned());
                Some(Err(HttpError::new(HttpErrorKind::Timeout, reason)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
