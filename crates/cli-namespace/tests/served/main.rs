//! `canopy ns mount` of namespaces on several servers: real processes on loopback, real mounts. Needs
//! root and /dev/fuse.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod first;
mod full;
mod importing;
mod options;
mod quotas;
mod restoring;
mod sharing;
mod site;
mod snapshots;
mod users;
