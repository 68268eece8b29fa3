//! Names, inodes and all else that is a record of a file: where it lies, how it is read and listed,
//! and how it is changed.

pub(crate) mod access;
pub mod acl;
pub mod attributes;
pub(crate) mod bulk;
pub(crate) mod change;
mod changed;
pub(crate) mod circle;
mod contents;
pub(crate) mod executed;
pub(crate) mod ids;
pub(crate) mod indexing;
pub mod inode;
pub(crate) mod joined;
pub mod keys;
pub(crate) mod listing;
pub(crate) mod making;
pub(crate) mod moments;
pub(crate) mod moving;
pub(crate) mod open_files;
pub(crate) mod pending;
pub(crate) mod permissions;
pub(crate) mod places;
pub(crate) mod prepared;
pub(crate) mod range;
mod reading;
pub(crate) mod tablet;
pub(crate) mod view;
pub(crate) mod xattrs;
