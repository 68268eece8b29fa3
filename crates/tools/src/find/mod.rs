//! `find`: GNU find's language, answered from the index.
//!
//! | room | for |
//! | --- | --- |
//! | `language` | what the arguments mean: [`parse`], words, expression, tests |
//! | `evaluation` | which rows of the index the expression selects |
//! | `actions` | what is done with them: print, run commands, count |
//! | `live` | the same on the file system itself, with the tests and actions of the index |
//! | `records` | the same on a file system's records, without the kernel: `canopy ns find` |
//!
//! A new test is a variant of `language::Test`, with an arm in each function of it (columns,
//! bounds), a line in `language/primary.rs`, and an arm in `evaluation/check.rs`; what it asks of
//! an entry is a function of `evaluation::Candidates`, which rows of the index, live entries and
//! records answer; its part in what indexes can find is in `records/needed.rs`. A new action is a
//! variant of `actions::Action`, with an arm in each function of it, a line in
//! `language/primary.rs`, and an arm in `ActionSink::act` and, if it needs no sink, in
//! `Actor::act`.

mod actions;
mod evaluation;
mod language;
mod live;
mod messages;
mod path;
mod records;

pub(crate) use actions::{EntryView, print_json};
pub use evaluation::{FindOutcome, RunOptions, run};
pub(crate) use evaluation::{OthersMounts, Outside};
pub use language::{
    ColorWhen, Find, Misunderstood, Operand, parse, parse_for_records, parse_moment, words,
};
pub use live::run_live;
pub use messages::in_locale;
pub(crate) use messages::quoted;
pub use records::{Lookup, Record, Records, run_records};
