//! The commands, one file each: parse, open, plan, run, print.

mod building;
pub mod du;
pub mod export;
pub mod find;
pub mod generate;
pub mod help;
pub mod import;
pub mod index;
pub mod info;
pub mod ls;
pub mod report;
pub mod sql;
pub mod stat;
mod switches;
pub mod table;
pub mod top;
