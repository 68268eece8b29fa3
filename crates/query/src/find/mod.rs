//! `find`: GNU find's language, answered from the index.
//!
//! `parse` turns arguments into an [`Expr`]; `test` holds the tests, each with the columns that it reads, its
//! evaluation over a batch of rows and its bounds for pruning; `run` plans and reads; `action` prints.
//! A new test is one variant of [`Test`] with an arm in each of the functions of `test`, and a line in `parse`.

mod action;
mod expr;
mod format;
mod parse;
pub(crate) mod pattern;
mod print;
mod run;
mod test;

pub use expr::Expr;
pub(crate) use format::{full_time, mode_string};
pub use parse::{Find, parse};
pub use run::{RunOptions, run};
