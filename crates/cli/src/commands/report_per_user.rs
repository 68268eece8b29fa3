//! `canopy report --per-user`: a page for each user, of what that user sees.
//!
//! Each is written by a process of its own, which becomes the user before it opens the index, so
//! that the kernel decides what is on the page. Its standard output is a file that root has made:
//! users need no access to the directory.

use crate::invocation::Invocation;
use crate::new_files::{Directory, NewFiles, Old};
use crate::outcome::{self, Outcome, message};
use crate::read_options::ReadOptions;
use crate::terminal::stdout_for_json;
use anyhow::Context;
use canopy_as_user::{Channel, Process, Service};
use canopy_ingest::now_ns;
use canopy_text::user_or_number;
use canopy_tools::report::{self, DuplicateRule, Limit, Limits, ReportOptions, Sections};
use nix::unistd::{Uid, User, geteuid, getgrouplist};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::fs::{DirBuilder, Permissions};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The service that writes the page of a user.
pub(crate) const PAGE: Service = Service {
    name: "page",
    program: "canopy",
    memory_bytes_max: None,
    files_max: None,
    writes_files: true,
    ends_first: false,
    variables: &["TZ", "LANG", "LC_ALL", "LC_CTYPE", "LC_TIME"],
    // Paths are relative to it.
    keeps_directory: true,
    serve: |channel| outcome::exit_code(page(&channel), None),
};

/// How many pages are made at a time.
pub(super) const AT_A_TIME: usize = 4;

/// The only group of users whom the system has no name for, and so no groups: that of nobody.
const NOBODYS_GROUP: u32 = 65_534;

/// Most bytes of paths in a frame with several.
const PATHS_BYTES_MAX: usize = 256 << 10;

/// Most bytes of messages of one process.
const MESSAGES_BYTES_MAX: usize = 1 << 20;

/// The request that all pages share. Frames with paths follow, the last one empty, and a frame for the
/// user: whether limits are compared, and the limit.
#[derive(Serialize, Deserialize)]
pub(super) struct PageRequest {
    /// The directory of the index.
    pub(super) index: PathBuf,
    pub(super) sections: Sections,
    /// Most rows of a list.
    pub(super) top: u64,
    pub(super) threads: usize,
    pub(super) is_verbose: bool,
}

type OwnLimit = Option<Option<Limit>>;

/// Writes the pages of these users into a directory, which must not exist. To be called before
/// other threads are there.
pub(super) fn write_pages(
    directory: &Path,
    users: Vec<u32>,
    (request, paths): (&PageRequest, &[OsString]),
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
            match write_page((&pages, &directory), uid, (request, paths, limits)) {
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
    (pages, directory): (&NewFiles, &Directory),
    uid: u32,
    (request, paths, limits): (&PageRequest, &[OsString], Option<&Limits>),
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

/// Returns paths in portions that fit into a frame, and an empty one behind them.
fn frames_of(paths: &[OsString]) -> impl Iterator<Item = &[OsString]> {
    let mut rest = Some(paths);
    std::iter::from_fn(move || {
        let paths = rest?;
        let mut bytes = 0;
        let fits = |path: &&OsString| {
            bytes += path.len();
            bytes <= PATHS_BYTES_MAX
        };
        // A single path is shorter than a frame: the kernel limits words of a command line.
        let count = paths.iter().take_while(fits).count().max(1).min(paths.len());
        let (frame, others) = paths.split_at(count);
        rest = (!frame.is_empty()).then_some(others);
        Some(frame)
    })
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

/// Writes the page of the user of this process to standard output.
fn page(channel: &Channel) -> anyhow::Result<Outcome> {
    let unread = "cannot read which page is asked for";
    let asked: PageRequest = channel.receive().context(unread)?;
    let mut paths: Vec<OsString> = Vec::new();
    loop {
        let mut more: Vec<OsString> = channel.receive().context(unread)?;
        if more.is_empty() {
            break;
        }
        paths.append(&mut more);
    }
    let own: OwnLimit = channel.receive().context(unread)?;
    let uid = geteuid().as_raw();
    let limits = own.map(|own| {
        let mut limits = Limits::default();
        own.into_iter().for_each(|limit| limits.set_user(uid, limit));
        limits
    });
    let read = ReadOptions { at: None, verbose: asked.is_verbose, threads: Some(asked.threads) };
    let invocation = Invocation::unconfigured(Some(asked.index));
    let index = read.open(&invocation)?;
    let options = ReportOptions {
        sections: asked.sections,
        top: usize::try_from(asked.top)?,
        owner: Some(uid),
        limits,
        duplicates: DuplicateRule::SizeTimeAndName,
        now_ns: now_ns(),
        threads: asked.threads,
    };
    let (report, failed) = report::report(&index, &paths, &options)?;
    failed.iter().for_each(message);
    if !failed.is_empty() && report.paths.is_empty() {
        return Ok(Outcome::Partial);
    }
    let mut output = stdout_for_json();
    report::write_html(&report, &mut output)?;
    output.flush()?;
    invocation.end(Ok(Outcome::of_errors(&failed)))
}

/// Returns what the system knows of a user; `None` also for a name that is another's, too.
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
    fn paths_come_in_frames_with_an_empty_one_at_the_end() {
        let path = |bytes: usize| OsString::from("x".repeat(bytes));
        for (lengths, expected) in [
            (&[][..], &[0][..]),
            (&[1, 2], &[2, 0]),
            (&[PATHS_BYTES_MAX + 1, 1], &[1, 1, 0]),
            (&[PATHS_BYTES_MAX / 2, PATHS_BYTES_MAX / 2, 1, 1], &[2, 2, 0]),
        ] {
            let paths: Vec<OsString> = lengths.iter().map(|&bytes| path(bytes)).collect();
            let frames: Vec<&[OsString]> = frames_of(&paths).collect();
            assert_eq!(frames.iter().map(|frame| frame.len()).collect::<Vec<_>>(), expected);
            assert_eq!(frames.concat(), paths);
        }
    }

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
