//! Tables of canopy-store in buckets of S3 and of stores that speak its language.
//!
//! The engine's calls block, so each call here waits for a request; a runtime of one thread beside
//! the callers drives the connections. Nothing of it is needed, or built, for tables on local
//! storage.
//!
//! `object_store` is used for S3 alone, in another version than DataFusion's, so that the features
//! of one do not get into the other. The tests run every case of tables on Ceph's gateway, which
//! creates objects once, and on Garage beside a directory.

mod bucket;
mod error;
mod location;

pub use bucket::BucketStorage;
pub use error::SetupError;
pub use location::{open, open_directory};
