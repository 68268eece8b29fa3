//! Rights to give files away, to change their modes and times, and to remove them from sticky
//! directories; effects on the set-user-ID and set-group-ID bits.

use super::{Caller, callers, case, protect, unless};
use crate::case::Case;
use crate::credentials::id;
use crate::model::{Object, W};

/// Adds the cases.
pub fn add(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    add_chown(cases)?;
    add_chmod(cases)?;
    add_writing(cases)?;
    add_times(cases)?;
    add_sticky(cases)
}

/// Returns an object that belongs to u1.
fn object(gid: u32, mode: u32, is_directory: bool) -> Object {
    Object { uid: id(1), gid, mode, is_directory, acl: None }
}

fn kind(object: &Object) -> &'static str {
    if object.is_directory { "directory" } else { "file" }
}

/// The steps that make `f`.
fn made(object: &Object) -> String {
    let make = if object.is_directory { "mkdir f 0755" } else { "create f 0644 data" };
    format!("{make}\n{}", protect(object, "f"))
}

fn add_chown(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let mut calls = ["chown f", "lchown f", "fchown $x", "fchownat AT_FDCWD 0 f"].iter().cycle();
    let files = [0o644, 0o4755, 0o2755, 0o6755, 0o6745].map(|mode| object(id(1), mode, false));
    for caller in &callers(&["root", "u1", "u1+g2", "u2", "u2+g1"])? {
        for object in files.iter().chain([&object(id(1), 0o6755, true)]) {
            for uid in [None, Some(id(1)), Some(id(2)), Some(0)] {
                for gid in [None, Some(id(1)), Some(id(2)), Some(id(3))] {
                    // Anybody may change nothing, unless that takes bits away.
                    let nothing = uid.is_none() && gid.is_none();
                    if nothing && !object.is_owned_by(&caller.credentials) {
                        continue;
                    }
                    let call = calls.next().unwrap_or(&"chown f");
                    cases.push(chown(caller, object, call, uid, gid)?);
                }
            }
        }
    }
    Ok(())
}

fn chown(
    caller: &Caller,
    object: &Object,
    call: &str,
    uid: Option<u32>,
    gid: Option<u32>,
) -> anyhow::Result<Case> {
    let word = |id: Option<u32>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let call = format!("{call} {} {}", word(uid), word(gid));
    let (who, mode) = (caller.name, object.mode);
    let after = object.after_chown(&caller.credentials, uid, gid);
    let expected = unless("EPERM", after.is_some(), "ok");
    let (uid, gid) = match after {
        Some(_) => (uid.unwrap_or(object.uid), gid.unwrap_or(object.gid)),
        None => (object.uid, object.gid),
    };
    let lines = format!(
        "{}
        chmod f 0777
        {who}: x = open f O_RDONLY
        chmod f 0{mode:o}
        {who}: {call} => {expected}
        stat f uid gid mode => {uid} {gid} {:04o}",
        made(object),
        after.unwrap_or(mode)
    );
    case(format!("chown/{} [{mode:04o}, {who}, {call}]", kind(object)), &[], &lines)
}

fn add_chmod(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let modes = [0, 0o111, 0o644, 0o777, 0o1755, 0o2755, 0o2644, 0o4755, 0o6711, 0o7777];
    let mut calls = ["chmod f", "fchmod $x", "fchmodat AT_FDCWD f"].iter().cycle();
    for caller in &callers(&["root", "u1", "u1+g3", "u2", "u2+g1"])? {
        for gid in [id(1), id(3)] {
            for object in [object(gid, 0o755, false), object(gid, 0o755, true)] {
                for mode in modes {
                    let call = calls.next().unwrap_or(&"chmod f");
                    cases.push(chmod(caller, &object, call, mode)?);
                }
            }
        }
    }
    Ok(())
}

fn chmod(caller: &Caller, object: &Object, call: &str, mode: u32) -> anyhow::Result<Case> {
    let (who, gid) = (caller.name, object.gid);
    let after = object.after_chmod(&caller.credentials, mode);
    let flags = if call.starts_with("fchmodat") { "0" } else { "" };
    let lines = format!(
        "{}
        {who}: x = open f O_RDONLY
        {who}: {call} 0{mode:o} {flags} => {}
        stat f mode => {:04o}",
        made(object),
        unless("EPERM", after.is_some(), "ok"),
        after.unwrap_or(object.mode)
    );
    let kind = kind(object);
    case(format!("chmod/{kind} [group {gid}, {who}, {call} {mode:04o}]"), &[], &lines)
}

