//! Commands of which many run in one shell as a user: starting processes is what takes time.

use super::User;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Separates the outputs of two commands.
pub const NEXT: u8 = 0x1e;

/// A line of the shell from words of which some have to be quoted.
#[derive(Clone, Default)]
pub struct Line(pub OsString);

impl Line {
    pub fn new(words: &str) -> Self {
        Line(words.into())
    }

    pub fn words<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        for word in words {
            let word = word.as_ref().as_bytes();
            let quoted = word.split(|&byte| byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]);
            self.0.push(" '");
            self.0.push(OsStr::from_bytes(&quoted));
            self.0.push("'");
        }
        self
    }

    /// Adds words that the shell is to see as they are.
    pub fn plain(mut self, words: &str) -> Self {
        self.0.push(" ");
        self.0.push(words);
        self
    }

    /// Adds to the last word.
    pub fn joined(mut self, text: &str) -> Self {
        self.0.push(text);
        self
    }
}

/// The end of a command: its exit code, and all that it wrote.
pub struct Ran {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs commands one after the other as a user, in a directory that all can reach.
pub fn run_all(user: &User, lines: impl IntoIterator<Item = Line>) -> Vec<Ran> {
    let mut script = OsString::new();
    let mut count = 0;
    for Line(line) in lines {
        script.push(line);
        script.push("\nprintf '\\036%s\\036' $?; printf '\\036' >&2\n");
        count += 1;
    }
    let mut shell = user.command();
    shell.args(["sh", "-c"]).arg(script).current_dir("/");
    let output = shell.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").output().unwrap();
    let mut written = output.stdout.split(|&byte| byte == NEXT);
    let mut said = output.stderr.split(|&byte| byte == NEXT);
    let mut ran = Vec::new();
    for _ in 0..count {
        let stdout = written.next().expect("an output of every command").to_vec();
        let code = written.next().expect("an exit code of every command").to_vec();
        let code = OsString::from_vec(code).into_string().unwrap().parse().unwrap();
        let stderr = said.next().expect("messages of every command").to_vec();
        ran.push(Ran { code, stdout, stderr });
    }
    assert!(written.eq([&b""[..]]) && said.eq([&b""[..]]), "there is more than was asked for");
    ran
}
