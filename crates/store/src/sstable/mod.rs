//! Sorted files of records.
