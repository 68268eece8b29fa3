//! The daemon's side: a socket that everybody may connect to, and a process for each connection.
//!
//! Who connects is told by the kernel. Of each user a few connections are served, of all together
//! some more, and where there are too many the user with most of them loses one. Whoever says
//! nothing is given up after seconds.
//!
//! A connection belongs to the process that serves it. The daemon reads nothing from it, since what
//! was sent may have descriptors with it, and is not the last to close it: the kernel would close
//! what waits in it, too, and with some descriptors (a socket that lingers) that takes as long as
//! their sender likes. Where the kernel refuses descriptors ahead (Linux 6.16), there are none.

use super::checker::{ALONE, ARGUMENT, DENIED, END, WITH_ROW, credentials_line};
use super::protocol::{Answer, PATHS_MAX, Parts, SOCKET};
use super::queue::{RequestedDirectory, Slip};
use crate::error::{Error, Result};
use crate::events::absolute;
use crate::intake::Intake;
use crate::sys;
use canopy_credentials::Accounts;
use canopy_model::Credentials;
use canopy_scan::mounts;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, getsockopt, send, sockopt::PeerCredentials};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Connections that are served at a time of one user, and of all.
const SEATS_OF_USER: usize = 4;
const SEATS: usize = 64;

/// Those of others that have been told to end may still be there.
const SEATS_WITH_LEAVING: usize = 2 * SEATS;

/// In this time a user has said what there is to say, and the directories have been opened.
const SAID_IN: Duration = Duration::from_secs(10);

/// In this time an answer is there.
const ANSWERED_IN: Duration = Duration::from_secs(300);

/// In this time a process ends that has nothing more to do.
const ENDED_IN: Duration = Duration::from_secs(2);

/// How often it is looked whether somebody still waits.
const LOOKED_EVERY: Duration = Duration::from_millis(100);

/// Takes requests in.
pub struct Server {
    listener: UnixListener,
    /// The directory of the index.
    index: OwnedFd,
    path: PathBuf,
    refuses_descriptors: bool,
    intake: Arc<Intake>,
    accounts: Accounts,
    seats: Mutex<Vec<Arc<Seat>>>,
}

/// A connection that is served.
struct Seat {
    holder: u32,
    /// Set when it is to make room.
    is_asked_to_leave: AtomicBool,
}

