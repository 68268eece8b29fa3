//! The tools: find, du, ls, stat, reports and exports, answered from an index. They read through
//! `canopy_read` and print through `canopy_text`.
//!
//! | to change | read |
//! | --- | --- |
//! | a test or action of find | `find/mod.rs`: rooms, and functions that a new one touches |
//! | symbolic links out of the index | `find/evaluation/outside.rs` |
//! | `find --sum`, the order of matches | `find/actions/sum.rs`, `order.rs` there |
//! | suggestions for wrong words of find | `find/language/hints.rs` |
//! | `find --live` | `find/live/mod.rs`: the steps |
//! | `canopy ns find` | `find/records/mod.rs`: the steps; `bound.rs` there: use of indexes |
//! | du | `du/mod.rs`: three ways to an answer; `walk.rs` there |
//! | ls, stat | `ls/mod.rs`; `print.rs`, `long.rs` and `stat.rs` there |
//! | a section of a report | its file in `report/sections/`; `report/mod.rs`: shared passes |
//! | formats of export | `export/mod.rs` |
//! | differences between two generations | `diff.rs` |
//!
//! Not their job: the command line, and deciding who may see an entry.

pub mod diff;
pub mod du;
mod error;
pub mod export;
pub mod find;
pub mod json;
pub mod ls;
pub mod report;

pub use error::{Error, Result};
