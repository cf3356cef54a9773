//! Writing an object: in parts, a few at a time, which become the object when all are there.

use core::mem;
use std::sync::Arc;
use std::thread::JoinHandle;

use hyper::body::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, WriteMultipart};
use tokio::sync::mpsc;

use crate::read::start;
use crate::{BucketError, Object, PART_BYTES, PARTS_MAX};

/// An object that is being written. What is dropped before it is finished leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    address: String,
    part: Vec<u8>,
    /// An empty part says that the object is whole.
    parts: Option<mpsc::Sender<Bytes>>,
    sender: Option<JoinHandle<Result<(), BucketError>>>,
}

impl Upload {
    pub(crate) fn begin(object: Object) -> Result<Self, BucketError> {
        let Object {
            address,
            store,
            path,
            runtime,
        } = object;
        let (parts, given) = mpsc::channel(1);
        let send = {
            let address = address.clone();
            move || {
                let sent = runtime.block_on(send_all(&store, &path, given));
                sent.map_err(|error| BucketError::of(&address, &error))
            }
        };
        let sender = start("farside-upload", send)?;
        Ok(Self {
            address,
            part: Vec::new(),
            parts: Some(parts),
            sender: Some(sender),
        })
    }

    /// Takes the next bytes. It waits while more parts than a few are under way.
    ///
    /// # Errors
    ///
    /// If the store refuses, or does not answer for a minute.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), BucketError> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(PART_BYTES - self.part.len());
            self.part.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.part.len() == PART_BYTES {
                let part = mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
                self.give(part.into())?;
            }
        }
        Ok(())
    }

    /// The object is whole; when this returns, it is there.
    ///
    /// # Errors
    ///
    /// As [`Upload::write`].
    pub fn finish(mut self) -> Result<(), BucketError> {
        let part = mem::take(&mut self.part);
        if !part.is_empty() {
            self.give(part.into())?;
        }
        self.give(Bytes::new())?;
        self.end()
    }

    fn give(&mut self, part: Bytes) -> Result<(), BucketError> {
        let given = self
            .parts
            .as_ref()
            .is_some_and(|parts| parts.blocking_send(part).is_ok());
        if given {
            return Ok(());
        }
        self.end()?;
        Err(BucketError::new(&self.address, "the upload has ended"))
    }

    fn end(&mut self) -> Result<(), BucketError> {
        self.parts = None;
        match self.sender.take() {
            Some(sender) => sender.join().expect("the thread that sends does not panic"),
            None => Ok(()),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // If it was not finished, why is known already, or it is given up on purpose.
        let _ = self.end();
    }
}

/// Sends parts until an empty one says that there are no more. If the channel is closed without, what was sent is removed.
async fn send_all(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    mut parts: mpsc::Receiver<Bytes>,
) -> object_store::Result<()> {
    let Some(first) = parts.recv().await else { return Ok(()) };
    if first.len() < PART_BYTES {
        // All there is: one request.
        return match first.is_empty() || parts.recv().await.is_some() {
            true => store.put(path, first.into()).await.map(drop),
            false => Ok(()),
        };
    }
    let mut upload = WriteMultipart::new_with_chunk_size(store.put_multipart(path).await?, PART_BYTES);
    upload.put(first);
    loop {
        let failed = match parts.recv().await {
            Some(part) if part.is_empty() => return upload.finish().await.map(drop),
            Some(part) => match upload.wait_for_capacity(PARTS_MAX).await {
                Ok(()) => {
                    upload.put(part);
                    continue;
                }
                Err(error) => Err(error),
            },
            None => Ok(()),
        };
        // Parts of an object that never becomes one are paid for until somebody removes them.
        let aborted = upload.abort().await;
        return failed.and(aborted);
    }
}
