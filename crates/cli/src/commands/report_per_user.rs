//! `canopy report --per-user`: a page for each user, of what that user sees.
//!
//! Each is written by a process of its own, which becomes the user before it opens the index, so
//! that the kernel decides what is on the page. It is this command line again, with `--as-user`, and
//! its standard output is a file that root has made: users need no access to the directory.

use crate::new_files::{Directory, NewFiles, Old};
use crate::outcome::{Outcome, message};
use anyhow::Context;
use canopy_credentials::{become_user, close_all_but_standard};
use canopy_text::user_or_number;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User, getgrouplist};
use parking_lot::Mutex;
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many pages are made at a time.
pub(super) const AT_A_TIME: usize = 4;

/// The only group of users whom the system has no name for, and so no groups: that of nobody.
const NOBODYS_GROUP: u32 = 65_534;

/// Writes the pages of these users into a directory, which must not exist. To be called before
/// other threads are there.
pub(super) fn write_pages(directory: &Path, users: Vec<u32>) -> anyhow::Result<Outcome> {
    let pages = NewFiles::new()?;
    DirBuilder::new()
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let directory = Directory::make_own(directory)?;
    let users = Mutex::new(users.into_iter());
    let is_complete = AtomicBool::new(true);
    let work = || {
        loop {
            let Some(uid) = users.lock().next() else { return };
            match write_page(&pages, &directory, uid) {
                Ok(Outcome::Complete) => continue,
                Ok(_) => {}
                Err(error) => message(format_args!("{}: {error:#}", user_or_number(uid))),
            }
            is_complete.store(false, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(work))));
    Ok(if is_complete.into_inner() { Outcome::Complete } else { Outcome::Partial })
}

fn write_page(pages: &NewFiles, directory: &Directory, uid: u32) -> anyhow::Result<Outcome> {
    let user = known_user(uid);
    let name = file_name(uid, user.as_ref());
    let page = pages.create(directory, name.as_ref(), Old::Distrusted)?;
    page.set_permissions(Permissions::from_mode(0o600))?;
    let output = page.try_clone()?;
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(end, format!("--as-user={}", credentials(uid, user)?).into());
    // That of this process, even if it was replaced since.
    let mut command = Command::new("/proc/self/exe");
    let ended = command.arg0("canopy").args(words).stdout(output).output();
    let ended = ended.context("cannot run canopy for that user")?;
    // With 1, the page has those of several PATHs that could be answered.
    let is_partial = ended.status.code() == Some(1) && page.metadata()?.len() > 0;
    let settled = pages.settle(name.as_ref(), ended.status.success() || is_partial);
    let told = String::from_utf8_lossy(&ended.stderr);
    for line in told.lines() {
        let line = line.strip_prefix("canopy: ").unwrap_or(line);
        message(format_args!("{}: {line}", user_or_number(uid)));
    }
    settled?;
    let is_explained = ended.status.code().is_some() && !told.is_empty();
    anyhow::ensure!(
        ended.status.success() || is_explained,
        "the report was not finished: {}",
        ended.status
    );
    Ok(if ended.status.success() { Outcome::Complete } else { Outcome::Partial })
}

/// Returns what the system knows of a user; `None` also for a name that is another's, too.
fn known_user(uid: u32) -> Option<User> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    let of_name = User::from_name(&user.name).ok().flatten()?;
    (of_name.uid == user.uid).then_some(user)
}

/// Returns the uid and the groups, the main one first, as `--as-user` takes them.
fn credentials(uid: u32, user: Option<User>) -> anyhow::Result<String> {
    let Some(user) = user else { return Ok(format!("{uid},{NOBODYS_GROUP}")) };
    let groups = getgrouplist(&CString::new(user.name)?, user.gid);
    let mut gids: Vec<u32> =
        groups.context("cannot find the groups")?.iter().map(|gid| gid.as_raw()).collect();
    gids.retain(|&gid| gid != user.gid.as_raw());
    let words = [uid, user.gid.as_raw()].into_iter().chain(gids);
    Ok(words.map(|id| id.to_string()).collect::<Vec<_>>().join(","))
}

/// Returns the name of a user's page, which no other user's is.
fn file_name(uid: u32, user: Option<&User>) -> String {
    let name = user.map(|user| &user.name).filter(|name| !name.starts_with("uid-"));
    let Some(name) = name else { return format!("uid-{uid}.html") };
    let mut escaped = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"_@$".contains(&byte);
        let _ = match is_plain || (b".-".contains(&byte) && at > 0) {
            true => write!(escaped, "{}", byte as char),
            false => write!(escaped, "%{byte:02X}"),
        };
    }
    escaped + ".html"
}

/// Becomes the user whose page this process writes, with these groups, and ends with the parent.
pub(super) fn become_reader(uid: u32, gids: &[u32]) -> anyhow::Result<()> {
    let become_reader = || {
        close_all_but_standard()?;
        become_user(uid, gids)?;
        Ok(set_pdeathsig(Signal::SIGKILL)?)
    };
    let become_reader: std::io::Result<()> = become_reader();
    become_reader.context("cannot become that user")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Gid;

    #[test]
    fn names_of_pages_stay_in_the_directory_and_apart() {
        for (name, expected) in [
            ("alice", "alice.html"),
            ("a.b-c_d$", "a.b-c_d$.html"),
            ("../../etc/x", "%2E.%2F..%2Fetc%2Fx.html"),
            (".hidden", "%2Ehidden.html"),
            ("-A", "%2DA.html"),
            ("SITE\\alice", "SITE%5Calice.html"),
            ("50%41", "50%2541.html"),
            ("j\u{f6}rg\n", "j%C3%B6rg%0A.html"),
            ("uid-8", "uid-7.html"),
        ] {
            let user = User {
                name: name.to_owned(),
                passwd: CString::default(),
                uid: Uid::from_raw(7),
                gid: Gid::from_raw(7),
                gecos: CString::default(),
                dir: "".into(),
                shell: "".into(),
            };
            assert_eq!(file_name(7, Some(&user)), expected);
        }
        assert_eq!(file_name(7, None), "uid-7.html");
    }
}
