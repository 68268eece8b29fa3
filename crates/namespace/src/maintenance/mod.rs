//! Maintenance of a namespace: threads that look after it, building of indexes, checks of every rule,
//! and repairs.

mod building;
pub(crate) mod check;
pub(crate) mod repair;
pub(crate) mod salvage;
pub(crate) mod upkeep;
