//! Figures 7 and 9 of the paper, from the code of this crate. `cargo test --release -p
//! canopy-partition --test figures -- --nocapture` prints them as tables.

mod balance;
mod growth;
