//! Storage by what a user calls it.

use crate::bucket::BucketStorage;
use crate::error::SetupError;
use canopy_store::Result;
use canopy_store::storage::{LocalStorage, SplitStorage, Storage};
use std::path::Path;
use std::sync::Arc;

/// Returns the storage at `location`, which is there already: a directory, `s3://BUCKET/PREFIX`, or,
/// for a store that overwrites objects, `DIRECTORY+s3://BUCKET/PREFIX`: SSTables in the bucket, the
/// rest in the directory, which every process that uses the tables must see.
pub fn open(location: &str) -> Result<Arc<dyn Storage>> {
    if let Some(rest) = location.strip_prefix("s3://") {
        return Ok(Arc::new(bucket(location, rest)?));
    }
    if let Some((directory, rest)) = location.split_once("+s3://") {
        let (rest_of_table, sstables) = (directory_at(directory)?, bucket(location, rest)?);
        return Ok(Arc::new(SplitStorage::new(Arc::new(rest_of_table), Arc::new(sstables))));
    }
    if location.is_empty() {
        return Err(SetupError::NoLocation.into());
    }
    match location.split_once("://") {
        Some((scheme, _)) => {
            let (location, scheme) = (location.to_owned(), scheme.to_owned());
            Err(SetupError::Scheme { location, scheme }.into())
        }
        None => Ok(Arc::new(directory_at(location)?)),
    }
}

fn directory_at(directory: &str) -> Result<LocalStorage> {
    match LocalStorage::existing(Path::new(directory)) {
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
