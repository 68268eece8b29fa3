//! Servers of one process, with a table each in one storage.

mod checking;
mod directories;
mod full;
mod growing;
mod holds;
mod large;
mod leases;
mod locks;
mod network;
mod origins;
mod partitions;
mod place;
mod retries;
mod returning;
mod site;
