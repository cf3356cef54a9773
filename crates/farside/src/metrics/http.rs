//! HTTP for metrics and probes: one answer per connection, a few connections at once, none for long.
//!
//! `/metrics` is for Prometheus. `/healthz` says that the process answers, `/readyz` whether it serves clients: 200, or 503 and a
//! line that says why not.

use core::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::Deadline;
use farside_fabric::host::{HostClock, spawn_local};
use farside_gateway::metrics;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::Source;

/// How long a connection may last.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Connections at once; more wait in the listener.
const CONNECTIONS_MAX: usize = 16;
/// How long to wait when no connection can be accepted.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// Starts the thread that answers.
pub(super) fn start(listener: TcpListener, source: Box<dyn Source>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let serve = move || LocalSet::new().block_on(&runtime, accept(listener, Rc::from(source)));
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(serve)
        .map(drop)
}

async fn accept(listener: tokio::net::TcpListener, source: Rc<dyn Source>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let place = places.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = Rc::clone(&source);
                spawn_local(Box::pin(async move {
                    serve(stream, source).await;
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

async fn serve(stream: TcpStream, source: Rc<dyn Source>) {
    let answer = service_fn(|request| {
        let source = Rc::clone(&source);
        async move { Ok::<_, Infallible>(answer(&request, &*source).await) }
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

async fn answer(request: &Request<Incoming>, source: &dyn Source) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
        return plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz");
    }
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

fn plain(status: StatusCode, line: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{line}\n")));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
