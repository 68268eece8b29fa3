//! Shells that run one command after the other as a user. Becoming a user anew takes twice the time
//! of starting a program.

use super::User;
use super::batch::Line;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Output, Stdio};

/// Shells that a thread keeps. Random users rarely come again.
const KEPT_MAX: usize = 6;

/// Programs that the shell has itself, too.
const OF_THE_SHELL: [&str; 8] = ["echo", "false", "kill", "printf", "pwd", "test", "true", "["];

/// Variables that programs get beside those of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    /// Those of the test, with a locale and a zone.
    Inherited,
    /// Only `PATH`.
    Path,
}

thread_local! {
    // A thread may have mounts of its own, so that no other one can use its shells.
    static SHELLS: RefCell<Vec<Shell>> = const { RefCell::new(Vec::new()) };
}

/// Runs a program with arguments in a directory, as a user or as root, without input.
pub fn run<W: AsRef<OsStr>>(
    user: Option<&User>,
    variables: Variables,
    directory: &Path,
    set: &[(&str, &str)],
    words: impl IntoIterator<Item = W>,
) -> Output {
    let words: Vec<W> = words.into_iter().collect();
    let program = words[0].as_ref().as_bytes();
    // Part of the shell becomes a program that it would not start.
    let (open, exec, close) = match OF_THE_SHELL.iter().any(|own| own.as_bytes() == program) {
        true => ("( ", "exec", ")"),
        false => ("", "", ""),
    };
    let mut line = Line::new(open).plain("cd -P").words([directory]).plain("|| exit;");
    if variables == Variables::Path {
        line = line.plain("unset PWD OLDPWD;");
    }
    for (name, value) in set {
        // The value follows at once.
        let Line(quoted) = Line::default().words([value]);
        line = line.plain(name).joined("=").joined(&quoted.to_str().unwrap()[1..]);
    }
    let line = line.plain(exec).words(words).plain("</dev/null").plain(close);
    SHELLS.with_borrow_mut(|shells| {
        let at = shells.iter().position(|shell| shell.is_for(user, variables));
        let shell = match at {
            Some(at) => shells.remove(at),
            None => Shell::start(user, variables),
        };
        shells.push(shell);
        if shells.len() > KEPT_MAX {
            shells.remove(0);
        }
        shells.last_mut().unwrap().run(line)
    })
}

struct Shell {
    user: Option<User>,
    variables: Variables,
    child: Child,
    /// Stands behind the output of each command, where the exit code follows, and behind its
    /// messages.
    mark: String,
}

impl Shell {
    fn start(user: Option<&User>, variables: Variables) -> Self {
        let mut command = super::command_as(user, "sh".as_ref());
        match variables {
            Variables::Inherited => command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC"),
            Variables::Path => command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()),
        };
        command.current_dir("/").stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mark = format!("\x1e{:016x}\x1e", rand::random::<u64>());
        Shell { user: user.cloned(), variables, child, mark }
    }

    fn is_for(&self, user: Option<&User>, variables: Variables) -> bool {
        self.user.as_ref() == user && self.variables == variables
    }

    fn run(&mut self, Line(mut script): Line) -> Output {
        let mark = &self.mark;
        script.push(format!("\nprintf '{mark}%s\\n' $?; printf '{mark}\\n' >&2\n"));
        self.child.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
        let [(stdout, code), (stderr, _)] = self.both();
        let code: i32 = code.parse().unwrap();
        // A shell says 128 more than the number of the signal.
        let status = if code > 128 { code - 128 } else { code << 8 };
        Output { status: ExitStatus::from_raw(status), stdout, stderr }
    }

    /// Reads standard output and standard error up to the mark, each with the text behind it.
    fn both(&mut self) -> [(Vec<u8>, String); 2] {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (of_output, of_errors) =
            (self.child.stdout.as_mut().unwrap(), self.child.stderr.as_mut().unwrap());
        loop {
            let parts = [&stdout, &stderr].map(|read| behind(read, self.mark.as_bytes()));
            let mut waiting = Vec::new();
            if parts[0].is_none() {
                waiting.push(PollFd::new(of_output.as_fd(), PollFlags::POLLIN));
            }
            if parts[1].is_none() {
                waiting.push(PollFd::new(of_errors.as_fd(), PollFlags::POLLIN));
            }
            if let [Some(one), Some(other)] = parts {
                return [one, other];
            }
            poll(&mut waiting, PollTimeout::NONE).unwrap();
            let mut ready = waiting.iter().map(|one| one.any() == Some(true));
            let reads_output = parts[0].is_none() && ready.next().unwrap();
            let reads_errors = parts[1].is_none() && ready.next().unwrap();
            if reads_output {
                read_more(of_output, &mut stdout);
            }
            if reads_errors {
                read_more(of_errors, &mut stderr);
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // At the end of its input, it ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn read_more(pipe: &mut impl Read, read: &mut Vec<u8>) {
    let mut part = [0; 65_536];
    let count = pipe.read(&mut part).unwrap();
    assert!(count > 0, "the shell has ended: {}", String::from_utf8_lossy(read));
    read.extend(&part[..count]);
}

/// Divides an output at the mark, if its last line is there.
fn behind(read: &[u8], mark: &[u8]) -> Option<(Vec<u8>, String)> {
    let line = read.strip_suffix(b"\n")?;
    let from = line.len().saturating_sub(mark.len() + 3);
    let at = from + line[from..].windows(mark.len()).position(|part| part == mark)?;
    let code = String::from_utf8(line[at + mark.len()..].to_vec()).ok()?;
    Some((line[..at].to_vec(), code))
}
