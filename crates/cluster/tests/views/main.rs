//! Reading and searching all tables of a cluster: what one sees beside its servers, and what queries
//! of clients find, is what clients list.

#[path = "../servers/place.rs"]
#[allow(dead_code)]
mod place;

mod queries;
mod reading;
mod tree;
