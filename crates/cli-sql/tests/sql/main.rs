//! Tests of SQL, its prompt and its tables: each module says what it asks. They need root.

mod agreement;
#[path = "../../../cli/tests/common/mod.rs"]
mod common;
mod forms;
mod gates;
mod grammar;
mod gufi_sql;
mod integers;
mod prompt;
mod questions;
mod statistics;
mod tables;
