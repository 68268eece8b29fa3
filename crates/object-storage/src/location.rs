//! Storage by what a user calls it.

use crate::bucket::BucketStorage;
use crate::error::SetupError;
use canopy_store::storage::{LocalStorage, SharedDirectory, SplitStorage, Storage};
use canopy_store::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// Returns the storage at `location`, which is there already: a directory, which
/// is opened as the kind that it is, `s3://BUCKET/PREFIX`, or, for a store that overwrites objects, `DIRECTORY+s3://BUCKET/PREFIX`: SSTables in the bucket, the
/// rest in the directory, which every process that uses the tables must see.
pub fn open(location: &str) -> Result<Arc<dyn Storage>> {
    if let Some(rest) = location.strip_prefix("s3://") {
        return Ok(Arc::new(bucket(location, rest)?));
    }
    if let Some((directory, rest)) = location.split_once("+s3://") {
        let (rest_of_table, sstables) = (directory_at(directory)?, bucket(location, rest)?);
        return Ok(Arc::new(SplitStorage::new(rest_of_table, Arc::new(sstables))));
    }
    if location.is_empty() {
        return Err(SetupError::NoLocation.into());
    }
    match location.split_once("://") {
        Some((scheme, _)) => {
            let (location, scheme) = (location.to_owned(), scheme.to_owned());
            Err(SetupError::Scheme { location, scheme }.into())
        }
        None => directory_at(location),
    }
}

/// Returns the storage in a directory that is there already: of one machine, or of many where
/// `SharedDirectory::make` made it so.
pub fn open_directory(directory: &Path) -> Result<Arc<dyn Storage>> {
    let failed = |error| Error::storage(directory.display().to_string(), error);
    let full = directory.canonicalize().map_err(failed)?;
    match SharedDirectory::root_of(&full)? {
        Some(root) => Ok(Arc::new(SharedDirectory::open(&root)?)),
        None => Ok(Arc::new(LocalStorage::existing(directory)?)),
    }
}

fn directory_at(directory: &str) -> Result<Arc<dyn Storage>> {
    match open_directory(Path::new(directory)) {
        Err(error) if error.is_not_found() => {
            Err(SetupError::NoDirectory(directory.to_owned()).into())
        }
        opened => opened,
    }
}

fn bucket(location: &str, rest: &str) -> Result<BucketStorage> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    match bucket.is_empty() {
        true => Err(SetupError::NoBucket(location.to_owned()).into()),
        false => BucketStorage::from_environment(bucket, prefix),
    }
}
