//! Quotas of a namespace on several servers, each a process of its own.

mod crashes;
mod limits;
mod model;
mod moves;
mod place;
mod trees;
