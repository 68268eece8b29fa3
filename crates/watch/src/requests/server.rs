//! The daemon's side: a socket that everybody may connect to, and a process for each connection.
//!
//! The kernel reports the user of each connection. The number of connections served is limited for
//! each user and in all. At the limit, the user with most connections loses one. A connection
//! without any data is given up after seconds.
//!
//! A connection belongs to the process that serves it. The daemon reads nothing from it, since
//! messages may carry descriptors. It is not the last to close it, either: the kernel would close
//! the waiting descriptors, too, and with some of them (a socket that lingers) that takes as long
//! as their sender likes. Where the kernel refuses descriptors ahead (Linux 6.16), there are none.

use super::checker::{CHECKER, Checked};
use super::protocol::{Answer, PATHS_MAX, SOCKET};
use super::queue::{RequestedDirectory, Slip};
use crate::error::{Error, Result};
use crate::events::absolute;
use crate::intake::Intake;
use crate::sys;
use canopy_as_user::{Accounts, Process, RoomLimits, Seat, Seats};
use canopy_model::Credentials;
use canopy_scan::mounts;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, getsockopt, send, sockopt::PeerCredentials};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that are served at a time.
const SEATS: RoomLimits = RoomLimits { all: 64, of_account: 4, of_user: 4 };

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
    seats: Seats,
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
        let (index, seats) = (directory, Seats::new(accounts, SEATS));
        let server = Server { listener, index, path, refuses_descriptors, intake, seats };
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
        // Users who connect from now on see that no daemon is there.
        let _ = std::fs::remove_file(super::client::short_path(&self.index));
        Ok(())
    }

    fn receive(self: &Arc<Self>, connection: UnixStream) {
        let peer = getsockopt(&connection, PeerCredentials).ok();
        let Some(seat) = peer.and_then(|peer| self.seats.take(peer.uid())) else {
            self.intake.note_refusal();
            // Bytes that do not fit at once are dropped.
            let line = Answer::Busy.line();
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(connection.as_raw_fd(), line.as_bytes(), flags);
            if !self.refuses_descriptors {
                // A process closes the descriptors that wait in it, so that the daemon need not.
                let _ = start(connection);
            }
            return;
        };
        let server = self.clone();
        let thread = std::thread::Builder::new().name("request".to_owned());
        // Where there is no thread, the connection is closed.
        let _ = thread.spawn(move || server.serve(connection, &seat));
    }

    /// Serves a connection to its end.
    fn serve(&self, connection: UnixStream, seat: &Seat) {
        let who = credentials_of(&connection);
        let Ok(mut process) = start(connection) else {
            self.intake.note_refusal();
            return;
        };
        if let Some(Credentials { uid, gids }) = who
            && process.introduce(uid, &gids).is_ok()
            && let Some(asked) = self.listen(&mut process, seat)
        {
            self.answer(asked, seat, &process);
        }
        process.end(ENDED_IN, &|| !self.intake.is_stopped());
    }

    /// Waits for the directories that a process could open, all of them.
    fn listen(&self, process: &mut Process, seat: &Seat) -> Option<Vec<RequestedDirectory>> {
        let is_wanted = || !seat.is_asked_to_leave() && !self.intake.is_stopped();
        let checked: Vec<Checked> = process.receive(Instant::now() + SAID_IN, &is_wanted).ok()?;
        if checked.len() > PATHS_MAX {
            return None;
        }
        let mut all = Vec::new();
        for one in checked {
            let (path, with_row) = match one {
                Checked::WithRow(path) => (path, true),
                Checked::Alone(path) => (path, false),
                Checked::Denied => {
                    self.intake.note_refusal();
                    continue;
                }
            };
            all.push(RequestedDirectory { path: absolute(&path)?, with_row });
        }
        Some(all)
    }

    /// Has directories listed again, and tells the process that waits for them what has become of
    /// each.
    fn answer(&self, asked: Vec<RequestedDirectory>, seat: &Seat, process: &Process) {
        if asked.is_empty() {
            return;
        }
        let mounts = mounts().unwrap_or_default();
        let ask = |one| self.intake.request(seat.account(), one, &mounts);
        let asked = Vec::from_iter(asked.into_iter().map(ask));
        let until = Instant::now() + ANSWERED_IN;
        for one in asked {
            let answer = match one {
                Err(answer) => Some(answer),
                Ok(slip) => self.wait(&slip, until, seat, process),
            };
            let Some(answer) = answer else { return };
            if process.send(&answer.line()).is_err() {
                return;
            }
        }
    }

    /// Waits for an answer, until nobody else does any more.
    fn wait(&self, slip: &Slip, until: Instant, seat: &Seat, process: &Process) -> Option<Answer> {
        loop {
            if let Some(answer) = slip.wait(LOOKED_EVERY) {
                return Some(answer);
            }
            if process.is_over() || self.intake.is_stopped() {
                return None;
            }
            if seat.is_asked_to_leave() || Instant::now() > until {
                self.intake.note_refusal();
                return Some(Answer::Busy);
            }
        }
    }
}

/// Returns who has connected, with all groups.
fn credentials_of(connection: &UnixStream) -> Option<Credentials> {
    let peer = getsockopt(connection, PeerCredentials).ok()?;
    let mut gids = vec![peer.gid()];
    gids.extend(sys::groups_of_peer(connection).ok()?);
    Some(Credentials { uid: peer.uid(), gids })
}

/// Starts the process that serves a connection, which is its alone from then on.
fn start(connection: UnixStream) -> std::io::Result<Process> {
    Process::start(&CHECKER, OwnedFd::from(connection).into(), Stdio::null())
}
