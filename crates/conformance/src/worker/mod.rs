//! A process that makes system calls for the suite: with the credentials that it was started with,
//! one at a time, as its standard input asks. One line asks, one line answers.
//!
//! A line is `begin DIRECTORY` (what follows is a new case's, which works in that directory),
//! `end`, `exit`, or a call with its arguments. An answer is `=` with the call's value, the name of
//! an error (which begins with `E`), or `!` with what is wrong with the suite.

mod acls;
mod constants;
mod data;
mod descriptors;
mod inodes;
mod listings;
mod locks;
mod names;
mod opening;
mod processes;
mod refusal;
mod times;
mod words;
mod xattrs;

use crate::actors::EXIT;
use crate::credentials::Credentials;
use nix::sys::signal::{SigSet, Signal};
use refusal::{Answer, Refusal};
use rustix::fs::{CWD, Mode, OFlags};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::Child;
use vmap::MapMut;
use words::Words;

/// Implementation of a call.
type Call = fn(&mut Worker, &mut Words) -> Answer;

/// Calls by the names that scripts have for them.
type Calls = &'static [(&'static str, Call)];

/// The calls of all files.
const CALLS: &[Calls] = &[
    acls::CALLS,
    data::CALLS,
    descriptors::CALLS,
    inodes::CALLS,
    listings::CALLS,
    locks::CALLS,
    names::CALLS,
    opening::CALLS,
    processes::CALLS,
    times::CALLS,
    xattrs::CALLS,
];

/// State of a process that makes calls.
struct Worker {
    /// The directory of all cases.
    base: OwnedFd,
    /// Descriptors that the case has open.
    descriptors: HashMap<RawFd, OwnedFd>,
    /// Programs that the case started.
    children: Vec<Child>,
    /// Mappings of the case, by the path of the file.
    maps: HashMap<String, MapMut>,
    /// Times of files that the case remembers, by their paths.
    times: HashMap<String, times::Times>,
}

impl Worker {
    /// Makes a descriptor one of the case's and returns its number, by which calls refer to it.
    fn keep(&mut self, descriptor: OwnedFd) -> String {
        let number = descriptor.as_raw_fd();
        self.descriptors.insert(number, descriptor);
        number.to_string()
    }

    /// The descriptor that a call refers to.
    fn descriptor(&self, words: &mut Words) -> Result<BorrowedFd<'_>, Refusal> {
        let word = words.word()?;
        if word == "AT_FDCWD" {
            return Ok(CWD);
        }
        let descriptor = word.parse().ok().and_then(|number: RawFd| self.descriptors.get(&number));
        let descriptor = descriptor.ok_or_else(|| Refusal::broken(format!("{word} is not open")));
        descriptor.map(std::os::fd::AsFd::as_fd)
    }

    /// Gives up all that a case has.
    fn end(&mut self) -> Answer {
        self.maps.clear();
        self.descriptors.clear();
        self.times.clear();
        for mut child in self.children.drain(..) {
            child.kill()?;
            child.wait()?;
        }
        processes::lift_limits()?;
        rustix::process::umask(Mode::empty());
        rustix::process::fchdir(&self.base)?;
        Ok(String::new())
    }

    fn begin(&mut self, directory: &str) -> Answer {
        self.end()?;
        rustix::process::chdir(directory)?;
        Ok(String::new())
    }

    fn answer(&mut self, line: &str) -> Answer {
        let mut words = Words::new(line);
        let name = words.word()?;
        match name {
            "begin" => return self.begin(words.word()?),
            "end" => return self.end(),
            _ => {}
        }
        let call = CALLS.iter().copied().flatten().find(|(known, _)| *known == name);
        let (_, call) = call.ok_or_else(|| Refusal::broken(format!("no call is named {name}")))?;
        let value = call(self, &mut words)?;
        match words.optional() {
            Some(word) => Err(Refusal::broken(format!("{name} does not take {word}"))),
            None => Ok(value),
        }
    }
}

/// Serves calls from standard input until that ends. The current directory is the one of all cases.
pub fn serve(credentials: &Credentials) -> anyhow::Result<()> {
    // Writing beyond the limit of sizes is to fail instead of ending the process.
    SigSet::from(Signal::SIGXFSZ).thread_block()?;
    let base = rustix::fs::open(".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    credentials.take_on()?;
    let mut worker = Worker {
        base,
        descriptors: HashMap::new(),
        children: Vec::new(),
        maps: HashMap::new(),
        times: HashMap::new(),
    };
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line == EXIT {
            writeln!(output, "=")?;
            // As if it were killed: the kernel closes what is open.
            std::process::exit(0);
        }
        match worker.answer(&line) {
            Ok(value) => writeln!(output, "={value}")?,
            Err(Refusal::Errno(errno)) => writeln!(output, "{errno:?}")?,
            Err(Refusal::Broken(reason)) => writeln!(output, "!{reason}")?,
        }
        output.flush()?;
    }
    worker.end().map_err(|_| anyhow::anyhow!("what a case left could not be given up"))?;
    Ok(())
}
