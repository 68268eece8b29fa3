//! Maintenance of a namespace: threads that look after it, what goes into records late, recovery
//! after a crash, building of indexes, checks of every rule, and repairs.

mod building;
pub(crate) mod check;
pub(crate) mod facts;
pub(crate) mod mend;
mod recovery;
pub(crate) mod repair;
pub(crate) mod salvage;
mod settling;
pub(crate) mod upkeep;
