//! Objects in a bucket.

use crate::error::SetupError;
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, Storage};
use canopy_store::{Error, Invalid, Result};
use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, RetryConfig};
use std::io;
use std::ops::Range;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A creation that has no answer for so long has failed. An SSTable of 64 MiB has to get through.
const CREATE_TIMEOUT: Duration = Duration::from_secs(120);

/// A read that has no answer for so long is tried again.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that cannot be connected to within this is taken to be down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads that failed, or had no answer, are tried again for so long.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Ranges that are read at once.
const CONCURRENT_READS: usize = 32;

/// Variables with credentials, or with where to get them: one has to be set.
const CREDENTIALS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    "AWS_SKIP_SIGNATURE",
];

/// Variables that say so together.
const ROLE: [&str; 2] = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"];

/// Variables that say where the server is.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// Variables that become parts of requests.
const PLAIN: [&str; 5] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// Returns whether requests can go there; object_store panics where they cannot.
fn is_endpoint(endpoint: &str) -> bool {
    let host = ["http://", "https://"].iter().find_map(|scheme| endpoint.strip_prefix(scheme));
    let Some((host, path)) = host.map(|host| host.split_once('/').unwrap_or((host, ""))) else {
        return false;
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
    let has_port = port.is_none_or(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    !host.is_empty() && has_port && host.bytes().all(is_host) && path.bytes().all(is_path)
}

/// Objects in a bucket, below a prefix.
pub struct BucketStorage {
    /// Tries again what failed: reads, listings and removals.
    retrying: AmazonS3,
    /// Tries nothing again: whether an attempt that failed created the object is for the engine to
    /// find out, and a second attempt would say that there was one.
    creating: AmazonS3,
    /// Ends with `/`, or is empty.
    prefix: String,
    /// The server and the bucket.
    server: String,
    runtime: Runtime,
}

impl BucketStorage {
    /// Keeps objects in the bucket `bucket`, below `prefix`. The server, its region and who asks
    /// are in the variables that the tools of S3 share: `AWS_ENDPOINT_URL`, `AWS_REGION`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, and those for roles.
    /// No credentials are an error: no address of the network is tried for an answer.
    pub fn from_environment(bucket: &str, prefix: &str) -> Result<Self> {
        let has_role = ROLE.iter().all(|name| std::env::var_os(name).is_some());
        if !has_role && !CREDENTIALS.iter().any(|name| std::env::var_os(name).is_some()) {
            return Err(SetupError::NoKeys(bucket.to_owned()).into());
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !bucket.bytes().all(is_name) {
            return Err(SetupError::BucketName(bucket.to_owned()).into());
        }
        for name in ENDPOINTS {
            let Some(endpoint) = std::env::var_os(name) else { continue };
            if !endpoint.to_str().is_some_and(is_endpoint) {
                // A password may be in it.
                let has_user = endpoint.as_encoded_bytes().contains(&b'@');
                let shown = if has_user { "…".into() } else { format!("{endpoint:?}") };
                return Err(SetupError::Endpoint { name, shown }.into());
            }
        }
        for name in PLAIN {
            let Some(value) = std::env::var_os(name) else { continue };
            if !value.to_str().is_some_and(|value| value.chars().all(|one| one.is_ascii_graphic()))
            {
                return Err(SetupError::Variable(name).into());
            }
        }
        Self::new(AmazonS3Builder::from_env().with_bucket_name(bucket), prefix)
    }

    /// Keeps objects in the bucket that `builder` names, below `prefix`.
    pub fn new(builder: AmazonS3Builder, prefix: &str) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let build = |max_retries, timeout| {
            let options = ClientOptions::new()
                .with_timeout(timeout)
                .with_connect_timeout(CONNECT_TIMEOUT)
                // Requests are signed: who listens learns what is stored, and nothing to sign with.
                .with_allow_http(true);
            let retry =
                RetryConfig { max_retries, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
            let client = builder.clone().with_client_options(options).with_retry(retry).build();
            client.map_err(SetupError::Client)
        };
        let prefix = match prefix.trim_matches('/') {
            "" => String::new(),
            // Others would be listed under another name than they were asked for.
            inner if Path::from(inner).as_ref() == inner => format!("{inner}/"),
            inner => {
                return Err(SetupError::Prefix(inner.to_owned()).into());
            }
        };
        let value = |key| builder.get_config_value(&key).unwrap_or_default();
        let [endpoint, region, bucket] =
            [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::Region, AmazonS3ConfigKey::Bucket]
                .map(value);
        Ok(BucketStorage {
            server: format!("{endpoint} {region} {bucket}"),
            retrying: build(10, READ_TIMEOUT)?,
            creating: build(0, CREATE_TIMEOUT)?,
            prefix,
            runtime: runtime.map_err(SetupError::Thread)?,
        })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.prefix))
    }

    /// Returns the name of an object without the prefix.
    fn within(&self, location: &str) -> Result<String> {
        let name = location.strip_prefix(&self.prefix).map(String::from);
        name.ok_or_else(|| Error::corrupt(location, "was listed, and was not asked for"))
    }

    async fn range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.retrying.get_range(&self.path(name), range).await;
        let bytes = bytes.map_err(|error| failed(name, error))?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(Error::corrupt(name, "shorter than it must be")),
        }
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let path = self.path(name);
        match self.creating.put_opts(&path, bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(Created::Now),
            // 412. A 409 is told as this, too, but without such a source: another request for this
            // name is under way, and may yet come to nothing.
            Err(object_store::Error::AlreadyExists { source, .. })
                if source.is::<object_store::Error>() =>
            {
                Ok(Created::ThereWasOne)
            }
            Err(error) => Err(failed(name, error)),
        }
    }
}

