//! The actions: what is done with the entries that the expression selects. [`Action`] says what an
//! action needs; rows that no order, command or file concerns are printed by all threads (`print`),
//! all others go through the [`ActionSink`], one at a time.

mod action;
mod actor;
mod entry;
mod exec;
mod held;
mod jobs;
mod json;
mod long;
mod order;
mod print;
mod printf;
mod sink;
mod sum;

pub(crate) use action::{Action, Destination, EntryFormat};
pub(crate) use actor::{Actor, Met, Needs};
pub(crate) use entry::{EntryView, LookedUp, attribute};
pub(crate) use exec::Exec;
pub(crate) use held::Held;
pub(crate) use json::print_json;
pub(crate) use order::{SortField, SortKey, Sortable, in_order, may_precede};
pub(crate) use print::Printer;
pub(crate) use printf::PrintfFormat;
pub(crate) use sink::ActionSink;
