//! Nothing: its manifest is what counts.
