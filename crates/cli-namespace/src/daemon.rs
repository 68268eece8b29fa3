//! Mounting in the foreground, or by a process of its own that leaves the terminal.

use crate::{place, unmount};
use anyhow::{Context, bail, ensure};
use canopy::commands::ns::Mount as Arguments;
use canopy::{Outcome, interrupt};
use canopy_fuse::mounted::Unmounter;
use canopy_mount::Mount;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use rustix::io::Errno;
use sd_notify::NotifyState;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The line that it prints when the directory is mounted.
const READY: &str = "mounted";

/// Prefix of a line in which the mounting process reports to its parent why mounting takes long.
const WAITS: &str = "waits: ";

/// Most threads that answer for a mount.
const THREADS_MAX: usize = 1024;

/// A thread that looks for a failure from time to time, and warns of each new one once.
pub struct Warnings {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Warnings {
    pub fn start(
        interval: Duration,
        failure: impl Fn() -> Option<String> + Send + 'static,
    ) -> Self {
        let (ends, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut last = None;
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let failure = failure();
                if failure.is_some() && failure != last {
                    tracing::warn!("{}", failure.as_deref().unwrap_or_default());
                }
                last = failure;
            }
        });
        Warnings { ends: Some(ends), thread: Some(thread) }
    }
}

impl Drop for Warnings {
    fn drop(&mut self) {
        drop(self.ends.take());
        // A panic of the thread was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Prepares this process to serve a mount, whose warnings begin with `source`. Returns the signals
/// that end it.
pub fn begin(is_detached: bool, source: &str) -> anyhow::Result<SigSet> {
    if is_detached {
        // It may lead a session already.
        let _ = rustix::process::setsid();
    }
    let signals = interrupt::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    raise_limit();
    canopy::print_events(source.to_owned());
    Ok(signals)
}

/// Answers the kernel until it is unmounted. The signals unmount it.
pub fn answer(mut mount: Mount, arguments: &Arguments, signals: SigSet) -> anyhow::Result<()> {
    restrict(&arguments.directory, &arguments.options)?;
    unmount_on_signal(signals, mount.unmounter());
    if arguments.detached {
        report_ready();
    }
    // systemd starts units that need the mount now.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let ran = mount.run();
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    ran.with_context(|| format!("the mount on {} failed", arguments.directory.display()))
}

/// Returns the number of threads that answer for a mount. Each has a descriptor of its own.
///
/// # Errors
///
/// Fails if so many cannot run.
pub fn threads(given: Option<NonZeroUsize>, default: usize) -> anyhow::Result<usize> {
    let Some(given) = given.map(usize::from) else { return Ok(default) };
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, most)| most);
    // The others are for files that are open.
    let most = usize::try_from(files / 2).unwrap_or(usize::MAX).clamp(1, THREADS_MAX);
    ensure!(
        given <= most,
        "--threads {given}: at most {most} are possible here (each needs memory, and one of {files} open \
         files)"
    );
    Ok(given)
}

/// Returns an error for a directory that nothing can be mounted on which is read from these others.
pub fn check_place(directory: &Path, read: &[PathBuf]) -> anyhow::Result<()> {
    let shown = directory.display();
    let failed = || format!("cannot mount on {shown}");
    match directory.read_dir() {
        Err(error) if Errno::from_io_error(&error).is_some_and(place::is_killed) => {
            bail!(place::killed(directory))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(error).with_context(failed),
        Ok(_) => {}
    }
    let directory = directory.canonicalize().with_context(failed)?;
    if unmount::mounted_on(&directory)?.is_some() {
        bail!("{shown}: something is mounted there; first unmount it: canopy unmount {shown}");
    }
    // The kernel would ask the mount for the files that the mount needs to answer.
    match read.iter().find(|read| read.starts_with(&directory) || directory.starts_with(read)) {
        Some(read) => {
            bail!("{shown}: {} cannot be mounted over itself, nor inside", read.display())
        }
        None => Ok(()),
    }
}

/// Reports to the waiting parent process that the directory is mounted.
pub fn report_ready() {
    // So that whatever it was started in can be unmounted.
    let _ = rustix::process::chdir("/");
    let mut out = std::io::stdout().lock();
    // The waiting process may be gone.
    let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
}

/// Reports to the waiting parent process why mounting takes long.
pub fn report_wait(wait: impl Display) {
    let mut out = std::io::stdout().lock();
    // The waiting process may be gone.
    let _ = writeln!(out, "{WAITS}{wait}").and_then(|()| out.flush());
}

/// Serves a mount. If a process waits for it, that process gets the error, too: the disk with the
/// log may be full.
pub fn reporting(
    is_awaited: bool,
    serve: impl FnOnce() -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    serve().inspect_err(|error| {
        if is_awaited {
            // Once the directory is mounted, nobody waits any more.
            let _ = writeln!(std::io::stdout(), "{}", canopy::error_chain(error));
        }
    })
}

/// Unmounts when this process gets a signal to end.
pub fn unmount_on_signal(signals: SigSet, mut unmounter: Unmounter) {
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            match unmounter.unmount() {
                Ok(()) => break,
                Err(error) => canopy::message(format!("cannot unmount: {error}")),
            }
        }
    });
}

