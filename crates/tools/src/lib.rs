//! The tools: what find, du, ls, stat, reports and exports answer from an index.
//!
//! `find` has the language of find(1), `du` adds up, `diff` compares two generations, `ls` shows single entries, `export` hands
//! everything out as one data set, `report` tells who and what takes how much. They read through
//! `canopy_read` and show what they found through `canopy_text`.
//!
//! Not their job: the command line, and deciding who may see what.

pub mod diff;
pub mod du;
mod error;
pub mod export;
pub mod find;
pub mod json;
pub mod ls;
pub mod report;

pub use error::{Error, Result};