impl Server {
    /// Makes the socket in the directory of the index, in the place of one that a daemon has left.
    pub fn open(index: &Path, intake: Arc<Intake>, accounts: Accounts) -> Result<Arc<Self>> {
        let directory = super::client::open_index(index).map_err(Error::io("open", index))?;
        let path = index.join(SOCKET);
        let at = || Error::io("make", &path);
        let place = super::client::short_path(&directory);
        match place.symlink_metadata() {
            Ok(about) if about.file_type().is_socket() => {
                std::fs::remove_file(&place).map_err(at())?;
            }
            // Making it fails where there is something else.
            _ => {}
        }
        let listener = UnixListener::bind(&place).map_err(at())?;
        let refuses_descriptors = sys::refuse_descriptors(&listener).is_ok();
        listener.set_nonblocking(true).map_err(at())?;
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o666)).map_err(at())?;
        let seats = Mutex::default();
        let index = directory;
        let server = Server { listener, index, path, refuses_descriptors, intake, accounts, seats };
        Ok(Arc::new(server))
    }

    /// Serves connections until the intake is stopped.
    pub fn run(self: &Arc<Self>) -> Result<()> {
        while !self.intake.is_stopped() {
            let mut waited = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.intake.stopped(), PollFlags::POLLIN),
            ];
            match poll(&mut waited, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::io("wait for", &self.path)(errno.into())),
            }
            match self.listener.accept() {
                Ok((connection, _)) => self.receive(connection),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Too many files are open, say: others end meanwhile.
                Err(_) => std::thread::sleep(LOOKED_EVERY),
            }
        }
        // Who comes now is told that no daemon is there.
        let _ = std::fs::remove_file(super::client::short_path(&self.index));
        Ok(())
    }

    fn receive(self: &Arc<Self>, connection: UnixStream) {
        let peer = getsockopt(&connection, PeerCredentials).ok();
        let Some(seat) = peer.and_then(|peer| self.seat(self.accounts.of(peer.uid()))) else {
            self.intake.note_refusal();
            // What does not fit at once is not read.
            let line = Answer::Busy.line();
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(connection.as_raw_fd(), line.as_bytes(), flags);
            if !self.refuses_descriptors
                && let Ok((mut child, _)) = start(connection)
            {
                // What it has open is closed with it, without waiting for anything.
                let _ = child.kill();
                let _ = child.wait();
            }
            return;
        };
        let server = self.clone();
        let thread = std::thread::Builder::new().name("request".to_owned());
        let own = seat.clone();
        let started = thread.spawn(move || {
            server.serve(connection, &own);
            server.leave(&own);
        });
        if started.is_err() {
            self.leave(&seat);
        }
    }

    /// Returns a seat for a connection, if there is one.
    fn seat(&self, holder: u32) -> Option<Arc<Seat>> {
        let mut seats = self.seats.lock();
        let of = |holder: u32| seats.iter().filter(move |seat| seat.holder == holder);
        if of(holder).count() >= SEATS_OF_USER || seats.len() >= SEATS_WITH_LEAVING {
            return None;
        }
        let staying = || seats.iter().filter(|seat| !seat.is_leaving());
        if staying().count() >= SEATS {
            let of_its_user =
                |seat: &&Arc<Seat>| staying().filter(|other| other.holder == seat.holder).count();
            let most = staying().max_by_key(of_its_user).filter(|seat| of_its_user(seat) > 1)?;
            most.is_asked_to_leave.store(true, Ordering::SeqCst);
        }
        let seat = Arc::new(Seat { holder, is_asked_to_leave: AtomicBool::new(false) });
        seats.push(seat.clone());
        Some(seat)
    }

    fn leave(&self, seat: &Arc<Seat>) {
        self.seats.lock().retain(|other| !Arc::ptr_eq(other, seat));
    }

    /// Serves a connection to its end.
    fn serve(&self, connection: UnixStream, seat: &Seat) {
        let who = credentials_of(&connection);
        let Ok((mut child, mut to)) = start(connection) else {
            self.intake.note_refusal();
            return;
        };
        if let Some(Credentials { uid, gids }) = who
            && to.write_all(credentials_line(uid, &gids).as_bytes()).is_ok()
            && let Some(from) = child.stderr.take()
            && let Some(asked) = self.listen(from.as_fd(), seat)
        {
            self.answer(asked, seat, &from, &mut to);
        }
        drop(to);
        let until = Instant::now() + ENDED_IN;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > until || self.intake.is_stopped() {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(LOOKED_EVERY / 10);
        }
    }

    /// Reads what a process says of the directories that its user asks for, all of it.
    fn listen(&self, from: impl AsFd, seat: &Seat) -> Option<Vec<RequestedDirectory>> {
        let until = Instant::now() + SAID_IN;
        let mut parts = Parts::paths();
        let mut all = Vec::new();
        let mut chunk = [0; 4096];
        while Instant::now() < until && !seat.is_leaving() && !self.intake.is_stopped() {
            let mut waited = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
            poll(&mut waited, LOOKED_EVERY.as_millis() as u16).ok()?;
            if !waited[0].any().unwrap_or(true) {
                continue;
            }
            let read = rustix::io::read(&from, &mut chunk).ok().filter(|&read| read > 0)?;
            parts.add(&chunk[..read]);
            while let Some(part) = parts.next().ok()? {
                match part.split_first()? {
                    (b'.', _) if part == END[..1] => return Some(all),
                    (&DENIED, _) => self.intake.note_refusal(),
                    (&kind @ (WITH_ROW | ALONE), path) if all.len() < PATHS_MAX => {
                        all.push(RequestedDirectory {
                            path: absolute(path)?,
                            with_row: kind == WITH_ROW,
                        });
                    }
                    _ => return None,
                }
            }
        }
        None
    }

    /// Has directories listed again, and tells the process that waits for them what has become of
    /// each.
    fn answer(
        &self,
        asked: Vec<RequestedDirectory>,
        seat: &Seat,
        from: &ChildStderr,
        to: &mut impl Write,
    ) {
        if asked.is_empty() {
            return;
        }
        let mounts = mounts().unwrap_or_default();
        let ask = |one| self.intake.request(seat.holder, one, &mounts);
        let asked = Vec::from_iter(asked.into_iter().map(ask));
        let until = Instant::now() + ANSWERED_IN;
        for one in asked {
            let answer = match one {
                Err(answer) => Some(answer),
                Ok(slip) => self.wait(&slip, until, seat, from),
            };
            let Some(answer) = answer else { return };
            if to.write_all(answer.line().as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Waits for an answer, until nobody else does any more.
    fn wait(&self, slip: &Slip, until: Instant, seat: &Seat, from: impl AsFd) -> Option<Answer> {
        loop {
            if let Some(answer) = slip.wait(LOOKED_EVERY) {
                return Some(answer);
            }
            let mut waited = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
            poll(&mut waited, PollTimeout::ZERO).ok()?;
            // It has nothing more to say, so it has ended.
            let is_gone = waited[0].any().unwrap_or(true);
            if is_gone || self.intake.is_stopped() {
                return None;
            }
            if seat.is_leaving() || Instant::now() > until {
                self.intake.note_refusal();
                return Some(Answer::Busy);
            }
        }
    }
}

impl Seat {
    fn is_leaving(&self) -> bool {
        self.is_asked_to_leave.load(Ordering::SeqCst)
    }
}

/// Returns who has connected, with all groups.
fn credentials_of(connection: &UnixStream) -> Option<Credentials> {
    let peer = getsockopt(connection, PeerCredentials).ok()?;
    let mut gids = vec![peer.gid()];
    gids.extend(sys::groups_of_peer(connection).ok()?);
    Some(Credentials { uid: peer.uid(), gids })
}

/// Starts the process that serves a connection, which is its alone from then on; returns what the
/// process is told by, too. It does nothing before it is told whose process it is to be.
fn start(connection: UnixStream) -> std::io::Result<(Child, File)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("canopy").arg(ARGUMENT).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(OwnedFd::from(connection)).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    drop(command);
    let to = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
    Ok((child, OwnedFd::from(to).into()))
}
