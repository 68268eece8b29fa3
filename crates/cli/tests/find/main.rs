//! Tests of find, and of who sees what: each module says what it asks. They need root.

mod changing;
mod closed;
#[path = "../common/mod.rs"]
mod common;
mod differences;
mod exactness;
mod find_words;
mod jobs;
mod language;
mod live;
mod mounts;
mod patterns;
mod random_sites;
mod scripts;
mod secrets;
mod storage;
mod terminal;
