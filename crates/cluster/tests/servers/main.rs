//! Servers of one process, with a table each in one storage.

mod directories;
mod network;
mod holds;
mod partitions;
mod place;
mod retries;
mod site;