/// Calls that change contents and the feature that they need.
const WRITING: &[(&str, &[&str])] = &[
    ("write $x X", &[]),
    ("pwrite $x 2 X", &[]),
    ("writev $x X Y", &[]),
    ("ftruncate $x 2", &[]),
    ("truncate f 2", &[]),
    ("truncate f 100", &[]),
    ("open f O_WRONLY|O_TRUNC", &[]),
    ("fallocate $x 0 0 100", &["fallocate"]),
    ("copy_file_range $y 0 $x 0 4", &[]),
];

/// Adds cases of calls that change contents: they clear privileges, unless root makes them.
fn add_writing(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    for caller in &callers(&["root", "u1", "u1+g3", "u2", "u2+g3"])? {
        for mode in [0o666, 0o4777, 0o2777, 0o6777, 0o2767, 0o6767, 0o6666] {
            for (call, needs) in WRITING {
                let file = object(id(3), mode, false);
                let (who, after) = (caller.name, file.after_writing(&caller.credentials));
                let lines = format!(
                    "create g 0644 more
                    {}
                    {who}: y = open g O_RDONLY
                    {who}: x = open f O_WRONLY
                    {who}: {call}
                    stat f mode => {after:04o}",
                    made(&file)
                );
                let name = format!("privileges/after-writing [{mode:04o}, {who}, {call}]");
                cases.push(case(name, needs, &lines)?);
            }
        }
    }
    Ok(())
}

/// The owner may set any times; who may write may set both to now; nobody is asked for no change.
fn add_times(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let given = ["now", "omit", "5.000000006"];
    for caller in &callers(&["root", "u1", "u2+g1", "u3"])? {
        for mode in [0o600, 0o660, 0o666, 0o444] {
            for atime in given {
                for mtime in given {
                    cases.push(times(caller, &object(id(1), mode, false), atime, mtime)?);
                }
            }
        }
    }
    Ok(())
}

fn times(caller: &Caller, file: &Object, atime: &str, mtime: &str) -> anyhow::Result<Case> {
    let is_owner = file.is_owned_by(&caller.credentials);
    let expected = match (atime, mtime) {
        ("omit", "omit") => "ok",
        ("now", "now") => unless("EACCES", is_owner || file.may(&caller.credentials, W), "ok"),
        _ => unless("EPERM", is_owner, "ok"),
    };
    let after = |time| match time {
        "omit" => "1.000000002",
        _ if expected != "ok" => "1.000000002",
        "now" => "!1.000000002",
        time => time,
    };
    let (who, mode) = (caller.name, file.mode);
    let lines = format!(
        "{}
        utimes f 1.000000002 1.000000002
        {who}: utimes f {atime} {mtime} => {expected}
        stat f atime mtime => {} {}",
        made(file),
        after(atime),
        after(mtime)
    );
    case(format!("times/set [{mode:04o}, {who}, {atime}, {mtime}]"), &[], &lines)
}

/// Calls that take `f` away, which is made like this, in exchange for something of the caller's.
const REMOVING: &[(&str, &str)] = &[
    ("unlink d/f", "create d/f 0666"),
    ("rename d/f d/g", "create d/f 0666"),
    ("rename d/f g", "create d/f 0666"),
    ("rename mine d/f", "create d/f 0666"),
    ("renameat2 mine d/f RENAME_EXCHANGE", "create d/f 0666"),
    ("rmdir d/f", "mkdir d/f 0777"),
    ("rename ours d/f", "mkdir d/f 0777"),
    ("rename d/f d/g", "mkdir d/f 0777"),
    ("renameat2 ours d/f RENAME_EXCHANGE", "mkdir d/f 0777"),
];

/// From a sticky directory, only its owner and the file's owner remove a file.
fn add_sticky(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let owners = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)];
    for caller in &callers(&["root", "u1", "u2", "u3+g1"])? {
        for mode in [0o777, 0o1777] {
            for (of_directory, of_file) in owners {
                for (call, make) in REMOVING {
                    cases.push(sticky(caller, mode, of_directory, of_file, call, make)?);
                }
            }
        }
    }
    Ok(())
}

fn sticky(
    caller: &Caller,
    mode: u32,
    of_directory: u32,
    of_file: u32,
    call: &str,
    make: &str,
) -> anyhow::Result<Case> {
    let uid = id(of_directory);
    let directory = Object { uid, ..object(id(1), mode, true) };
    let allowed = directory.gives_up(&caller.credentials, id(of_file));
    let who = caller.name;
    let lines = format!(
        "mkdir d 0777
        {make}
        {who}: create mine
        {who}: mkdir ours 0777
        chown d/f {} {}
        {}
        {who}: {call} => {}",
        id(of_file),
        id(1),
        protect(&directory, "d"),
        unless("EPERM", allowed, "ok")
    );
    let owners = format!("u{of_directory}, {make} of u{of_file}");
    case(format!("sticky/remove [{mode:04o} of {owners}, {who}, {call}]"), &[], &lines)
}
