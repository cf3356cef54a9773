//! Reading an object: its parts are fetched ahead, a few at a time, and handed on in their order.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use hyper::body::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::{BucketError, Object, PART_BYTES, PARTS_MAX};

/// Reads an object from its beginning. If it is replaced meanwhile, reading fails: what was read is never of two objects.
#[derive(Debug)]
pub struct ObjectReader {
    /// What was fetched and not yet read.
    rest: Bytes,
    /// Further parts; closed behind the last one.
    parts: mpsc::Receiver<Result<Bytes, BucketError>>,
}

/// Which object is read, as it was when reading began.
#[derive(Clone)]
struct Source {
    store: Arc<dyn ObjectStore>,
    path: Path,
    version: Option<String>,
}

impl Source {
    async fn fetch(self, from: u64, to: u64) -> object_store::Result<Bytes> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(from..to)),
            if_match: self.version,
            ..GetOptions::default()
        };
        self.store.get_opts(&self.path, options).await?.bytes().await
    }
}

impl ObjectReader {
    pub(crate) fn open(object: Object) -> Result<Self, BucketError> {
        let Object {
            address,
            store,
            path,
            runtime,
        } = object;
        let head = runtime.block_on(store.head(&path));
        let head = head.map_err(|error| BucketError::of(&address, &error))?;
        let source = Source {
            store,
            path,
            version: head.e_tag,
        };
        let bytes = head.size;
        let (fetched, parts) = mpsc::channel(1);
        let fetch = move || runtime.block_on(fetch_all(&address, &source, bytes, &fetched));
        start("farside-fetch", fetch)?;
        Ok(Self {
            rest: Bytes::new(),
            parts,
        })
    }
}

/// Starts the thread that moves bytes.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>, BucketError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    started.map_err(|error| BucketError::new(name, &format!("cannot start a thread: {error}")))
}

/// Ends early if nobody reads any more.
async fn fetch_all(address: &str, source: &Source, bytes: u64, fetched: &mpsc::Sender<Result<Bytes, BucketError>>) {
    let mut under_way: VecDeque<JoinHandle<object_store::Result<Bytes>>> = VecDeque::new();
    let mut begun = 0;
    loop {
        while begun < bytes && under_way.len() < PARTS_MAX {
            let end = bytes.min(begun + PART_BYTES as u64);
            under_way.push_back(tokio::spawn(source.clone().fetch(begun, end)));
            begun = end;
        }
        let Some(next) = under_way.pop_front() else { return };
        let part = next.await.expect("a fetch does not panic, and nobody aborts it");
        let part = part.map_err(|error| BucketError::of(address, &error));
        let is_failed = part.is_err();
        if fetched.send(part).await.is_err() || is_failed {
            return;
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.rest = part.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.rest.len());
        buffer[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}
