//! `find`: GNU find's language, answered from the index.
//!
//! `parse` turns arguments into an [`Expr`], `primary` knows the words and `arguments` what follows
//! them; `test` holds the tests, each with the columns that it reads, its evaluation over rows and
//! its bounds for pruning; `rows` says what tests ask of them. `run` plans and reads the index;
//! `live` walks the file system instead. What only writes lines is printed by all threads
//! (`print`); where order, single files or commands matter, `stage` goes row by row. A new test is
//! one variant of [`Test`] with an arm in each of the functions of `test`, and a line in `primary`;
//! a new action is one of [`action::Action`] with an arm in each of its functions and in `stage`.
//!
//! [`Test`]: test::Test

mod action;
mod arguments;
mod chunk;
mod exec;
mod expr;
mod following;
mod format;
mod gather;
mod json;
mod known;
mod live;
mod long;
mod moment;
mod order;
mod parse;
mod primary;
mod print;
mod rows;
mod run;
mod stage;
mod test;
mod visit;

pub use expr::Expr;
pub use live::run_live;
pub use parse::{Find, parse};
pub use run::{Ended, RunOptions, run};
