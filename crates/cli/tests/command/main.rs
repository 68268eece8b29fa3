//! Tests of the command as a whole, of what fills an index and of packages: each module says what
//! it asks. They need root.

mod checking;
#[path = "../common/mod.rs"]
mod common;
mod compacting;
mod companion;
mod completions;
mod config;
mod documents;
mod faults;
mod hostile;
mod hostile_index;
mod import;
mod layouts;
mod limits;
mod locate;
mod lustre;
mod messages;
mod mounts;
mod options;
mod output;
mod ownership;
mod packaging;
mod past;
mod places;
mod requests;
mod resuming;
mod running;
mod sources;
mod states;
mod times;
mod updates;
mod watch;
mod workers;
mod workspace;
