//! Sql.
