//! The evaluation: which rows of the index an expression selects.
//!
//! `search` plans and reads; `ranges` says which rows it looks at and `select` which of them pass.
//! `candidates` is what tests ask of entries, `check` the tests and `evaluate` the expression over
//! them. `visit` is where a search begins, with what `preload` reads ahead (`facts`); `follow` goes
//! where links lead, and `outside` asks the kernel where the index does not know.

mod candidates;
mod check;
mod chunk;
mod evaluate;
mod facts;
mod follow;
mod outside;
mod preload;
mod ranges;
mod search;
mod select;
mod visit;

pub(crate) use candidates::{Candidates, Numeric};
pub(crate) use chunk::{Chunk, ChunkRow, Location};
pub(crate) use evaluate::Step;
pub(crate) use facts::FileSystems;
pub(crate) use outside::{OthersMounts, Outside};
pub(crate) use preload::caller;
pub use search::{FindOutcome, RunOptions, run};
pub(crate) use select::Selected;
pub(crate) use visit::Visit;
