//! Lengths of random tests. Tests of other crates have this file, too.

#![allow(dead_code)]

/// Returns `long` with `CANOPY_LONG=1`, which releases are tested with, and `short` otherwise. The
/// cases of the short run are among those of the long one.
pub fn rounds<T>(short: T, long: T) -> T {
    let is_long = std::env::var_os("CANOPY_LONG").is_some_and(|value| value == "1");
    if is_long { long } else { short }
}
