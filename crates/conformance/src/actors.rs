//! The processes that make calls, one for each name that scripts have for somebody, from the side
//! of the suite.

use crate::case::Reply;
use anyhow::Context;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

/// The hidden argument that makes this program such a process.
pub const WORKER: &str = "--worker";

/// The call that ends the process.
pub const EXIT: &str = "exit";

/// Longest time of a call. A call that hangs longer fails its case instead of the run.
const PATIENCE: Duration = Duration::from_secs(60);

/// One process.
struct Actor {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<String>,
    /// The case that it works in, by its directory.
    case: Option<String>,
}

impl Actor {
    fn start(base: &Path, who: &str) -> anyhow::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args([WORKER, who])
            .current_dir(base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a process that makes calls")?;
        let requests = child.stdin.take().context("no pipe to the process")?;
        let lines = BufReader::new(child.stdout.take().context("no pipe from the process")?);
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, requests, replies, case: None })
    }

    fn send(&mut self, line: &str) -> Result<(), Reply> {
        let sent = writeln!(self.requests, "{line}");
        sent.map_err(|error| Reply::Broken(format!("the process is gone: {error}")))
    }

    fn receive(&mut self) -> Reply {
        let line = match self.replies.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Reply::Broken(format!("none in {} seconds", PATIENCE.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Reply::Broken("the process is gone".to_owned());
            }
        };
        match line.split_at_checked(1) {
            Some(("=", value)) => Reply::Value(value.to_owned()),
            Some(("E", _)) => Reply::Errno(line),
            _ => Reply::Broken(line.trim_start_matches('!').to_owned()),
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of one thread of the suite.
pub struct Actors {
    base: PathBuf,
    actors: HashMap<String, Actor>,
}

impl Actors {
    /// Processes that work in directories of a directory. Each is started when it is needed.
    pub fn new(base: &Path) -> Self {
        Self { base: base.to_owned(), actors: HashMap::new() }
    }

    /// Makes a call in the directory of a case, and returns its answer. If the process exits, returns
    /// once it has ended.
    pub fn call(&mut self, who: &str, case: &str, call: &str) -> Reply {
        if let Err(reply) = self.ask(who, case, call) {
            return reply;
        }
        let reply = self.answer(who);
        if call == EXIT
            && matches!(reply, Reply::Value(_))
            && let Some(mut actor) = self.actors.remove(who)
            && let Err(error) = actor.child.wait()
        {
            return Reply::Broken(format!("its end cannot be awaited: {error}"));
        }
        reply
    }

    /// Makes a call whose answer is awaited later.
    pub fn ask(&mut self, who: &str, case: &str, call: &str) -> Result<(), Reply> {
        if !self.actors.contains_key(who) {
            let actor = Actor::start(&self.base, who);
            let actor = actor.map_err(|error| Reply::Broken(format!("{error:#}")))?;
            self.actors.insert(who.to_owned(), actor);
        }
        let Some(actor) = self.actors.get_mut(who) else { unreachable!("it was just started") };
        if actor.case.as_deref() != Some(case) {
            actor.send(&format!("begin {case}"))?;
            match actor.receive() {
                Reply::Value(_) => actor.case = Some(case.to_owned()),
                reply => return Err(Reply::Broken(format!("the case cannot begin: {reply}"))),
            }
        }
        actor.send(call)
    }

    /// The answer of a call that was made before.
    pub fn answer(&mut self, who: &str) -> Reply {
        match self.actors.get_mut(who) {
            Some(actor) => actor.receive(),
            None => Reply::Broken("nothing was asked".to_owned()),
        }
    }

    /// Whether a call that was made before still waits.
    pub fn pending(&mut self, who: &str) -> Reply {
        match self.actors.get(who).map(|actor| actor.replies.try_recv()) {
            Some(Err(TryRecvError::Empty)) => Reply::Value(String::new()),
            Some(Ok(line)) => Reply::Broken(format!("it did not wait: {line}")),
            Some(Err(TryRecvError::Disconnected)) | None => {
                Reply::Broken("the process is gone".to_owned())
            }
        }
    }

    /// Has all processes give up what they have of a case. Those that do not answer, have an answer
    /// left or have mounts of their own (`.ns`) end.
    pub fn end(&mut self, case: &str, may_be_used_again: bool) {
        self.actors.retain(|who, actor| {
            if actor.case.as_deref() != Some(case) {
                return true;
            }
            actor.case = None;
            may_be_used_again
                && !who.ends_with(".ns")
                && actor.send("end").is_ok()
                && matches!(actor.receive(), Reply::Value(_))
        });
    }
}
