//! Objects in object stores, for programs that wait: an export is written to one while it is made, and read from one.
//!
//! The protocols, signatures and credentials of S3, Google Cloud Storage and Azure are `object_store`'s; requests go over the
//! HTTP and TLS that the rest of the program has (`http.rs`). Where a store is, and who asks, the environment says, in the
//! names that the stores' own tools use.
//!
//! An [`Object`] is read ([`Object::read`]) and written ([`Object::write`]) by a thread of its own, so that transfers go on
//! while the caller computes.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "a web server is never simulated: the clock is the machine's"
)]

mod error;
mod http;
mod read;
mod write;

use std::sync::Arc;

use hyper::Uri;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig};
use tokio::runtime::Runtime;

pub use error::BucketError;
pub use read::ObjectReader;
pub use write::Upload;

/// What addresses of objects begin with, before `://`.
pub const SCHEMES: [&str; 6] = ["s3", "s3a", "gs", "az", "abfs", "abfss"];

/// How much is sent or fetched by one request. S3 takes 10 000 parts of an object at most: 160 GB.
const PART_BYTES: usize = 16 << 20;
/// How many of these are under way at a time.
const PARTS_MAX: usize = 4;
/// How long an answer is tried for, and how often.
const RETRY: std::time::Duration = std::time::Duration::from_secs(60);
const RETRIES_MAX: usize = 6;

/// An object, or what the names of several begin with.
pub struct Object {
    address: String,
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// Runs every request; tasks of connections end with it.
    runtime: Runtime,
}

impl Object {
    /// Names an object by its address, such as `s3://BUCKET/NAME`. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// If the address has no name in a bucket, or the environment says nonsense.
    pub fn open(address: &str) -> Result<Self, BucketError> {
        let wrong = |reason: &str| BucketError::new(address, reason);
        let (scheme, rest) = address.split_once("://").ok_or_else(|| wrong("no address"))?;
        let (bucket, name) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(wrong("no bucket: write SCHEME://BUCKET/NAME"));
        }
        let path = Path::parse(name.trim_end_matches('/')).map_err(|error| BucketError::of(address, &error.into()))?;
        let root = format!("{scheme}://{bucket}");
        let retry = RetryConfig {
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY,
            ..RetryConfig::default()
        };
        let store: Result<Arc<dyn ObjectStore>, _> = match scheme {
            "s3" | "s3a" => {
                let builder = AmazonS3Builder::from_env();
                for key in [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint] {
                    check_server(address, builder.get_config_value(&key))?;
                }
                builder
                    .with_url(root)
                    .with_retry(retry)
                    .with_http_connector(http::Connector)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env();
                check_server(address, builder.get_config_value(&GoogleConfigKey::BaseUrl))?;
                builder
                    .with_url(root)
                    .with_retry(retry)
                    .with_http_connector(http::Connector)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
            "az" | "abfs" | "abfss" => {
                let builder = MicrosoftAzureBuilder::from_env();
                check_server(address, builder.get_config_value(&AzureConfigKey::Endpoint))?;
                builder
                    .with_url(root)
                    .with_retry(retry)
                    .with_http_connector(http::Connector)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
            _ => return Err(wrong(&format!("no store has addresses that begin with {scheme}://"))),
        };
        let store = store.map_err(|error| BucketError::of(address, &error))?;
        Self::within(address, store, path)
    }

    fn within(address: &str, store: Arc<dyn ObjectStore>, path: Path) -> Result<Self, BucketError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            address: address.to_owned(),
            store,
            path,
            runtime: runtime.map_err(|error| BucketError::new(address, &format!("cannot begin: {error}")))?,
        })
    }

    /// What tells it from any object that was or will be there: its tag, and its length.
    ///
    /// # Errors
    ///
    /// If it has no name or is not there, or the store does not answer or refuses.
    pub fn version(&self) -> Result<String, BucketError> {
        self.has_name()?;
        let head = self.runtime.block_on(self.store.head(&self.path));
        let head = head.map_err(|error| BucketError::of(&self.address, &error))?;
        Ok(format!("{} {}", head.e_tag.unwrap_or_default(), head.size))
    }

    /// Begins to read it.
    ///
    /// # Errors
    ///
    /// If it has no name or is not there, or the store does not answer or refuses.
    pub fn read(self) -> Result<ObjectReader, BucketError> {
        self.has_name()?;
        ObjectReader::open(self)
    }

    /// Begins to write it. It is there when [`Upload::finish`] returns, as a whole, in the place of what was there before.
    ///
    /// # Errors
    ///
    /// If it has no name.
    pub fn write(self) -> Result<Upload, BucketError> {
        self.has_name()?;
        Upload::begin(self)
    }

    fn has_name(&self) -> Result<(), BucketError> {
        match self.path.as_ref() {
            "" => Err(BucketError::new(
                &self.address,
                "no name in the bucket: write SCHEME://BUCKET/NAME",
            )),
            _ => Ok(()),
        }
    }

    /// The names of the objects right below this one, as below a folder.
    ///
    /// # Errors
    ///
    /// If the store does not answer or refuses.
    pub fn list(&self) -> Result<Vec<String>, BucketError> {
        let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&self.path)));
        let listed = listed.map_err(|error| BucketError::of(&self.address, &error))?;
        let names = listed.objects.iter().filter_map(|object| object.location.filename());
        Ok(names.map(str::to_owned).collect())
    }

    /// Removes it.
    ///
    /// # Errors
    ///
    /// If the store does not answer or refuses.
    pub fn remove(&self) -> Result<(), BucketError> {
        let removed = self.runtime.block_on(self.store.delete(&self.path));
        removed.map_err(|error| BucketError::of(&self.address, &error))
    }
}

/// A server that the environment names has to be an address of the web: what signs requests panics at anything else.
fn check_server(address: &str, server: Option<String>) -> Result<(), BucketError> {
    let Some(server) = server else { return Ok(()) };
    let uri: Option<Uri> = server.parse().ok();
    if uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) {
        return Ok(());
    }
    let reason =
        format!("the environment says that its server is `{server}`: write https://HOST:PORT or http://HOST:PORT");
    Err(BucketError::new(address, &reason))
}

impl core::fmt::Debug for Object {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.address)
    }
}

#[cfg(test)]
mod tests;
