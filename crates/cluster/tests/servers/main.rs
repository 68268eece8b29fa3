//! Servers of one process, with a table each in one storage.

mod directories;
mod network;
mod partitions;
mod place;
