//! du, ls and stat against GNU's tools: the same command lines, generated and chosen, on trees with
//! every kind of entry, as root and as users, byte for byte. What differs on purpose is in
//! `docs/differences.md`. Reports and exports too, in modules that say what they ask. Needs root.

#![recursion_limit = "256"]

#[path = "../common/mod.rs"]
mod common;
mod differences;
mod du;
mod duplicates;
mod export;
mod extras;
mod forms;
mod large;
mod ls;
mod owners;
mod paths;
mod per_user;
mod place;
mod report;
mod report_oracle;
mod roundtrip;
mod stat;
mod unreadable;
mod updated;
