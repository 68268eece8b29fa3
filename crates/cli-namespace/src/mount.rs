//! `canopy ns mount`: in the foreground, or by a process of its own that leaves the terminal.

use crate::place;
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Mount as Arguments;
use canopy::interrupt;
use canopy_mount::{Mount, Options};
use canopy_namespace::Upkeep;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the process that mounted it says later is in this file of the namespace.
const LOG: &str = "mount.log";

/// How often to look for what could not be done.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// What it says when the directory is mounted.
const READY: &str = "mounted";

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    check_place(arguments)?;
    match arguments.foreground || arguments.detached {
        true => serve(arguments),
        false => detach(arguments),
    }
}

/// Returns an error for a directory that the namespace cannot be mounted on.
fn check_place(arguments: &Arguments) -> anyhow::Result<()> {
    let shown = arguments.directory.display();
    let failed = || format!("cannot mount on {shown}");
    match arguments.directory.read_dir() {
        Err(error) if error.kind() == ErrorKind::NotConnected => bail!(
            "{shown}: the process that had mounted something there was killed; first unmount it: \
             canopy ns unmount {shown}"
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(error).with_context(failed),
        Ok(_) => {}
    }
    let namespace = place::found(&arguments.namespace)?;
    let directory = arguments.directory.canonicalize().with_context(failed)?;
    // The kernel would ask the mount for the files that the mount needs to answer.
    if namespace.starts_with(&directory) || directory.starts_with(&namespace) {
        bail!("{shown}: a namespace cannot be mounted over itself, nor inside");
    }
    Ok(())
}

/// Lets this process open as many files as it may: each large one that is open takes a descriptor.
fn raise_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer it works, too.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Tells in the log what could not be done beside, each failure once, until the sender is dropped.
fn watch(upkeep: &Arc<Upkeep>) -> (Sender<()>, JoinHandle<()>) {
    let (upkeep, (ends, ended)) = (upkeep.clone(), channel());
    let thread = std::thread::spawn(move || {
        let mut told = None;
        while ended.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let failure = upkeep.failure();
            if failure.is_some() && failure != told {
                canopy::message(failure.as_deref().unwrap_or_default());
            }
            told = failure;
        }
    });
    (ends, thread)
}

/// Mounts, and answers the kernel until it is unmounted.
fn serve(arguments: &Arguments) -> anyhow::Result<Outcome> {
    if arguments.detached {
        // It may lead a session already.
        let _ = rustix::process::setsid();
    }
    let signals = interrupt::block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    raise_limit();
    let namespace = Arc::new(place::open(&arguments.namespace)?);
    let upkeep = Arc::new(Upkeep::start(&namespace));
    let (ends, watching) = watch(&upkeep);
    let shown = arguments.namespace.canonicalize()?.display().to_string();
    let is_root = nix::unistd::geteuid().is_root();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let options = Options {
        is_for_all: is_root && !arguments.private,
        is_read_only: arguments.read_only || arguments.options.iter().any(|one| one == "ro"),
        threads: arguments.threads.unwrap_or(threads),
        name: shown,
        passes_through: is_root && !arguments.no_passthrough,
        log: Arc::new(|said| canopy::message(said)),
    };
    let directory = arguments.directory.display();
    let mut mount = Mount::new(namespace.clone(), &arguments.directory, &options)
        .with_context(|| format!("cannot mount on {directory}"))?;
    restrict(arguments)?;
    let mut unmounter = mount.unmounter();
    std::thread::spawn(move || {
        while signals.wait().is_ok() {
            match unmounter.unmount() {
                Ok(()) => break,
                Err(error) => canopy::message(format!("cannot unmount: {error}")),
            }
        }
    });
    if arguments.detached {
        // So that whatever it was started in can be unmounted.
        let _ = rustix::process::chdir("/");
        let mut out = std::io::stdout().lock();
        // Whoever waits for it may have gone.
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    }
    let ran = mount.run();
    let synced = namespace.sync();
    drop(ends);
    // A thread that panicked has said so.
    let _ = watching.join();
    drop(upkeep);
    ran.with_context(|| format!("the mount on {directory} failed"))?;
    synced.with_context(|| format!("what was last written through {directory} may be lost"))?;
    Ok(Outcome::Complete)
}

/// Has the mount keep to those of mount(8)'s options that restrict what files on it can do.
fn restrict(arguments: &Arguments) -> anyhow::Result<()> {
    let flags = arguments.options.iter().filter_map(|option| match option.as_str() {
        "nosuid" => Some(MsFlags::MS_NOSUID),
        "nodev" => Some(MsFlags::MS_NODEV),
        "noexec" => Some(MsFlags::MS_NOEXEC),
        _ => None,
    });
    let flags: MsFlags = flags.collect();
    if flags.is_empty() {
        return Ok(());
    }
    let (directory, none) = (&arguments.directory, None::<&Path>);
    let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    let restricted = nix::mount::mount(none, directory, none, flags, none);
    if restricted.is_err() {
        let _ = umount2(directory, MntFlags::MNT_DETACH);
    }
    restricted.with_context(|| format!("cannot restrict the mount on {}", directory.display()))
}

/// Starts a process that mounts, and waits until it has.
fn detach(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let path = arguments.namespace.join(LOG);
    let failed = || format!("cannot write {}", path.display());
    let mut options = File::options();
    options.create(true).append(true).read(true).mode(0o600);
    let mut log = options.open(&path).with_context(failed)?;
    let before = log.seek(SeekFrom::End(0))?;
    let program = std::env::current_exe().context("cannot find the program")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?)
        .spawn()
        .context("cannot start a process")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(Outcome::Complete);
    }
    let _ = child.wait();
    bail!("{}", said_since(&path, before))
}

/// Returns what was written into a log from a place on.
fn said_since(path: &Path, from: u64) -> String {
    let mut said = String::new();
    let read = File::open(path).and_then(|mut log| {
        log.seek(SeekFrom::Start(from))?;
        log.take(1 << 16).read_to_string(&mut said)
    });
    let said = said.trim_end().trim_start_matches("canopy: ");
    match read {
        Ok(_) if !said.is_empty() => said.to_owned(),
        _ => format!("the process that mounts it ended; see {}", path.display()),
    }
}
