//! Tools that a machine may lack, for tests that leave something out without them. Tests of other
//! crates have this file, too.

#![allow(dead_code, missing_docs)]

use std::ffi::OsString;
use std::path::PathBuf;

/// Reports whether a program is installed. A test leaves out what needs a missing program. With
/// `CANOPY_REQUIRE=1`, which `scripts/test` sets, the test fails instead.
#[track_caller]
pub fn has(program: &str) -> bool {
    let is_there = std::env::split_paths(&path()).any(|part| part.join(program).is_file());
    is_met(is_there, is_required(), &format!("the program {program}"))
}

/// Reports whether a user exists; fails as `has` does.
#[track_caller]
pub fn has_user(name: &str) -> bool {
    let is_there = nix::unistd::User::from_name(name).is_ok_and(|user| user.is_some());
    is_met(is_there, is_required(), &format!("the user {name}"))
}

/// Returns the directory of GUFI's programs. No registry has them, so they are never required.
pub fn gufi() -> Option<PathBuf> {
    let directory = std::env::var_os("GUFI_BIN").map(PathBuf::from);
    is_met(directory.is_some(), false, "GUFI_BIN, the directory of GUFI's programs,");
    directory
}

/// Returns `PATH`, and behind it the directories where Debian puts servers.
pub fn path() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let mut parts = Vec::from_iter(std::env::split_paths(&own));
    parts.push("/usr/sbin".into());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    parts.extend(versions.map(|version| version.path().join("bin")));
    std::env::join_paths(parts).unwrap()
}

fn is_required() -> bool {
    std::env::var_os("CANOPY_REQUIRE").is_some_and(|value| value == "1")
}

/// Prints that something is left out, or fails if it is required. Returns whether it is there.
#[track_caller]
pub fn is_met(is_there: bool, is_required: bool, what: &str) -> bool {
    assert!(is_there || !is_required, "{what} is missing; scripts/test installs what tests need");
    if !is_there {
        println!("skipped: {what} is missing");
    }
    is_there
}
