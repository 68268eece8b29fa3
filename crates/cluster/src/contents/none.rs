//! Storage of a client that has none: contents of large files fail there, and nothing else does.

use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, Storage};
use canopy_store::{Error, Result};
use std::io;
use std::ops::Range;

/// Storage that a client does not know: every access fails.
#[derive(Debug)]
pub struct UnknownStorage;

fn missing<T>(name: &str) -> Result<T> {
    let what = "this client has no storage for contents of large files (--storage none)";
    Err(Error::storage(name, io::Error::new(io::ErrorKind::PermissionDenied, what)))
}

impl Storage for UnknownStorage {
    fn read_range(&self, name: &str, _range: Range<u64>) -> Result<Bytes> {
        missing(name)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        missing(name)
    }

    fn create(&self, name: &str, _bytes: Bytes) -> Result<Created> {
        missing(name)
    }

    fn list(&self, prefix: &str, _after: &str) -> Result<Vec<Listed>> {
        missing(prefix)
    }

    fn remove(&self, name: &str) -> Result<()> {
        missing(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        missing(name)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        missing(name)
    }
}
