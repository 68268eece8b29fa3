//! `canopy ns find`, `du`, `export`, `info`, `index`, `query` and `canopy index ns:` of namespaces on
//! several servers: real processes on loopback, and a real mount to compare with. Needs root and
//! /dev/fuse, and `canopy` and `canopy-cluster` built beside.

#[path = "../common/mod.rs"]
mod common;
mod followed;
mod queries;
mod records;
#[path = "../served/site.rs"]
#[allow(dead_code)]
mod site;
mod trial;
