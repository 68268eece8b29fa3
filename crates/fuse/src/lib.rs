//! Parts that mounts of namespaces and of indexes share, by FUSE.
//!
//! | to change | read |
//! | --- | --- |
//! | mounting, unmounting | `mounted` |
//! | the user behind a request of the kernel | `caller` |
//! | extended attributes that every mount has | `attributes` |
//! | the meaning of nested queries; their results as links | `results`, on `places` (their paths) |
//! | memory of results, by account | `budget` |
//!
//! Not its job: finding files, and answering the kernel.

pub mod attributes;
pub mod budget;
pub mod caller;
pub mod mounted;
pub mod places;
pub mod results;
