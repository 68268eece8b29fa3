//! Rounds of two machines. In each round one of them changes something, and the other one looks as
//! soon as it learns of that. It has looked before, so it may remember the old state.

use super::findings::{Findings, Lateness};
use super::meeting::{Meeting, PATIENCE};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Growing, Machine, SharedDirectory, Storage};
use canopy_store::{Error, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Nobody waits longer for a name that is late.
pub const LATEST: Duration = Duration::from_secs(70);

/// Names that both machines try to create at the same time.
const CONTESTED: usize = 8;

/// The beginning of a file that grows, and its size.
const HEAD: &[u8] = b"grows";
const ROOM: u64 = 64 << 10;

const PAUSE: Duration = Duration::from_millis(2);

/// Tries everything, and returns the findings of this machine and of the other one.
pub fn run(meeting: &Meeting, machine: &Machine) -> anyhow::Result<(Findings, Findings)> {
    let rounds = meeting.rounds;
    let storage = SharedDirectory::to_try(&meeting.session)?;
    let mut findings = Findings::new(machine.clone(), &meeting.session, rounds)?;
    prepare(meeting, &storage)?;
    contend(meeting, &storage, &mut findings)?;
    for round in 0..rounds {
        for is_first in [true, false] {
            let round = Round { meeting, storage: &storage, name: format!("{is_first}/{round}") };
            match is_first == meeting.is_first {
                true => round.change()?,
                false => round.look(&mut findings)?,
            }
        }
    }
    let other = exchange(meeting, &storage, &findings)?;
    Ok((findings, other))
}

/// Makes all directories, and has both see them: names in them are what is tried.
fn prepare(meeting: &Meeting, storage: &SharedDirectory) -> anyhow::Result<()> {
    let kinds = [NAMED, GROWN, LISTED, PLAIN, TAKEN, REMOVED]
        .map(|kind| [true, false].map(|is_first| format!("{kind}/{is_first}/made")));
    let others = ["contested", "findings"].map(|directory| format!("{directory}/made"));
    let names = Vec::from_iter(kinds.into_iter().flatten().chain(others));
    if meeting.is_first {
        for name in &names {
            create(storage, name, Bytes::new())?;
        }
    }
    meeting.together("made")?;
    for name in &names {
        until(|| storage.read(name).map(Some))?;
    }
    meeting.together("prepared")
}

/// Both create the same names at the same time.
fn contend(
    meeting: &Meeting,
    storage: &SharedDirectory,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    for at in 0..CONTESTED {
        meeting.together(&format!("contend-{at}"))?;
        let name = format!("contested/{at:04}");
        let created = create(storage, &name, Bytes::from_static(b"mine"))?;
        findings.won.push(created == Created::Now);
    }
    meeting.together("contended")
}

/// Gives the other machine the findings, and gets its own.
fn exchange(
    meeting: &Meeting,
    storage: &SharedDirectory,
    findings: &Findings,
) -> anyhow::Result<Findings> {
    let name = |is_first| format!("findings/{is_first}");
    create(storage, &name(meeting.is_first), findings.encode()?.into())?;
    meeting.together("findings")?;
    let (read, _) = until(|| storage.read(&name(!meeting.is_first)).map(Some))?;
    let read = read.ok_or_else(|| anyhow::anyhow!("what the other machine found is not seen"))?;
    let other = Findings::decode(&read)?;
    // Nothing is removed before both have it.
    meeting.together("done")?;
    Ok(other)
}

struct Round<'a> {
    meeting: &'a Meeting,
    storage: &'a SharedDirectory,
    name: String,
}

/// Names of a round, each in a directory of its own: a client that looks into one asks the server
/// about it.
const NAMED: &str = "named";
const GROWN: &str = "grown";
const LISTED: &str = "listed";
const PLAIN: &str = "plain";
const TAKEN: &str = "taken";
const REMOVED: &str = "removed";

