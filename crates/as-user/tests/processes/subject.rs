//! The services of these tests, which do what they are asked to, and the pool that asks them.

use canopy_as_user::{
    Accounts, Channel, Class, FRAME_BYTES_MAX, Pool, PoolLimits, RoomLimits, Service, Unanswered,
};
use canopy_events::Lines;
use canopy_model::Credentials;
use nix::errno::Errno;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tracing::subscriber::with_default;

/// A service that is asked by a pool.
pub const SHARED: Service = Service {
    name: "shared",
    program: "subject",
    memory_bytes_max: Some(1 << 30),
    files_max: Some(64),
    writes_files: false,
    ends_first: true,
    variables: &["PATH"],
    keeps_directory: false,
    serve: |channel| {
        let setup: String = channel.receive().expect("the setup");
        let answer = move |asked: &Asked| answer(asked, &setup);
        channel.serve(answer, failed).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
    },
};

/// A service for one caller.
pub const SINGLE: Service = Service {
    name: "single",
    program: "subject",
    memory_bytes_max: None,
    files_max: None,
    writes_files: true,
    ends_first: false,
    variables: &[],
    keeps_directory: true,
    serve: serve_one,
};

/// A request to a process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Asked {
    Describe,
    Hang,
    Panic,
    /// Writes some bytes in place of an answer, and ends with this exit code, if any.
    Write(Vec<u8>, Option<i32>),
    /// Answers with so many bytes.
    Answer(usize),
    /// Makes an empty file in a directory, and answers once `go` is there, too.
    Meet(PathBuf),
}

/// An answer of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Description(Box<Description>),
    Bytes(Vec<u8>),
    Done,
    Failed(String),
}

/// Facts that a process finds out about itself.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    pub pid: u32,
    pub setup: String,
    /// `/proc/self/status`.
    pub status: BTreeMap<String, String>,
    /// Where its descriptors lead.
    pub open: Vec<PathBuf>,
    pub variables: Vec<String>,
    pub directory: PathBuf,
    pub oom_score_adj: String,
    pub nice: i32,
    /// Soft and hard limits of the size of files, core dumps, memory and descriptors.
    pub limits: Vec<(u64, u64)>,
    /// Results of attempts to become root: by uid, gid and groups.
    pub attempts: [Result<(), i32>; 3],
}

fn describe(setup: &str) -> Description {
    use nix::sys::resource::{Resource, getrlimit};
    use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let entries: Vec<_> = fs::read_dir("/proc/self/fd").expect("/proc").flatten().collect();
    let resources = [
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_NOFILE,
    ];
    let (user, group) = (Uid::from_raw(0), Gid::from_raw(0));
    let tried = |done: nix::Result<()>| done.map_err(|errno| errno as i32);
    Description {
        pid: std::process::id(),
        setup: setup.to_owned(),
        status: lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect(),
        open: entries.iter().filter_map(|entry| fs::read_link(entry.path()).ok()).collect(),
        variables: std::env::vars().map(|(name, _)| name).collect(),
        directory: std::env::current_dir().expect("a directory"),
        oom_score_adj: fs::read_to_string("/proc/self/oom_score_adj").expect("/proc"),
        nice: rustix::process::nice(0).expect("the niceness"),
        limits: resources.map(|resource| getrlimit(resource).expect("a limit")).to_vec(),
        attempts: [
            tried(setresuid(user, user, user)),
            tried(setresgid(group, group, group)),
            tried(setgroups(&[group])),
        ],
    }
}

fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn answer(asked: &Asked, setup: &str) -> Said {
    match asked {
        Asked::Describe => Said::Description(Box::new(describe(setup))),
        Asked::Hang => hang(),
        Asked::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        Asked::Write(bytes, code) => {
            let socket = io::stdin().as_fd().try_clone_to_owned().expect("the socket");
            fs::File::from(socket).write_all(bytes).expect("a reader");
            code.map_or(Said::Done, |code| std::process::exit(code))
        }
        Asked::Answer(length) => Said::Bytes(vec![7; *length]),
        Asked::Meet(directory) => {
            fs::File::create(directory.join(std::process::id().to_string())).expect("a file");
            crate::wait_until("all are there", || directory.join("go").exists());
            Said::Done
        }
    }
}

fn failed(_: &Asked, why: Unanswered) -> Said {
    Said::Failed(format!("{why:?}"))
}

/// Says what is asked for, in frames, until nobody asks any more.
fn serve_one(channel: Channel) -> ExitCode {
    while let Ok(asked) = channel.receive::<Asked>() {
        let said = answer(&asked, "");
        if let Asked::Answer(_) = asked {
            println!("asked");
            eprintln!("as {}", nix::unistd::geteuid());
        }
        if channel.send(&said).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::from(7)
}

/// Returns the bytes in front of a body.
pub fn head(length: usize, number: u64, flag: u8) -> Vec<u8> {
    [&(length as u32).to_le_bytes()[..], &number.to_le_bytes(), &[flag]].concat()
}

/// Returns what stands in front of a frame that is too long.
pub fn too_long() -> Vec<u8> {
    head(FRAME_BYTES_MAX + 1, 1, 0)
}

/// Limits without those of time.
pub fn patient(all: usize, of_account: usize, of_user: usize) -> PoolLimits {
    let hour = Duration::from_secs(3600);
    let room = RoomLimits { all, of_account, of_user };
    PoolLimits { room, heavy_of_account: 2, idle: hour, stuck: hour, patience: hour }
}

/// A pool, and what it has logged.
pub struct Fixture {
    pub pool: Pool<Asked, Said>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    pub fn new(limits: PoolLimits) -> Self {
        Self::with_ranges(limits, Vec::new())
    }

    /// Returns a pool where accounts have these ranges of uids.
    pub fn with_ranges(limits: PoolLimits, ranges: Vec<(Range<u32>, u32)>) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let own = lines.clone();
        let log = Lines::new(move |_, line| own.lock().push(line.to_owned()));
        let accounts = Accounts::of_ranges(ranges);
        let pool =
            with_default(log, || Pool::of_processes(&SHARED, &"the setup", accounts, limits));
        Fixture { pool: pool.expect("a pool"), lines }
    }

    pub fn log(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// Waits for a line of the log, which is written after callers have their answers.
    pub fn wait_for_log(&self, text: &str) {
        crate::wait_until(text, || self.log().contains(text));
    }

    /// Asks, and returns where the answer will be.
    pub fn begin(&self, uid: u32, class: Class, asked: &Asked) -> Receiver<Result<Said, Errno>> {
        let (sender, answers) = channel();
        let who = Credentials::new(uid, [uid]);
        self.pool.ask(&who, class, asked, move |told| {
            // The test may have ended.
            let _ = sender.send(told);
        });
        answers
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, uid: u32, asked: &Asked) -> Result<Said, Errno> {
        wait(&self.begin(uid, Class::Long, asked))
    }

    /// Has the process of a user describe itself.
    pub fn describe(&self, uid: u32) -> Description {
        match self.ask(uid, &Asked::Describe) {
            Ok(Said::Description(description)) => *description,
            other => panic!("{other:?}"),
        }
    }
}

/// Waits for an answer.
pub fn wait(answers: &Receiver<Result<Said, Errno>>) -> Result<Said, Errno> {
    answers.recv_timeout(Duration::from_secs(60)).expect("an answer")
}
