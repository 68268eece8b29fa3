//! The commands, one file each: parse, open, plan, run, print.

pub mod du;
pub mod find;
pub mod index;
pub mod info;
pub mod sql;
