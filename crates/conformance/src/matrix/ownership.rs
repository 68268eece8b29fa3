//! Who may give files away, change their modes and times and remove them from sticky directories, and
//! what becomes of the set-user-ID and set-group-ID bits.

use super::{callers, case, unless};
use crate::case::Case;
use crate::credentials::id;
use crate::model::{Object, W};

/// Adds the cases.
pub fn add(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    chown(cases)?;
    chmod(cases)?;
    writing(cases)?;
    times(cases)?;
    sticky(cases)
}

fn object(gid: u32, mode: u32, is_directory: bool) -> Object {
    Object { uid: id(1), gid, mode, is_directory, acl: None }
}

/// Makes `f` of user u1, of some group and mode.
fn made(object: &Object) -> String {
    let make = if object.is_directory { "mkdir f 0755" } else { "create f 0644 data" };
    format!(
        "{make}
        chown f {} {}
        chmod f 0{:o}\n",
        object.uid, object.gid, object.mode
    )
}

fn word(id: Option<u32>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| id.to_string())
}

fn chown(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let calls = ["chown f", "lchown f", "fchown $x", "fchownat AT_FDCWD 0 f"];
    let mut calls = calls.iter().cycle();
    for caller in &callers(&["root", "u1", "u1+g2", "u2", "u2+g1"])? {
        for (is_directory, mode) in [
            (false, 0o644),
            (false, 0o4755),
            (false, 0o2755),
            (false, 0o6755),
            (false, 0o6745),
            (true, 0o6755),
        ] {
            for uid in [None, Some(id(1)), Some(id(2)), Some(0)] {
                for gid in [None, Some(id(1)), Some(id(2)), Some(id(3))] {
                    let file = object(id(1), mode, is_directory);
                    // Anybody may change nothing, unless that takes bits away.
                    if uid.is_none() && gid.is_none() && !file.is_owned_by(&caller.credentials) {
                        continue;
                    }
                    let mode_after = file.after_chown(&caller.credentials, uid, gid);
                    let call = calls.next().unwrap_or(&"chown f");
                    let call = format!("{call} {} {}", word(uid), word(gid));
                    let expected = unless("EPERM", mode_after.is_some(), "ok");
                    let (who, made) = (caller.name, made(&file));
                    let (uid, gid) = match mode_after {
                        Some(_) => (uid.unwrap_or(file.uid), gid.unwrap_or(file.gid)),
                        None => (file.uid, file.gid),
                    };
                    let lines = format!(
                        "{made}
                        chmod f 0777
                        {who}: x = open f O_RDONLY
                        chmod f 0{mode:o}
                        {who}: {call} => {expected}
                        stat f uid gid mode => {uid} {gid} {:04o}",
                        mode_after.unwrap_or(mode)
                    );
                    let kind = if is_directory { "directory" } else { "file" };
                    let name = format!("chown/{kind} [{mode:04o}, {who}, {call}]");
                    cases.push(case(name, &[], &lines)?);
                }
            }
        }
    }
    Ok(())
}

fn chmod(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let modes = [0, 0o111, 0o644, 0o777, 0o1755, 0o2755, 0o2644, 0o4755, 0o6711, 0o7777];
    let calls = ["chmod f", "fchmod $x", "fchmodat AT_FDCWD f"];
    let mut calls = calls.iter().cycle();
    for caller in &callers(&["root", "u1", "u1+g3", "u2", "u2+g1"])? {
        for gid in [id(1), id(3)] {
            for (is_directory, mode) in modes.iter().flat_map(|mode| [(false, mode), (true, mode)])
            {
                let file = object(gid, 0o755, is_directory);
                let after = file.after_chmod(&caller.credentials, *mode);
                let (who, call) = (caller.name, calls.next().unwrap_or(&"chmod f"));
                let flags = if call.starts_with("fchmodat") { "0" } else { "" };
                let lines = format!(
                    "{}
                    {who}: x = open f O_RDONLY
                    {who}: {call} 0{mode:o} {flags} => {}
                    stat f mode => {:04o}",
                    made(&file),
                    unless("EPERM", after.is_some(), "ok"),
                    after.unwrap_or(file.mode)
                );
                let kind = if is_directory { "directory" } else { "file" };
                let name = format!("chmod/{kind} [group {gid}, {who}, {call} {mode:04o}]");
                cases.push(case(name, &[], &lines)?);
            }
        }
    }
    Ok(())
}

