//! du, ls and stat against GNU's tools: the same command lines, generated and chosen, on trees with
//! every kind of entry, as root and as users, byte for byte. What differs on purpose is in
//! `docs/differences.md`. Needs root.

#[path = "../common/mod.rs"]
mod common;
mod du;
mod extras;
mod ls;
mod place;
mod stat;