impl Round<'_> {
    fn object(&self, kind: &str) -> String {
        format!("{kind}/{}", self.name)
    }

    fn plain(&self) -> PathBuf {
        self.meeting.session.join("objects").join(self.object(PLAIN))
    }

    fn bytes(&self) -> Bytes {
        Bytes::from(format!("round {}", self.name))
    }

    /// Changes something for the other machine to see.
    fn change(&self) -> anyhow::Result<()> {
        create(self.storage, &self.object(REMOVED), self.bytes())?;
        let mut grown = begin(self.storage, &self.object(GROWN))?;
        self.meeting.send(&self.signal("begun"))?;
        self.meeting.wait(&self.signal("looked"), PATIENCE)?;
        for kind in [NAMED, LISTED, PLAIN, TAKEN] {
            create(self.storage, &self.object(kind), self.bytes())?;
        }
        grown.append(&self.bytes())?;
        grown.sync()?;
        self.storage.remove(&self.object(REMOVED))?;
        self.meeting.send(&self.signal("changed"))?;
        self.meeting.wait(&self.signal("seen"), PATIENCE)
    }

    fn signal(&self, what: &str) -> String {
        format!("{}-{what}", self.name.replace('/', "-"))
    }

    /// Looks before and after the other machine changes something.
    fn look(&self, findings: &mut Findings) -> anyhow::Result<()> {
        self.meeting.wait(&self.signal("begun"), PATIENCE)?;
        for kind in [NAMED, LISTED, TAKEN] {
            let _ = self.storage.size(&self.object(kind));
            let _ = self.listed(kind);
        }
        let _ = fs::metadata(self.plain());
        for kind in [REMOVED, GROWN] {
            let _ = until(|| self.storage.read(&self.object(kind)).map(Some))?;
        }
        self.meeting.send(&self.signal("looked"))?;
        self.meeting.wait(&self.signal("changed"), PATIENCE)?;

        let begun = Instant::now();
        // Only the first look shows whether it is seen at once.
        let named = || self.is_named();
        let grown = || self.has_grown();
        let listed = || self.listed(LISTED);
        let removed = || self.is_removed();
        let plain = || Ok(fs::metadata(self.plain()).is_ok());
        let first = [named()?, grown()?, listed()?, removed()?, plain()?];
        let created = create(self.storage, &self.object(TAKEN), Bytes::from_static(b"other"))?;
        findings.twice += u32::from(created == Created::Now);
        let looks: [&dyn Fn() -> Result<bool>; 5] = [&named, &grown, &listed, &removed, &plain];
        let counts = [
            &mut findings.names,
            &mut findings.growth,
            &mut findings.listings,
            &mut findings.removals,
            &mut findings.plain,
        ];
        for ((is_seen, look), count) in first.into_iter().zip(looks).zip(counts) {
            count.add(if is_seen { None } else { Some(lateness(begun, look)?) });
        }
        self.meeting.send(&self.signal("seen"))
    }

    /// Returns whether the new object is found by its name, with its bytes.
    fn is_named(&self) -> Result<bool> {
        match self.storage.read(&self.object(NAMED)) {
            Err(error) if error.is_not_found() => Ok(false),
            read => Ok(read? == self.bytes()),
        }
    }

    /// Returns whether what the other machine added last to a file is read.
    fn has_grown(&self) -> Result<bool> {
        match self.storage.read(&self.object(GROWN)) {
            Err(error) if error.is_not_found() => Ok(false),
            read => Ok(read?[HEAD.len()..].starts_with(&self.bytes())),
        }
    }

    fn listed(&self, kind: &str) -> Result<bool> {
        let name = self.object(kind);
        let prefix = name.rsplit_once('/').map_or("", |(above, _)| above);
        let listed = self.storage.list(&format!("{prefix}/"), "")?;
        Ok(listed.iter().any(|one| one.name == name))
    }

    fn is_removed(&self) -> Result<bool> {
        match self.storage.read(&self.object(REMOVED)) {
            Err(error) if error.is_not_found() => Ok(!self.listed(REMOVED)?),
            read => read.map(|_| false),
        }
    }
}

/// Creates an object. If a directory that the other machine made is seen late, waits for it.
fn create(storage: &SharedDirectory, name: &str, bytes: Bytes) -> Result<Created> {
    let begun = Instant::now();
    loop {
        match storage.create(name, bytes.clone()) {
            Err(Error::Storage { source, .. })
                if source.kind() == ErrorKind::NotFound && begun.elapsed() < LATEST =>
            {
                std::thread::sleep(PAUSE);
            }
            created => return created,
        }
    }
}

/// Begins a file that grows.
fn begin(storage: &SharedDirectory, name: &str) -> anyhow::Result<Box<dyn Append>> {
    let begun = Instant::now();
    loop {
        match storage.create_growing(name, HEAD, ROOM) {
            Ok(Growing::New(file)) => return Ok(file),
            Ok(Growing::ThereWasOne) => anyhow::bail!("{name}: another machine has made it"),
            Err(Error::Storage { source, .. })
                if source.kind() == ErrorKind::NotFound && begun.elapsed() < LATEST =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns how long after `begun` it is so, at most [`LATEST`].
fn lateness(begun: Instant, is_so: &dyn Fn() -> Result<bool>) -> Result<Duration> {
    while begun.elapsed() < LATEST && !is_so()? {
        std::thread::sleep(PAUSE);
    }
    Ok(begun.elapsed())
}

/// Reads something until it is there, and returns it, if it is in time, and how long that took.
fn until<T>(mut read: impl FnMut() -> Result<Option<T>>) -> Result<(Option<T>, Duration)> {
    let begun = Instant::now();
    loop {
        match read() {
            Err(error) if error.is_not_found() => {}
            Ok(None) => {}
            read => return Ok((read?, begun.elapsed())),
        }
        if begun.elapsed() > LATEST {
            return Ok((None, LATEST));
        }
        std::thread::sleep(PAUSE);
    }
}

impl Lateness {
    /// Counts a look; `late` is how long it took, unless the change was seen at once.
    fn add(&mut self, late: Option<Duration>) {
        self.looks += 1;
        if let Some(late) = late {
            self.late += 1;
            self.most_ms = self.most_ms.max(late.as_millis() as u64);
        }
    }
}
