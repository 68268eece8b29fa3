//! The commands, one file each: parse, call, print. A directory beside it has long options and
//! answers.

pub mod check;
pub mod cluster;
pub mod compact;
mod completing;
pub mod diff;
pub mod du;
pub mod export;
pub mod find;
pub mod generate;
mod growth;
pub mod help;
pub mod history;
pub mod import;
pub mod index;
pub mod info;
pub mod locate;
pub mod ls;
mod manual;
pub mod mount;
pub mod ns;
mod past;
pub mod report;
pub mod source;
pub mod sql;
pub mod stat;
pub mod store;
pub mod table;
pub mod top;
pub mod update;
mod update_request;
pub mod watch;
mod watch_status;
