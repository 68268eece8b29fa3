//! `-exec`, `-execdir`, `-ok` and `-okdir`: commands that the asking user runs on live paths. No
//! shell is involved, and a name is never anything but (a part of) one argument.

use super::jobs::{Jobs, Running};
use crate::find::messages::{quoted, system_message};
use crate::find::path::{file_name, trim_slashes};
use canopy_text::safe;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Bytes of arguments that one command of a batch gets, beside its environment, as find(1) counts
/// them.
const ARGUMENT_BYTES_MAX: usize = 128 << 10;

/// A command of the `-exec` family.
#[derive(Debug)]
pub struct Exec {
    /// The program and its arguments; in those of a batch, paths follow.
    words: Vec<Vec<u8>>,
    /// Whether many paths are given to one command (`+`).
    pub(crate) batch: bool,
    /// Whether it runs in the directory of the entry.
    pub(crate) in_directory: bool,
    /// Whether the user is asked first.
    ask: bool,
}

/// The paths that wait for a command of a batch.
#[derive(Default)]
pub(crate) struct Waiting {
    paths: Vec<Vec<u8>>,
    /// Bytes of all arguments, and those that the kernel still has room for.
    bytes: usize,
    kernel_bytes_left: usize,
    directory: Option<(Vec<u8>, WorkingDirectory)>,
    /// Commands that were started.
    pub(crate) running: Vec<Running>,
}

/// An entry to run a command on.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Its path as it is shown.
    pub(crate) shown: &'a [u8],
    /// The start path, as it was given.
    pub(crate) start: &'a [u8],
    /// Whether it is the start itself.
    pub(crate) is_start: bool,
    /// Whether a start that is a symbolic link is followed.
    pub(crate) follows: bool,
    /// Its directory, if that is open.
    pub(crate) directory: Option<BorrowedFd<'a>>,
}

/// A directory to run a command in, if it is not that of find itself.
type WorkingDirectory = Option<OwnedFd>;

impl Exec {
    /// Returns whether the user is asked before it runs.
    pub(crate) fn asks(&self) -> bool {
        self.ask
    }

    /// Takes the words of a command from the arguments that follow its name, which it cuts off.
    pub(crate) fn parse(name: &str, rest: &mut &[OsString]) -> Result<Self, String> {
        let missing = || format!("missing argument to `{name}'");
        let ask = name.starts_with("-ok");
        let in_directory = name.ends_with("dir");
        let ends_batch = |at: usize| !ask && at > 0 && rest[at] == "+" && rest[at - 1] == "{}";
        let end =
            (0..rest.len()).find(|&at| rest[at] == ";" || ends_batch(at)).ok_or_else(missing)?;
        let batch = rest[end] == "+";
        let mut words: Vec<Vec<u8>> =
            rest[..end].iter().map(|word| word.as_bytes().to_vec()).collect();
        if words.is_empty() {
            return Err(format!("invalid argument `;' to `{name}'"));
        }
        if batch {
            words.pop();
            if words.is_empty() {
                return Err(missing());
            }
            if words.iter().any(|word| memchr::memmem::find(word, b"{}").is_some()) {
                return Err(format!("Only one instance of {{}} is supported with {name} ... +"));
            }
        }
        match in_directory {
            true => safe_path(name)?,
            false => known_program(name, &words[0])?,
        }
        *rest = &rest[end + 1..];
        Ok(Exec { words, batch, in_directory, ask })
    }

    /// Returns whether it is true only if the command ends well: a batch is always true.
    pub(crate) fn decides(&self) -> bool {
        !self.batch
    }

    /// Runs the command on one entry, with nothing to read if others run `beside` it. Returns
    /// whether it ended well.
    pub(crate) fn run(&self, target: Target<'_>, beside: bool) -> Result<bool, String> {
        let argument = self.argument(target);
        let words: Vec<Vec<u8>> = self.words.iter().map(|word| replace(word, &argument)).collect();
        if self.ask && !is_confirmed(&self.words[0], target.shown) {
            return Ok(false);
        }
        let directory = self.working_directory(target)?;
        ended(&words[0], start_in(&words, &[], &directory, self.ask || beside)?)
    }

