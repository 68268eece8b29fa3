//! Servers of one process, with a table each in one storage.

mod directories;
mod full;
mod holds;
mod large;
mod network;
mod partitions;
mod place;
mod retries;
mod site;
