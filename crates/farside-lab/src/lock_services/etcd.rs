//! etcd's own lock (`v3lock`), through its gateway for JSON: a lease for each client, and waiting in the server.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::Error;
use tokio::net::TcpStream;

use super::run::Service;
use crate::error::BenchError;

/// How long the locks of a client live that dies.
const LIFE_S: u64 = 60;

/// A client with a connection and a lease.
pub(super) struct EtcdLock {
    address: String,
    connection: SendRequest<Full<Bytes>>,
    lease: Value,
    /// What the server calls the lock that is held.
    key: Value,
}

impl EtcdLock {
    pub(super) async fn connect(address: &str) -> Result<Self, BenchError> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(BenchError::system("connect to etcd"))?;
        stream
            .set_nodelay(true)
            .map_err(BenchError::system("connect to etcd"))?;
        let (connection, work) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
        #[expect(clippy::disallowed_methods, reason = "what is measured here is no fabric")]
        tokio::task::spawn_local(work);
        let mut lock = Self {
            address: address.to_owned(),
            connection,
            lease: Value::Null,
            key: Value::Null,
        };
        let granted = lock.call("/v3/lease/grant", &json!({ "TTL": LIFE_S })).await?;
        lock.lease = granted["ID"].clone();
        Ok(lock)
    }

    async fn call(&mut self, path: &str, body: &Value) -> Result<Value, BenchError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))
            .expect("the parts are well-formed");
        self.connection.ready().await.map_err(failed)?;
        let response = self.connection.send_request(request).await.map_err(failed)?;
        let is_fine = response.status().is_success();
        let bytes = response.into_body().collect().await.map_err(failed)?.to_bytes();
        if !is_fine {
            return Err(failed(String::from_utf8_lossy(&bytes)));
        }
        serde_json::from_slice(&bytes).map_err(failed)
    }
}

fn failed(error: impl ToString) -> BenchError {
    BenchError::system("talk to etcd")(Error::other(error.to_string()))
}

impl Service for EtcdLock {
    async fn try_lock(&mut self, name: &str) -> Result<bool, BenchError> {
        let body = json!({ "name": name, "lease": self.lease });
        let granted = self.call("/v3/lock/lock", &body).await?;
        self.key = granted["key"].clone();
        Ok(true)
    }

    async fn unlock(&mut self, _: &str) -> Result<(), BenchError> {
        let body = json!({ "key": self.key.take() });
        self.call("/v3/lock/unlock", &body).await.map(drop)
    }
}