    /// Adds an entry to a batch; runs the command first if no more fit, beside others if there are
    /// `jobs`. Returns whether the command, if it ran to its end, ended well.
    pub(crate) fn wait(
        &self,
        target: Target<'_>,
        waiting: &mut Waiting,
        jobs: Option<&Jobs>,
    ) -> Result<bool, String> {
        let mut well = true;
        let directory =
            if self.in_directory { directory_of(target.shown).to_vec() } else { Vec::new() };
        let argument = self.argument(target);
        let moved = waiting.directory.as_ref().is_some_and(|(last, _)| *last != directory);
        if moved || !waiting.has_room(&argument) {
            well = self.run_waiting(waiting, jobs)?;
        }
        if waiting.paths.is_empty() {
            waiting.directory = Some((directory, self.working_directory(target)?));
            waiting.bytes = 0;
            waiting.kernel_bytes_left = kernel_bytes_max().saturating_sub(environment_bytes());
            self.words.iter().for_each(|word| waiting.count(word));
        }
        waiting.count(&argument);
        waiting.paths.push(argument);
        Ok(well)
    }

    /// Runs the command on the paths that wait, if there are any, likewise.
    pub(crate) fn run_waiting(
        &self,
        waiting: &mut Waiting,
        jobs: Option<&Jobs>,
    ) -> Result<bool, String> {
        let paths = std::mem::take(&mut waiting.paths);
        let directory = waiting.directory.take();
        match directory {
            Some((_, opened)) if !paths.is_empty() => {
                let permit = jobs.map(Jobs::permit);
                let started = start_in(&self.words, &paths, &opened, jobs.is_some())?;
                match permit {
                    None => ended(&self.words[0], started),
                    Some(permit) => {
                        waiting.running.push(Running::new(&self.words[0], started, permit));
                        Ok(true)
                    }
                }
            }
            _ => Ok(true),
        }
    }

    fn argument(&self, target: Target<'_>) -> Vec<u8> {
        if !self.in_directory {
            return target.shown.to_vec();
        }
        match file_name(target.shown) {
            b"/" => b"/".to_vec(),
            name => [b"./", name].concat(),
        }
    }

    /// Opens the directory of an entry if the command runs there. What lies between it and the
    /// start must not have become a symbolic link since the index was made: somebody else may own
    /// it.
    fn working_directory(&self, target: Target<'_>) -> Result<WorkingDirectory, String> {
        if !self.in_directory {
            return Ok(None);
        }
        let directory = directory_of(target.shown);
        let failed =
            |error: std::io::Error| format!("{}: {}", quoted(directory), system_message(&error));
        if let Some(open) = target.directory {
            return open.try_clone_to_owned().map(Some).map_err(failed);
        }
        let failed = |errno: rustix::io::Errno| failed(errno.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = if target.is_start { directory } else { target.start };
        // The start was a directory when it was indexed.
        let is_link_refused = !(target.is_start || target.follows || top.ends_with(b"/"));
        let no_link = if is_link_refused { OFlags::NOFOLLOW } else { OFlags::empty() };
        let top = rustix::fs::open(OsStr::from_bytes(top), flags | no_link, Mode::empty())
            .map_err(failed)?;
        if target.is_start {
            return Ok(Some(top));
        }
        let below = directory.get(target.start.len()..).unwrap_or_default();
        open_below(top, below).map(Some).map_err(failed)
    }
}

impl Waiting {
    /// Returns whether one more argument fits into the command.
    fn has_room(&self, argument: &[u8]) -> bool {
        self.paths.is_empty()
            || self.bytes + argument.len() < ARGUMENT_BYTES_MAX
                && kernel_cost(argument) <= self.kernel_bytes_left
    }

