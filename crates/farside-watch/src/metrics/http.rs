//! HTTP for the console, metrics and probes: one answer per connection, a few connections at once, none for long.
//!
//! `/metrics` is for Prometheus. `/healthz` says that the process answers, `/readyz` whether it serves clients: 200, or 503 and a
//! line that says why not.

use core::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::Deadline;
use farside_fabric::host::{HostClock, spawn_local};
use farside_gateway::metrics;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::Source;
use crate::console::{Asked, Console, Page};

/// How long a connection may last.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Connections at once; more wait in the listener.
const CONNECTIONS_MAX: usize = 16;
/// How long to wait when no connection can be accepted.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// What is asked, and what answers.
struct Service {
    source: Box<dyn Source>,
    console: Console,
}

/// Starts the thread that answers.
pub(super) fn start(listener: TcpListener, source: Box<dyn Source>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = listener.local_addr()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let serve = move || {
        let console = Console::new(address);
        let service = Rc::new(Service { source, console });
        LocalSet::new().block_on(&runtime, accept(listener, service));
    };
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(serve)
        .map(drop)
}

async fn accept(listener: tokio::net::TcpListener, service: Rc<Service>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let place = places.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                let service = Rc::clone(&service);
                spawn_local(Box::pin(async move {
                    serve(stream, peer, service).await;
                    drop(place);
                }));
            }
            Err(error) => {
                tracing::warn!("cannot accept a scrape of the metrics: {error}");
                HostClock.sleep(ACCEPT_PAUSE_NS).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, service: Rc<Service>) {
    let answer = service_fn(|request| {
        let service = Rc::clone(&service);
        async move { Ok::<_, Infallible>(answer(Asked { request, peer }, &service).await) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    let deadline = Deadline(HostClock.now_ns().saturating_add(PATIENCE_NS));
    match HostClock.until(deadline, connection).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!("a scrape of the metrics broke: {error}"),
        None => tracing::debug!("a scrape of the metrics took too long"),
    }
}

async fn answer(asked: Asked, service: &Service) -> Page {
    match asked.request.uri().path() {
        "/metrics" | "/healthz" | "/readyz" => answer_machine(&asked.request, &*service.source).await,
        _ => match service.console.answer(asked, &*service.source).await {
            Some(page) => page,
            None => plain(
                StatusCode::NOT_FOUND,
                "there are / (the console), /metrics, /healthz and /readyz",
            ),
        },
    }
}

async fn answer_machine(request: &Request<Incoming>, source: &dyn Source) -> Page {
    let path = request.uri().path();
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "this can only be read: use GET");
        refusal
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    if path == "/healthz" {
        return plain(StatusCode::OK, "alive");
    }
    if path == "/readyz" {
        return match source.readiness().await {
            Ok(()) => plain(StatusCode::OK, "ready"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, &why),
        };
    }
    match metrics::encode(source.families().await) {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}

fn plain(status: StatusCode, line: &str) -> Page {
    let mut response = Response::new(Full::from(format!("{line}\n")));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
