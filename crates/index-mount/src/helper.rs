//! Answering questions for one user: in a process of its own that has become that user for good, or
//! in a thread of a user who mounts an index alone.

use crate::protocol::{Answer, Asked, Failure, Request, Setup, Told, receive, send};
use crate::view::View;
use canopy_index::Index;
use canopy_model::escape;
use nix::errno::Errno;
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, getgroups, getresgid, getresuid, setgroups, setresgid, setresuid};
use parking_lot::Mutex;
use std::io::{self, BufReader, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// The first argument of the program that runs [`serve_as_user`].
pub const ARGUMENT: &str = "serve-view";

/// What a helper may have in memory, in bytes.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// How many files it may have open: each shard that is read takes some.
const FILES_MAX: u64 = 65_536;

/// What helpers have as their real and saved user: nobody's, so that nobody but root may stop, end or
/// trace one. While it does not answer, the kernel may keep a directory locked for all users.
const HOLDER: u32 = u32::MAX - 15;

/// Becomes the user that is told through standard input, a socket, and answers through it until it
/// is closed. To be called first of all, in a process with one thread.
pub fn serve_as_user() -> io::Result<()> {
    close_all_but_standard()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let setup: Setup = receive(&socket)?;
    // Rather this process than another goes when memory is short.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_FSIZE, 0)?;
    limit(Resource::RLIMIT_DATA, MEMORY_BYTES_MAX)?;
    limit(Resource::RLIMIT_NOFILE, FILES_MAX)?;
    become_user(&setup)?;
    let index = setup.index.clone();
    let root = setup.root();
    let view = View::new(Arc::new(move || Ok(vec![Index::open(&index)?])), root);
    serve(socket, view)
}

impl Setup {
    /// Returns the path that the root of the mount stands for, escaped.
    fn root(&self) -> String {
        escape(self.root.as_os_str().as_bytes()).into_owned()
    }
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let (_, hard) = nix::sys::resource::getrlimit(resource)?;
    let most = most.min(hard);
    Ok(setrlimit(resource, most, most)?)
}

/// Closes what whoever mounted the index may have left open.
fn close_all_but_standard() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The directory that was read has been closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// Gives up all rights but those of a user with these groups, for good, and lets no process of that
/// user look into this one or send it signals.
fn become_user(setup: &Setup) -> io::Result<()> {
    let refused = |what: &str| io::Error::new(ErrorKind::PermissionDenied, what.to_owned());
    let groups: Vec<Gid> = setup.gids.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let uid = Uid::from_raw(setup.uid);
    let gid = *groups.first().ok_or_else(|| refused("a user without a group"))?;
    set_no_new_privs()?;
    setgroups(&groups)?;
    setresgid(gid, gid, gid)?;
    let holder = if uid.is_root() { uid } else { Uid::from_raw(HOLDER) };
    let holder = match setresuid(holder, uid, holder) {
        // Where namespaces of users do not have it.
        Err(Errno::EINVAL) => setresuid(uid, uid, uid).map(|()| uid),
        done => done.map(|()| holder),
    }?;
    set_dumpable(false)?;
    let (users, group_ids) = (getresuid()?, getresgid()?);
    let mut own = getgroups()?;
    let mut wanted = groups.clone();
    own.sort_unstable_by_key(|gid| gid.as_raw());
    wanted.sort_unstable_by_key(|gid| gid.as_raw());
    let is_user = [users.real, users.effective, users.saved] == [holder, uid, holder];
    let is_group = [group_ids.real, group_ids.effective, group_ids.saved] == [gid; 3];
    if !is_user || !is_group || own != wanted {
        return Err(refused("cannot become the user"));
    }
    if !uid.is_root() && has_capabilities()? {
        return Err(refused("cannot give up capabilities"));
    }
    Ok(())
}

/// Returns whether this process can do more than its user.
fn has_capabilities() -> io::Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let sets = status
        .lines()
        .filter_map(|line| line.strip_prefix("CapPrm:").or_else(|| line.strip_prefix("CapEff:")));
    let sets: Vec<&str> = sets.map(str::trim).collect();
    Ok(sets.len() != 2 || sets.iter().any(|set| set.bytes().any(|digit| digit != b'0')))
}

/// Answers until the socket is closed. Searches take turns in a thread of their own.
pub(crate) fn serve(socket: UnixStream, view: View) -> io::Result<()> {
    let view = Arc::new(view);
    let answers = Arc::new(Mutex::new(socket.try_clone()?));
    let (searches, waiting) = channel::<Request>();
    let searcher = {
        let (view, answers) = (view.clone(), answers.clone());
        let work = move || {
            for request in waiting {
                answer(&view, &answers, &request);
            }
        };
        std::thread::Builder::new().name("search".to_owned()).spawn(work)
    };
    let mut requests = BufReader::new(socket);
    loop {
        let request: Request = match receive(&mut requests) {
            Ok(request) => request,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        // Where there are no more threads for the user, this one searches.
        match View::is_search(&request.asked) && searcher.is_ok() {
            true => searches.send(request).map_err(io::Error::other)?,
            false => answer(&view, &answers, &request),
        }
    }
}

fn answer(view: &View, answers: &Mutex<UnixStream>, request: &Request) {
    let told = catch_unwind(AssertUnwindSafe(|| view.answer(&request.asked)));
    let told = told.unwrap_or_else(|_| {
        let log = format!("a question could not be answered: {}", kind(&request.asked));
        Err(Failure { errno: Errno::EIO as i32, log: Some(log) })
    });
    let number = request.number;
    let to = answers.lock();
    let sent = send(&*to, &Answer { number, told });
    if sent.is_err() {
        let told: Result<Told, Failure> = Err(Errno::EIO.into());
        // Nobody waits any more if this fails, too.
        let _ = send(&*to, &Answer { number, told });
    }
}

fn kind(asked: &Asked) -> &'static str {
    match asked {
        Asked::Lookup(..) => "a name",
        Asked::Attributes(_) => "attributes",
        Asked::List { .. } | Asked::Close(_) => "a directory",
        Asked::XattrNames(_) | Asked::Xattr(..) => "extended attributes",
        Asked::Access(..) => "access",
    }
}

/// Answers in a thread of this process.
pub(crate) fn serve_in_thread(socket: UnixStream, view: View) -> io::Result<()> {
    let work = move || {
        // Whoever asks is told when the socket is closed.
        let _ = serve(socket, view);
    };
    std::thread::Builder::new().name("view".to_owned()).spawn(work).map(drop)
}

/// The program that runs [`serve_as_user`]: that of this process, even if it was replaced since.
pub(crate) fn program() -> &'static Path {
    Path::new("/proc/self/exe")
}