    fn count(&mut self, argument: &[u8]) {
        self.bytes += argument.len() + 1;
        self.kernel_bytes_left = self.kernel_bytes_left.saturating_sub(kernel_cost(argument));
    }
}

/// Bytes that the kernel needs for an argument or a variable: text, NUL and pointer.
fn kernel_cost(text: &[u8]) -> usize {
    text.len() + 1 + size_of::<usize>()
}

/// Bytes that the kernel needs for the environment, and some that are left to the program.
fn environment_bytes() -> usize {
    let variables = std::env::vars_os();
    let bytes = |(key, value): (OsString, OsString)| 1 + key.len() + kernel_cost(value.as_bytes());
    2048 + variables.map(bytes).sum::<usize>()
}

/// Bytes that the kernel takes for arguments and environment together: a quarter of the stack, but
/// between 128 KiB and 6 MiB; see execve(2).
fn kernel_bytes_max() -> usize {
    let stack = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    let quarter = stack.map_or(usize::MAX, |bytes| bytes as usize / 4);
    quarter.clamp(128 << 10, 6 << 20)
}

/// Opens a directory below another one, through no symbolic link, however long its path is.
fn open_below(top: OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    /// Less than the system takes, by more than a name is long.
    const PIECE_BYTES: usize = 3800;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let (mut opened, mut rest) = (top, path);
    while let Some(at) = rest.iter().position(|&byte| byte != b'/') {
        rest = &rest[at..];
        let names = rest.len().min(PIECE_BYTES);
        let name_end = rest[names..].iter().position(|&byte| byte == b'/');
        let (piece, behind) = rest.split_at(name_end.map_or(rest.len(), |end| names + end));
        let piece = Path::new(OsStr::from_bytes(piece));
        opened = openat2(&opened, piece, flags, Mode::empty(), resolve)?;
        rest = behind;
    }
    Ok(opened)
}

/// Fails where `PATH` is empty or has a relative directory: it would run what lies in the
/// directories of others. Without `PATH`, the system's own directories are searched.
fn safe_path(name: &str) -> Result<(), String> {
    let Some(path) = std::env::var_os("PATH") else { return Ok(()) };
    let relative =
        path.as_bytes().split(|&byte| byte == b':').find(|entry| !entry.starts_with(b"/"));
    match relative {
        None => Ok(()),
        Some(b"" | b".") => Err(format!(
            "The current directory is included in the PATH environment variable, which is insecure \
             in combination with the {name} action of find.  Please remove the current directory \
             from your $PATH (that is, remove \".\", doubled colons, or leading or trailing colons)"
        )),
        Some(entry) => Err(format!(
            "The relative path {} is included in the PATH environment variable, which is insecure \
             in combination with the {name} action of find.  Please remove that entry from $PATH",
            quoted(entry)
        )),
    }
}

/// Fails where `PATH` is empty and the program has no directory: the system would run it from the
/// working directory, which may lie in the tree that is searched.
fn known_program(name: &str, program: &[u8]) -> Result<(), String> {
    let is_empty = std::env::var_os("PATH").is_some_and(|path| path.is_empty());
    match is_empty && !program.contains(&b'/') {
        true => Err(format!(
            "PATH is empty, so {name} would run {} from the working directory: give its path, \
             such as /usr/bin/env",
            quoted(program)
        )),
        false => Ok(()),
    }
}

fn start_in(
    words: &[Vec<u8>],
    paths: &[Vec<u8>],
    directory: &WorkingDirectory,
    quiet: bool,
) -> Result<Child, String> {
    let os = |word: &Vec<u8>| OsString::from_vec(word.clone());
    let mut command = Command::new(os(&words[0]));
    command.args(words[1..].iter().chain(paths).map(os));
    if let Some(directory) = directory {
        // The child has the descriptor until it becomes the command.
        command.current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    }
    if quiet {
        command.stdin(Stdio::null());
    }
    command.spawn().map_err(|error| failed(&words[0], &error))
}

/// Waits for a command. Returns whether it ended well.
pub(super) fn ended(program: &[u8], mut child: Child) -> Result<bool, String> {
    child.wait().map(|status| status.success()).map_err(|error| failed(program, &error))
}

fn failed(program: &[u8], error: &std::io::Error) -> String {
    format!("{}: {}", quoted(program), system_message(error))
}

/// Asks the user whether to run a command, for `-ok`.
fn is_confirmed(program: &[u8], shown: &[u8]) -> bool {
    let [program, shown] = [program, shown].map(String::from_utf8_lossy);
    eprint!("< {} ... {} > ? ", safe::message_line(&program), safe::message_line(&shown));
    std::io::stderr().flush().ok();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).is_ok() && answer.starts_with(['y', 'Y'])
}

fn replace(word: &[u8], path: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = word;
    while let Some(at) = memchr::memmem::find(rest, b"{}") {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(path);
        rest = &rest[at + 2..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

fn directory_of(path: &[u8]) -> &[u8] {
    let trimmed = trim_slashes(path);
    match trimmed.iter().rposition(|&byte| byte == b'/') {
        Some(0) => b"/",
        Some(at) => &trimmed[..at],
        None => b".",
    }
}
