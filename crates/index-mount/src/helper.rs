//! Answering questions for one user: in a process of its own that has become that user for good, or
//! in a thread of a user who mounts an index alone.

use crate::protocol::{Answer, Failure, ReplyKind, Request, RequestKind, Setup, receive, send};
use crate::view::UserView;
use canopy_credentials::{become_user, close_all_but_standard, limit};
use canopy_index::Index;
use canopy_model::escape;
use nix::errno::Errno;
use nix::sys::resource::Resource;
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

/// By how much searches give way to lookups and listings, of all users.
const SEARCH_NICENESS: i32 = 10;

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
    // While it does not answer, the kernel may keep a directory locked for all users: nobody but root
    // may stop it.
    become_user(setup.uid, &setup.gids)?;
    let index = setup.index.clone();
    let root = setup.root();
    let view = UserView::new(Arc::new(move || Ok(vec![Index::open(&index)?])), root);
    serve(socket, view)
}

impl Setup {
    /// Returns the path that the root of the mount stands for, escaped.
    fn root(&self) -> String {
        escape(self.root.as_os_str().as_bytes()).into_owned()
    }
}

/// Answers until the socket is closed. Searches take turns in a thread of their own.
pub(crate) fn serve(socket: UnixStream, view: UserView) -> io::Result<()> {
    let view = Arc::new(view);
    let answers = Arc::new(Mutex::new(socket.try_clone()?));
    let (searches, waiting) = channel::<Request>();
    let searcher = {
        let (view, answers) = (view.clone(), answers.clone());
        let work = move || {
            // If this fails, they do not.
            let _ = rustix::process::nice(SEARCH_NICENESS);
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
        match UserView::is_search(&request.asked) && searcher.is_ok() {
            true => searches.send(request).map_err(io::Error::other)?,
            false => answer(&view, &answers, &request),
        }
    }
}

fn answer(view: &UserView, answers: &Mutex<UnixStream>, request: &Request) {
    let told = catch_unwind(AssertUnwindSafe(|| view.answer(&request.asked)));
    let told = told.unwrap_or_else(|_| {
        let log = format!("a question could not be answered: {}", kind(&request.asked));
        Err(Failure { errno: Errno::EIO as i32, log: Some(log) })
    });
    let number = request.number;
    let to = answers.lock();
    let sent = send(&*to, &Answer { number, reply: told });
    if sent.is_err() {
        let told: Result<ReplyKind, Failure> = Err(Errno::EIO.into());
        // Nobody waits any more if this fails, too.
        let _ = send(&*to, &Answer { number, reply: told });
    }
}

fn kind(asked: &RequestKind) -> &'static str {
    match asked {
        RequestKind::Lookup(..) => "a name",
        RequestKind::Attributes(_) => "attributes",
        RequestKind::List { .. } | RequestKind::Close(_) => "a directory",
        RequestKind::XattrNames(_) | RequestKind::Xattr(..) => "extended attributes",
        RequestKind::Access(..) => "access",
    }
}

/// Answers in a thread of this process.
pub(crate) fn serve_in_thread(socket: UnixStream, view: UserView) -> io::Result<()> {
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
