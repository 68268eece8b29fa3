//! `canopy report --per-user`: a page for each user, about the entries that the user sees.
//!
//! A process of its own writes each page. It becomes the user before it opens the index, so the
//! kernel decides which entries the page covers. Its standard output is a file that root has made:
//! users need no access to the directory.

use super::arguments::Arguments;
use super::page::{OwnLimit, PAGE, PageRequest, frames_of};
use crate::invocation::Invocation;
use crate::new_files::{Directory, NewFiles, Old};
use crate::outcome::{Outcome, message};
use anyhow::Context;
use canopy_as_user::Process;
use canopy_ingest::now_ns;
use canopy_text::user_or_number;
use canopy_tools::report::{self, DuplicateRule, Limits, ReportOptions, Section, Sections};
use nix::unistd::{Uid, User, getgrouplist};
use parking_lot::Mutex;
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::fs::{DirBuilder, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::{ChildStderr, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many pages are made at a time.
const AT_A_TIME: usize = 4;

/// The only group of users whom the system has no name for, and so no groups: that of nobody.
const NOBODYS_GROUP: u32 = 65_534;

/// Most bytes of messages of one process.
const MESSAGES_BYTES_MAX: usize = 1 << 20;

/// Writes a page for each user who has anything, or for those of them who are named.
pub(super) fn write_for_users(
    invocation: &Invocation,
    arguments: &Arguments,
    directory: &Path,
    sections: Sections,
    limits: Option<Limits>,
) -> anyhow::Result<Outcome> {
    let options = ReportOptions {
        sections: [Section::Users].into_iter().collect(),
        top: usize::MAX,
        owner: None,
        limits: None,
        duplicates: DuplicateRule::SizeTimeAndName,
        now_ns: now_ns(),
        threads: arguments.read.threads(invocation),
    };
    let (report, failed) =
        report::report(&arguments.read.open(invocation)?, &arguments.paths, &options)?;
    failed.iter().for_each(message);
    if report.paths.is_empty() && !failed.is_empty() {
        return Ok(Outcome::Partial);
    }
    let named = &arguments.user;
    let mut users: Vec<u32> = report.users().collect();
    for uid in named.iter().filter(|uid| !users.contains(uid)) {
        message(format_args!("{} has nothing there, and gets no page", user_or_number(*uid)));
    }
    users.retain(|uid| named.is_empty() || named.contains(uid));
    let request = PageRequest {
        index: invocation.site.index_to_write()?,
        sections,
        top: arguments.top,
        threads: options.threads.div_ceil(AT_A_TIME),
        is_verbose: arguments.read.verbose,
    };
    let written = write_pages(directory, users, &request, &arguments.paths, limits.as_ref())?;
    Ok(if failed.is_empty() { written } else { Outcome::Partial })
}

/// Writes the pages of these users into a directory, which must not exist. To be called before
/// other threads are there.
fn write_pages(
    directory: &Path,
    users: Vec<u32>,
    request: &PageRequest,
    paths: &[OsString],
    limits: Option<&Limits>,
) -> anyhow::Result<Outcome> {
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
            match write_page(&pages, &directory, uid, request, paths, limits) {
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

fn write_page(
    pages: &NewFiles,
    directory: &Directory,
    uid: u32,
    request: &PageRequest,
    paths: &[OsString],
    limits: Option<&Limits>,
) -> anyhow::Result<Outcome> {
    let user = known_user(uid);
    let name = file_name(uid, user.as_ref());
    let page = pages.create(directory, name.as_ref(), Old::Distrusted)?;
    page.set_permissions(Permissions::from_mode(0o600))?;
    let output = page.try_clone()?;
    let gids = groups(user)?;
    let mut process = Process::start(&PAGE, output.into(), Stdio::piped())
        .context("cannot run canopy for that user")?;
    let own: OwnLimit = limits.map(|limits| limits.of_user(uid));
    let sent = process
        .introduce(uid, &gids)
        .and_then(|()| process.send(request))
        .and_then(|()| frames_of(paths).try_for_each(|frame| process.send(&frame)))
        .and_then(|()| process.send(&own));
    let told = process.take_errors().map(messages).transpose()?.unwrap_or_default();
    let status = process.wait()?;
    // With 1, the page has those of several PATHs that could be answered.
    let is_partial = status.code() == Some(1) && page.metadata()?.len() > 0;
    let settled = pages.settle(name.as_ref(), status.success() || is_partial);
    let told = String::from_utf8_lossy(&told);
    for line in told.lines() {
        let line = line.strip_prefix("canopy: ").unwrap_or(line);
        message(format_args!("{}: {line}", user_or_number(uid)));
    }
    settled?;
    let is_explained = status.code().is_some() && !told.is_empty();
    if !status.success() && !is_explained {
        sent.context("cannot ask for the page")?;
        anyhow::bail!("the report was not finished: {status}");
    }
    Ok(if status.success() { Outcome::Complete } else { Outcome::Partial })
}

/// Reads the messages of a process to their end, and returns the first ones.
fn messages(mut errors: ChildStderr) -> std::io::Result<Vec<u8>> {
    let (mut told, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match errors.read(&mut chunk) {
            Ok(0) => return Ok(told),
            Ok(count) if told.len() < MESSAGES_BYTES_MAX => told.extend_from_slice(&chunk[..count]),
            // The process must not wait for a reader.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the entry of a user in the system's table. Returns `None` if there is none, or if its
/// name is also another user's.
fn known_user(uid: u32) -> Option<User> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    let of_name = User::from_name(&user.name).ok().flatten()?;
    (of_name.uid == user.uid).then_some(user)
}

/// Returns the groups of a user, the main one first.
fn groups(user: Option<User>) -> anyhow::Result<Vec<u32>> {
    let Some(user) = user else { return Ok(vec![NOBODYS_GROUP]) };
    let main = user.gid.as_raw();
    let groups = getgrouplist(&CString::new(user.name)?, user.gid);
    let groups = groups.context("cannot find the groups")?;
    let others = groups.iter().map(|gid| gid.as_raw()).filter(|&gid| gid != main);
    Ok(std::iter::once(main).chain(others).collect())
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