/// Lets this process open as many files as it may: each large one that is open takes a descriptor.
pub fn raise_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer it works, too.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Makes the mount obey the options of mount(8) that restrict files on it.
pub fn restrict(directory: &Path, options: &[String]) -> anyhow::Result<()> {
    let flags = options.iter().filter_map(|option| match option.as_str() {
        "nosuid" => Some(MsFlags::MS_NOSUID),
        "nodev" => Some(MsFlags::MS_NODEV),
        "noexec" => Some(MsFlags::MS_NOEXEC),
        _ => None,
    });
    let flags: MsFlags = flags.collect();
    if flags.is_empty() {
        return Ok(());
    }
    let none = None::<&Path>;
    let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    let restricted = nix::mount::mount(none, directory, none, flags, none);
    if restricted.is_err() {
        let _ = umount2(directory, MntFlags::MNT_DETACH);
    }
    restricted.with_context(|| format!("cannot restrict the mount on {}", directory.display()))
}

/// Starts a process that does the work of this one, and waits until it is ready. Its messages go to
/// the end of a file.
pub fn detach(path: &Path) -> anyhow::Result<Outcome> {
    let (log, before) = match open_log(path) {
        Ok((log, before)) => (Stdio::from(log), Some(before)),
        // A mount without changes needs no room.
        Err(error) if is_unwritable(&error) => {
            let shown = path.display();
            canopy::message(format!("cannot write {shown}: {error}: later messages are lost"));
            (Stdio::null(), None)
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
    };
    let program = std::env::current_exe().context("cannot find the program")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("cannot start a process")?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        while out.read_line(&mut said)? > 0
            && let Some(wait) = said.strip_prefix(WAITS)
        {
            canopy::message(wait.trim_end());
            said.clear();
        }
        if said.trim_end() == READY {
            return Ok(Outcome::Complete);
        }
        out.read_to_string(&mut said)?;
    }
    let _ = child.wait();
    match (said.trim_end(), before) {
        ("", Some(before)) => bail!("{}", said_since(path, before)),
        ("", None) => bail!("the process that mounts it ended; --foreground shows why"),
        (said, _) => bail!("{said}"),
    }
}

/// Opens a log, and returns where it ends.
fn open_log(path: &Path) -> std::io::Result<(File, u64)> {
    let mut options = File::options();
    options.create(true).append(true).read(true).mode(0o600);
    let mut log = options.open(path)?;
    let end = log.seek(SeekFrom::End(0))?;
    Ok((log, end))
}

/// Returns whether a disk is full or read-only.
fn is_unwritable(error: &std::io::Error) -> bool {
    use ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    [StorageFull, QuotaExceeded, ReadOnlyFilesystem].contains(&error.kind())
}

/// Returns the text of a log from a place on.
fn said_since(path: &Path, from: u64) -> String {
    let mut said = String::new();
    let read = File::open(path).and_then(|mut log| {
        log.seek(SeekFrom::Start(from))?;
        log.take(1 << 16).read_to_string(&mut said)
    });
    let said = said.trim_end().trim_start_matches("canopy: ");
    match read {
        Ok(_) if !said.is_empty() => said.to_owned(),
        // The disk that it is on may be full.
        _ => format!(
            "the process that mounts it ended and has written nothing to {}; --foreground shows why",
            path.display()
        ),
    }
}
