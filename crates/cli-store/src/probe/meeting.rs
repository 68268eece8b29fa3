//! Two processes that meet in a directory. What they say to each other may not be late, so it is not
//! said by names that somebody looks for, but by names that both try to create: link(2) always asks
//! the server.

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A partner that does not answer for so long has died.
const ANSWER: Duration = Duration::from_secs(15);

/// A partner waits for names that it sees late; it does not answer meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The first one looks so often whether it still is.
const CHECK: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(2);

/// Two processes that have met.
pub struct Meeting {
    /// The directory that they share for this probe.
    pub session: PathBuf,
    /// Whether this process came first.
    pub is_first: bool,
    /// How often everything is tried, as the first one wants it.
    pub rounds: u32,
    /// A file that names are given to.
    source: PathBuf,
}

impl Meeting {
    /// Waits for another process that looks for a partner in `place`.
    pub fn find(place: &Path, wait: Duration, rounds: u32) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let id = random_id()?;
        let (first, second) = (place.join("1"), place.join("2"));
        let session = place.join(&id);
        seen(|| DirBuilder::new().mode(0o700).create(&session))
            .context("cannot make a directory")?;
        let mut source = session.join("source-1");
        write(&source, &format!("{id} {rounds}"))?;
        let mut taken_since = None;
        loop {
            let left = wait.saturating_sub(begun.elapsed());
            if link(&source, &first)? {
                let meeting = Meeting { session: session.clone(), is_first: true, rounds, source };
                match meeting.await_second(&first, &second, left)? {
                    Some(meeting) => return Ok(meeting),
                    None => source = session.join("source-1"),
                }
            }
            // There is a first one. Its partner is found, unless it has just one for a moment.
            if link(&source, &second)? {
                if let Some(meeting) = Meeting::join(place, &first)? {
                    fs::remove_dir_all(&session)?;
                    return Ok(meeting);
                }
                [&second, &first].into_iter().try_for_each(|left| remove(left))?;
                continue;
            }
            // Two that have met free the names soon, unless they were killed.
            let since = *taken_since.get_or_insert_with(Instant::now);
            if since.elapsed() > 2 * ANSWER {
                [&second, &first].into_iter().try_for_each(|left| remove(left))?;
                taken_since = None;
            }
            if left.is_zero() {
                let _ = fs::remove_dir_all(&session);
                bail!("two other processes are trying {} now: try again", place.display());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits for a second one; none if another process has become the first, as one does that takes
    /// this one for dead.
    fn await_second(
        self,
        first: &Path,
        second: &Path,
        wait: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let begun = Instant::now();
        while !wait_for(&self.source, second, CHECK.min(wait))? {
            let id = self.session.file_name().and_then(|id| id.to_str()).unwrap_or_default();
            match link(&self.source, first)? {
                false
                    if fs::read_to_string(first)
                        .is_ok_and(|other| other.split(' ').next() != Some(id)) =>
                {
                    return Ok(None);
                }
                _ => {}
            }
            if begun.elapsed() >= wait {
                remove(first)?;
                let _ = fs::remove_dir_all(&self.session);
                bail!(
                    "no other machine came: run 'canopy store probe' on a second one while it waits \
                     here"
                );
            }
        }
        let met = self.wait("hello-2", ANSWER).and_then(|()| self.send("hello-1"));
        // In this order, so that nobody becomes the partner of one that is gone.
        remove(second)?;
        remove(first)?;
        met.map(|()| Some(self))
    }

    /// Joins the one that came first; none if it does not answer.
    fn join(place: &Path, first: &Path) -> anyhow::Result<Option<Self>> {
        let begun = Instant::now();
        let (id, rounds) = loop {
            let said = fs::read_to_string(first).ok();
            match said.as_deref().and_then(parse) {
                Some((id, rounds)) => break (id.to_owned(), rounds),
                // It may be seen late, or be gone.
                _ if begun.elapsed() > ANSWER => return Ok(None),
                _ => std::thread::sleep(PAUSE),
            }
        };
        let session = place.join(id);
        let source = session.join("source-2");
        // A partner that was killed may be gone with its directory.
        if write(&source, "2").is_err() {
            return Ok(None);
        }
        let meeting = Meeting { session, is_first: false, rounds, source };
        meeting.send("hello-2")?;
        match meeting.wait("hello-1", ANSWER) {
            Ok(()) => Ok(Some(meeting)),
            Err(_) => {
                let _ = fs::remove_dir_all(&meeting.session);
                Ok(None)
            }
        }
    }

    fn signal(&self, name: &str) -> PathBuf {
        self.session.join(format!("signal-{name}"))
    }

    /// Gives the partner a signal.
    pub fn send(&self, name: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        // The partner has the name for moments, to find out whether we had it.
        while !link(&self.source, &self.signal(name))? {
            if begun.elapsed() > PATIENCE {
                bail!("the other machine does not answer any more");
            }
            std::thread::sleep(PAUSE / 4);
        }
        Ok(())
    }

    /// Waits for a signal of the partner.
    pub fn wait(&self, name: &str, patience: Duration) -> anyhow::Result<()> {
        match wait_for(&self.source, &self.signal(name), patience)? {
            true => Ok(()),
            false => bail!("the other machine does not answer any more"),
        }
    }

    /// Waits until the partner is here, too.
    pub fn together(&self, name: &str) -> anyhow::Result<()> {
        let (own, other) = if self.is_first { (1, 2) } else { (2, 1) };
        self.send(&format!("{name}-{own}"))?;
        self.wait(&format!("{name}-{other}"), PATIENCE)
    }

    /// Removes what both have written. Only the first one does, once the second has left.
    pub fn leave(&self) -> anyhow::Result<()> {
        if !self.is_first {
            return self.send("left");
        }
        // If the second one has died, nobody else will.
        let _ = self.wait("left", ANSWER);
        let begun = Instant::now();
        // Files of the other one may be seen late.
        while let Err(error) = fs::remove_dir_all(&self.session) {
            if begun.elapsed() > ANSWER {
                return Err(error)
                    .with_context(|| format!("cannot remove {}", self.session.display()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Parses what the first one says: its session, and how often everything is tried.
fn parse(said: &str) -> Option<(&str, u32)> {
    let (id, rounds) = said.split_once(' ')?;
    let is_id = id.len() == 32 && id.bytes().all(|one| one.is_ascii_hexdigit());
    is_id.then_some(id).zip(rounds.parse().ok())
}

/// Gives a file another name. Returns whether the name was free.
fn link(source: &Path, name: &Path) -> anyhow::Result<bool> {
    match linkat(CWD, source, CWD, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("cannot link {} to a file", name.display()))
        }
    }
}

/// Waits until somebody else has this name. Returns whether that happened in time.
fn wait_for(source: &Path, name: &Path, patience: Duration) -> anyhow::Result<bool> {
    let begun = Instant::now();
    loop {
        let tried = Instant::now();
        if !link(source, name)? {
            return Ok(true);
        }
        remove(name)?;
        if begun.elapsed() > patience {
            return Ok(false);
        }
        // The name is free for most of the time, however slow the file system is.
        std::thread::sleep(PAUSE.max(2 * tried.elapsed()));
    }
}

fn remove(name: &Path) -> anyhow::Result<()> {
    match fs::remove_file(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", name.display()))
        }
        _ => Ok(()),
    }
}

/// Does something in a directory that another process has made, which may be seen late.
fn seen<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match work() {
            Err(error) if error.kind() == ErrorKind::NotFound && begun.elapsed() < ANSWER => {
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = seen(|| File::options().write(true).create_new(true).mode(0o600).open(path));
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn random_id() -> anyhow::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random number")?;
    Ok(id.trim().replace('-', ""))
}