/// Returns the engine's error for what a request came to.
fn failed(name: &str, error: object_store::Error) -> Error {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return Error::NotFound(name.into());
    }
    // That nobody answers, say, only the innermost error tells.
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    let line = Vec::from_iter(text.split_whitespace()).join(" ");
    let object = if name.is_empty() { "the bucket" } else { name };
    let kind = match error {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    Error::storage(object, io::Error::new(kind, line))
}

impl Storage for BucketStorage {
    fn server(&self) -> String {
        self.server.clone()
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.runtime.block_on(self.range(name, range))
    }

    fn read_ranges(&self, wanted: &[(&str, Range<u64>)]) -> Result<Vec<Bytes>> {
        let reads = wanted.iter().map(|(name, range)| self.range(name, range.clone()));
        self.runtime.block_on(stream::iter(reads).buffered(CONCURRENT_READS).try_collect())
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        let read = async { self.retrying.get(&self.path(name)).await?.bytes().await };
        self.runtime.block_on(read).map_err(|error| failed(name, error))
    }

    fn size(&self, name: &str) -> Result<u64> {
        let head = self.runtime.block_on(self.retrying.head(&self.path(name)));
        head.map(|object| object.size).map_err(|error| failed(name, error))
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.runtime.block_on(self.put(name, bytes))
    }

    fn create_rivals(&self, name: &str, contents: &[Bytes]) -> Vec<Result<Created>> {
        let rivals = contents.iter().map(|bytes| self.put(name, bytes.clone()));
        self.runtime.block_on(join_all(rivals))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let (within, after) = (self.path(prefix), self.path(after));
        let listed = match after.as_ref().len() > self.prefix.len() {
            true => self.retrying.list_with_offset(Some(&within), &after),
            // Garage lists nothing after what comes before the prefix.
            false => self.retrying.list(Some(&within)),
        };
        let objects = self.runtime.block_on(listed.try_collect::<Vec<_>>());
        let objects = objects.map_err(|error| failed(prefix, error))?;
        let listed = objects.into_iter().map(|object| {
            let name = self.within(object.location.as_ref())?;
            Ok(Listed { name, size_bytes: object.size })
        });
        let listed = listed.collect::<Result<Vec<_>>>()?;
        // Objects that are listed out of order may have been looked at out of order.
        match listed.is_sorted_by(|one, next| one.name < next.name) {
            true => Ok(listed),
            false => Err(Invalid::UnorderedStorage.into()),
        }
    }

    fn roots(&self) -> Result<Vec<String>> {
        let within = self.path("");
        let listed = self.runtime.block_on(self.retrying.list_with_delimiter(Some(&within)));
        let listed = listed.map_err(|error| failed("", error))?;
        let roots = listed.common_prefixes.iter().map(|root| self.within(root.as_ref()));
        let mut roots = roots.collect::<Result<Vec<_>>>()?;
        roots.sort();
        Ok(roots)
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.runtime.block_on(self.retrying.delete(&self.path(name))) {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            removed => removed.map_err(|error| failed(name, error)),
        }
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_servers() {
        for right in ["http://127.0.0.1:3900", "https://[::1]:1/", "https://host/storage/v1/s3"] {
            assert!(is_endpoint(right), "{right}");
        }
        let wrong = ["host:1", "http://", "http:///a", "http://h:99999", "http://h?x", "ftp://h"];
        for wrong in wrong {
            assert!(!is_endpoint(wrong), "{wrong}");
        }
    }
}