/// What changes contents takes privileges away, unless root does it.
fn writing(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let calls = [
        ("write $x X", ""),
        ("pwrite $x 2 X", ""),
        ("writev $x X Y", ""),
        ("ftruncate $x 2", ""),
        ("truncate f 2", ""),
        ("truncate f 100", ""),
        ("open f O_WRONLY|O_TRUNC", ""),
        ("fallocate $x 0 0 100", "fallocate"),
        ("copy_file_range $y 0 $x 0 4", ""),
    ];
    for caller in &callers(&["root", "u1", "u1+g3", "u2", "u2+g3"])? {
        for mode in [0o666, 0o4777, 0o2777, 0o6777, 0o2767, 0o6767, 0o6666] {
            for (call, need) in calls {
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
                let needs = Vec::from_iter(Some(need).filter(|need| !need.is_empty()));
                let name = format!("privileges/after-writing [{mode:04o}, {who}, {call}]");
                cases.push(case(name, &needs, &lines)?);
            }
        }
    }
    Ok(())
}

/// The owner may set any times; who may write may set both to now; nobody is asked for no change.
fn times(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let given = ["now", "omit", "5.000000006"];
    let pairs = given.iter().flat_map(|atime| given.iter().map(move |mtime| (*atime, *mtime)));
    for (atime, mtime) in pairs {
        for caller in &callers(&["root", "u1", "u2+g1", "u3"])? {
            for mode in [0o600, 0o660, 0o666, 0o444] {
                let file = object(id(1), mode, false);
                let is_owner = file.is_owned_by(&caller.credentials);
                let expected = match (atime, mtime) {
                    ("omit", "omit") => "ok",
                    ("now", "now") => {
                        unless("EACCES", is_owner || file.may(&caller.credentials, W), "ok")
                    }
                    _ => unless("EPERM", is_owner, "ok"),
                };
                let after = |time: &str| match time {
                    "5.000000006" if expected == "ok" => "5.000000006",
                    "now" if expected == "ok" => "!1.000000002",
                    _ => "1.000000002",
                };
                let who = caller.name;
                let lines = format!(
                    "{}
                    utimes f 1.000000002 1.000000002
                    {who}: utimes f {atime} {mtime} => {expected}
                    stat f atime mtime => {} {}",
                    made(&file),
                    after(atime),
                    after(mtime)
                );
                let name = format!("times/set [{mode:04o}, {who}, {atime}, {mtime}]");
                cases.push(case(name, &[], &lines)?);
            }
        }
    }
    Ok(())
}

/// From a sticky directory, only its owner and the file's owner remove a file.
fn sticky(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let calls = [
        ("unlink d/f", false),
        ("rename d/f d/g", false),
        ("rename d/f g", false),
        ("rename mine d/f", false),
        ("renameat2 mine d/f RENAME_EXCHANGE", false),
        ("rmdir d/f", true),
        ("rename ours d/f", true),
        ("rename d/f d/g", true),
        ("renameat2 ours d/f RENAME_EXCHANGE", true),
    ];
    for (call, is_directory) in calls {
        for mode in [0o777, 0o1777] {
            for (directory_of, file_of) in [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)]
            {
                for caller in &callers(&["root", "u1", "u2", "u3+g1"])? {
                    let (uid, gid) = (id(directory_of), id(1));
                    let directory = Object { uid, gid, mode, is_directory: true, acl: None };
                    let allowed = directory.gives_up(&caller.credentials, id(file_of));
                    let make = if is_directory { "mkdir d/f 0777" } else { "create d/f 0666" };
                    let who = caller.name;
                    let lines = format!(
                        "mkdir d 0777
                        {make}
                        {who}: create mine
                        {who}: mkdir ours 0777
                        chown d/f {} {gid}
                        chown d {uid} {gid}
                        chmod d 0{mode:o}
                        {who}: {call} => {}",
                        id(file_of),
                        unless("EPERM", allowed, "ok")
                    );
                    let kind = if is_directory { "directory" } else { "file" };
                    let name = format!(
                        "sticky/{kind} [{mode:04o} of u{directory_of}, u{file_of}, {who}, {call}]"
                    );
                    cases.push(case(name, &[], &lines)?);
                }
            }
        }
    }
    Ok(())
}
