//! Calls that change the process itself, run programs and mount.

use super::refusal::{Refusal, done};
use super::words::Words;
use super::{Answer, Calls, Worker};
use crate::word;
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Stdio};

/// `limit-size BYTES` sets RLIMIT_FSIZE. `run PATH [WORD...]` returns the exit code of a program,
/// `start` lets it run until the case ends. Calls that mount are for processes named `.ns`, which
/// end with their case: `remount FLAGS` mounts the directory of the case on itself with other
/// flags, in a private name space. `kernel NAME` reads a setting below `/proc/sys`.
pub const CALLS: Calls = &[
    ("umask", |_, words| {
        let before = rustix::process::umask(words.mode()?);
        Ok(format!("{:04o}", before.as_raw_mode()))
    }),
    ("chdir", |_, words| done(rustix::process::chdir(words.path()?))),
    ("fchdir", |worker, words| done(rustix::process::fchdir(worker.descriptor(words)?))),
    ("getcwd", |_, _| Ok(word::encode(rustix::process::getcwd(Vec::new())?.as_bytes()))),
    ("limit-size", |_, words| {
        let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE)?;
        done(setrlimit(Resource::RLIMIT_FSIZE, words.number()? as u64, hard))
    }),
    ("run", run),
    ("start", |worker, words| {
        let child = command(words)?.spawn()?;
        worker.children.push(child);
        Ok(String::new())
    }),
    ("install", |_, words| {
        let (program, path) = (words.path()?, words.path()?);
        done(std::fs::copy(program, path))
    }),
    ("remount", remount),
    ("bind", |_, words| {
        let (from, to) = (words.path()?, words.path()?);
        mount(Some(&from), &to, MsFlags::MS_BIND)
    }),
    ("kernel", |_, words| {
        let path = std::path::Path::new("/proc/sys").join(words.word()?);
        Ok(std::fs::read_to_string(path)?.trim().to_owned())
    }),
];

/// Takes limits back that a case set.
pub fn lift_limits() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if soft == hard || soft == RLIM_INFINITY {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard)
}

fn command(words: &mut Words) -> Result<Command, Refusal> {
    let mut command = Command::new(words.path()?);
    for argument in words.rest() {
        let argument = word::decode(argument).map(OsString::from_vec);
        command.arg(argument.ok_or_else(|| Refusal::broken("an argument is not text"))?);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

fn run(_: &mut Worker, words: &mut Words) -> Answer {
    let status = command(words)?.status()?;
    Ok(status.code().map_or_else(|| "signal".to_owned(), |code| code.to_string()))
}

fn mount(from: Option<&OsString>, to: &OsString, flags: MsFlags) -> Answer {
    let nothing = None::<&str>;
    done(nix::mount::mount(from.map(OsString::as_os_str), to.as_os_str(), nothing, flags, nothing))
}

fn remount(_: &mut Worker, words: &mut Words) -> Answer {
    let flags = MsFlags::from_bits_retain(words.number()? as u64);
    let here = OsString::from_vec(rustix::process::getcwd(Vec::new())?.into_bytes());
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None, &"/".into(), MsFlags::MS_PRIVATE | MsFlags::MS_REC)?;
    mount(Some(&here), &here, MsFlags::MS_BIND)?;
    mount(None, &here, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags)?;
    done(rustix::process::chdir(here.as_bytes()))
}
