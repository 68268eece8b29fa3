//! Cuts and snapshots of servers with a process each: they are of one moment, whatever clients do and
//! whoever dies.

mod contents;
mod history;
mod many;
mod net;
mod reading;
mod steps;
