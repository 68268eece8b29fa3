//! Changes that other systems tell of, as lines of JSON; `docs/watch.md` has the form.
//!
//! From a regular file, to which lines are appended: how far it was read is in the journal, so that a
//! restart goes on from there. Or from a stream, standard input or a FIFO, of which lines are lost
//! with the process, so that a restart makes all suspect.
//!
//! A line that cannot be understood makes all suspect: nobody knows what it meant.

use crate::error::{Error, Result};
use crate::handles::as_path;
use crate::intake::{EventCounts, Intake};
use crate::journal::Position;
use crate::suspects::Suspect;
use crate::territory::{ChangeEvent, Territory, What};
use canopy_model::unescape;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest line; longer ones are not ours: the longest path has a megabyte.
const LINE_BYTES_MAX: usize = 8 << 20;

const CHUNK_BYTES: usize = 256 << 10;

/// How often a file is looked at for more.
const LOOKED_EVERY_MS: u16 = 100;

/// A file may be replaced by another once in this time, not twice: the one in between would not be
/// read.
const REPLACED_ONCE_IN: Duration = Duration::from_secs(5);

/// Lines that were read, to their ends.
pub(crate) struct Lines<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether only the end of the first one is there.
    pub(crate) is_cut: bool,
    /// Takes each that cannot be read, with what is wrong with it.
    pub(crate) on_bad_line: &'a dyn Fn(String),
}

/// A form of lines.
pub(crate) trait Form: Send {
    /// Returns the directories that lines make suspect; reports inodes with other names to the
    /// intake.
    fn take_in(&mut self, lines: &Lines<'_>, intake: &Intake) -> (Vec<Suspect>, EventCounts);
}

/// A source of events.
pub struct EventFeed {
    path: PathBuf,
    file: File,
    /// Position in a regular file, up to which it was read.
    position: Option<Position>,
    /// The beginning of a line that has not ended yet.
    rest: Vec<u8>,
    /// Whether the rest of a line that is too long is being left out.
    skips_line: bool,
    form: Box<dyn Form>,
    /// Last time at which the path named the open file.
    looked: Instant,
}

impl EventFeed {
    /// Opens a file or a FIFO, or with `-` standard input. Goes on from `position` if that is one in
    /// the same file; the second value says so.
    pub fn open(path: &Path, position: Option<Position>) -> Result<(Self, bool)> {
        EventFeed::open_as(path, position, Box::new(Json))
    }

    /// Like `open`, for lines in another form.
    pub(crate) fn open_as(
        path: &Path,
        position: Option<Position>,
        form: Box<dyn Form>,
    ) -> Result<(Self, bool)> {
        let looked = Instant::now();
        let feed = |file, position| EventFeed {
            path: path.to_owned(),
            file,
            position,
            rest: Vec::new(),
            skips_line: false,
            form,
            looked,
        };
        if path == Path::new("-") {
            let input = std::io::stdin().as_fd().try_clone_to_owned();
            let input = input.map_err(Error::io("read", Path::new("standard input")))?;
            return Ok((feed(input.into(), None), false));
        }
        let (mut file, about) = open(path)?;
        if about.file_type().is_fifo() {
            return Ok((feed(file, None), false));
        }
        let begun = Position { dev: about.dev(), ino: about.ino(), offset: 0 };
        let goes_on = position
            .filter(|at| (at.dev, at.ino) == (begun.dev, begun.ino) && at.offset <= about.len());
        // Lines in a file that was not read before are older than the scan of all trees, so skip
        // them.
        let at = goes_on.unwrap_or(Position { offset: about.len(), ..begun });
        file.seek(SeekFrom::Start(at.offset)).map_err(Error::io("read", path))?;
        Ok((feed(file, Some(at)), goes_on.is_some()))
    }

    /// Passes events on to the intake until standard input ends or the intake is stopped. Passes
    /// each unreadable line to `on_bad_line`, with its fault.
    pub fn run(mut self, intake: &Intake, on_bad_line: &dyn Fn(String)) -> Result<()> {
        if let Some(position) = self.position {
            intake.take_in_up_to(&[], EventCounts::default(), Some(position));
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        while !intake.is_stopped() {
            match self.position {
                Some(_) => wait(intake, None, LOOKED_EVERY_MS.into())?,
                None => wait(intake, Some(&self.file), PollTimeout::NONE)?,
            }
            loop {
                let length = match rustix::io::read(&self.file, &mut chunk[..]) {
                    Ok(length) => length,
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(errno) => return Err(Error::errno("read", &self.path)(errno)),
                };
                if length == 0 {
                    if self.position.is_none() {
                        // The last line may have no end.
                        self.take_in(b"\n", intake, on_bad_line);
                        return Ok(());
                    }
                    self.look_again(intake)?;
                    break;
                }
                self.take_in(&chunk[..length], intake, on_bad_line);
                if intake.is_stopped() || self.position.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sees whether the file was cut, or another one has taken its place.
    fn look_again(&mut self, intake: &Intake) -> Result<()> {
        let Some(at) = self.position else { return Ok(()) };
        let length = self.file.metadata().map_err(Error::io("look at", &self.path))?.len();
        if length < at.offset + self.rest.len() as u64 {
            self.begin_again(Position { offset: 0, ..at }, intake)?;
            intake.suspect_all();
        } else if let Ok((file, about)) = open(&self.path)
            && (about.dev(), about.ino()) != (at.dev, at.ino)
        {
            // Lines were written between the last read and the replacement, so read them first.
            if length > at.offset + self.rest.len() as u64 {
                return Ok(());
            }
            let is_late = self.looked.elapsed() > REPLACED_ONCE_IN;
            if is_late || !self.rest.is_empty() {
                intake.suspect_all();
            }
            self.file = file;
            let begun = Position { dev: about.dev(), ino: about.ino(), offset: 0 };
            self.begin_again(begun, intake)?;
        }
        self.looked = Instant::now();
        Ok(())
    }

    fn begin_again(&mut self, position: Position, intake: &Intake) -> Result<()> {
        self.position = Some(position);
        self.rest.clear();
        self.skips_line = false;
        self.file.rewind().map_err(Error::io("read", &self.path))?;
        intake.take_in_up_to(&[], EventCounts::default(), self.position);
        Ok(())
    }

    /// Takes in the lines that end in a chunk.
    fn take_in(&mut self, chunk: &[u8], intake: &Intake, on_bad_line: &dyn Fn(String)) {
        let Some(end) = chunk.iter().rposition(|&byte| byte == b'\n') else {
            self.keep(chunk);
            return;
        };
        let (lines, rest) = chunk.split_at(end + 1);
        self.rest.extend_from_slice(lines);
        let lines = std::mem::take(&mut self.rest);
        if let Some(position) = &mut self.position {
            position.offset += lines.len() as u64;
        }
        let is_cut = std::mem::take(&mut self.skips_line);
        let lines = Lines { bytes: &lines, is_cut, on_bad_line };
        let (suspects, heard) = self.form.take_in(&lines, intake);
        intake.take_in_up_to(&suspects, heard, self.position);
        self.keep(rest);
    }

    /// Keeps the beginning of a line, unless that is too long already.
    fn keep(&mut self, bytes: &[u8]) {
        if self.rest.len() + bytes.len() <= LINE_BYTES_MAX && !self.skips_line {
            self.rest.extend_from_slice(bytes);
            return;
        }
        self.skips_line = true;
        if let Some(position) = &mut self.position {
            position.offset += (self.rest.len() + bytes.len()) as u64;
        }
        self.rest.clear();
    }
}

fn open(path: &Path) -> Result<(File, std::fs::Metadata)> {
    let at = || Error::io("open", path);
    let is_fifo = path.metadata().map_err(at())?.file_type().is_fifo();
    // A process that can write to a FIFO itself does not see its end when others close it.
    let access = if is_fifo { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(Error::errno("open", path))?;
    let file = File::from(file);
    let about = file.metadata().map_err(at())?;
    if about.is_file() || about.file_type().is_fifo() {
        return Ok((file, about));
    }
    let kind = std::io::Error::new(std::io::ErrorKind::InvalidInput, "neither a file nor a FIFO");
    Err(at()(kind))
}

pub(crate) fn wait(intake: &Intake, input: Option<&File>, limit: PollTimeout) -> Result<()> {
    let mut waited = vec![PollFd::new(intake.stopped(), PollFlags::POLLIN)];
    waited.extend(input.map(|input| PollFd::new(input.as_fd(), PollFlags::POLLIN)));
    match poll(&mut waited, limit) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::io("wait for", Path::new("events"))(errno.into())),
    }
}

/// Lines of JSON.
struct Json;

impl Form for Json {
    fn take_in(&mut self, lines: &Lines<'_>, intake: &Intake) -> (Vec<Suspect>, EventCounts) {
        let mut told = ParsedEvents::default();
        let mut heard = EventCounts::default();
        for (number, line) in lines.bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
            let read = match lines.is_cut && number == 0 {
                true => Err("it is too long".to_owned()),
                false => read_line(line, intake.territory(), &mut told),
            };
            match read {
                Ok(true) => heard.events += 1,
                Ok(false) => {}
                Err(why) => {
                    heard.bad_lines += 1;
                    (lines.on_bad_line)(why);
                }
            }
        }
        if heard.bad_lines > 0 {
            told.suspects.extend(intake.territory().all_suspect());
        }
        intake.take_in_links(&told.links);
        (told.suspects, heard)
    }
}

/// Suspects collected from lines.
#[derive(Default)]
struct ParsedEvents {
    suspects: Vec<Suspect>,
    /// Inodes that have other names.
    links: Vec<u64>,
}

/// Adds what a line makes suspect. Returns whether it has an event; an empty one has none.
fn read_line(
    line: &[u8],
    territory: &Territory,
    told: &mut ParsedEvents,
) -> std::result::Result<bool, String> {
    if line.trim_ascii().is_empty() {
        return Ok(false);
    }
    let event: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let path = |field: &str| -> std::result::Result<Vec<u8>, String> {
        let text = event.get(field).and_then(Value::as_str);
        let text = text.ok_or_else(|| format!("it has no text '{field}'"))?;
        absolute(&unescape(text)).ok_or_else(|| format!("'{field}' is not an absolute path"))
    };
    let is_dir = match event.get("dir") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(is_dir)) => Some(*is_dir),
        Some(_) => return Err("'dir' is neither true nor false".to_owned()),
    };
    let op = event.get("op").and_then(Value::as_str).ok_or("it has no text 'op'")?;
    let mut entry = |path: &[u8], what: What| {
        // Whether what was there is a directory does not matter any more.
        let looks = what != What::Vanished && is_dir != Some(true);
        let about = looks.then(|| as_path(path).symlink_metadata().ok()).flatten();
        let is_dir = is_dir.unwrap_or_else(|| about.as_ref().is_some_and(|about| about.is_dir()));
        let linked = about.filter(|about| !about.is_dir() && about.nlink() > 1);
        told.links.extend(linked.map(|about| about.ino()));
        let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let (directory, name) = (&path[..slash.max(1)], &path[slash + 1..]);
        territory.suspects_of(&ChangeEvent { directory, name, is_dir, what }, &mut told.suspects);
    };
    match op {
        "create" => entry(&path("path")?, What::Appeared),
        "delete" => entry(&path("path")?, What::Vanished),
        "modify" => entry(&path("path")?, What::Contents),
        "attrib" => entry(&path("path")?, What::Attributes),
        "rename" => {
            let (from, to) = (path("path")?, path("to")?);
            entry(&from, What::Vanished);
            entry(&to, What::Appeared);
        }
        "directory" | "tree" => {
            let path = path("path")?;
            if op == "tree" {
                territory.suspects_in(&path, &mut told.suspects);
            } else if territory.root_of(&path).is_some() {
                told.suspects.push(Suspect { path, recursive: false });
            }
        }
        "lost" => {
            told.suspects.extend(territory.all_suspect());
        }
        other => return Err(format!("'{other}' is not a kind of event")),
    }
    Ok(true)
}

/// Returns an absolute path without slashes that say nothing; `None` if it is none, or leads through
/// `.` or `..`.
pub(crate) fn absolute(path: &[u8]) -> Option<Vec<u8>> {
    if path.first() != Some(&b'/') || path.contains(&0) {
        return None;
    }
    let mut real = Vec::with_capacity(path.len());
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        if matches!(name, b"." | b"..") {
            return None;
        }
        real.push(b'/');
        real.extend_from_slice(name);
    }
    Some(if real.is_empty() { b"/".to_vec() } else { real })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_line_is_read(
            line: Vec<u8>,
            op in "create|delete|modify|attrib|rename|directory|tree|lost",
            path in "/{0,2}[a./\u{10ff00}-\u{10ffff}]{0,9}",
        ) {
            let territory = Territory::new(vec![b"/".to_vec()], Vec::new());
            let mut told = ParsedEvents::default();
            let _ = read_line(&line, &territory, &mut told);
            let line = serde_json::json!({ "op": op, "path": path, "to": path, "dir": true });
            let _ = read_line(line.to_string().as_bytes(), &territory, &mut told);
            for suspect in told.suspects {
                prop_assert!(suspect.path.starts_with(b"/") && !suspect.path.contains(&0));
            }
        }
    }

    fn suspects(line: &str) -> std::result::Result<Vec<String>, String> {
        let territory = Territory::new(vec![b"/data".to_vec()], Vec::new());
        let mut told = ParsedEvents::default();
        read_line(line.as_bytes(), &territory, &mut told)?;
        let show = |one: Suspect| {
            let star = if one.recursive { "/**" } else { "" };
            format!("{}{star}", String::from_utf8_lossy(&one.path))
        };
        Ok(told.suspects.into_iter().map(show).collect())
    }

    #[test]
    fn lines_make_suspects() {
        for (line, expected) in [
            (r#"{"op":"create","path":"/data/a/f"}"#, &["/data/a"][..]),
            (r#"{"op":"create","path":"/data/a/d","dir":true}"#, &["/data/a", "/data/a/d/**"]),
            (r#"{"op":"delete","path":"/data//a/d/"}"#, &["/data/a"]),
            (r#"{"op":"modify","path":"/data/f","size":7}"#, &["/data"]),
            (r#"{"op":"attrib","path":"/data/d","dir":true}"#, &["/data", "/data/d"]),
            (r#"{"op":"attrib","path":"/data","dir":true}"#, &["/data/**"]),
            (
                r#"{"op":"rename","path":"/data/x","to":"/data/b/y","dir":true}"#,
                &["/data", "/data/b", "/data/b/y/**"],
            ),
            (r#"{"op":"rename","path":"/elsewhere/x","to":"/data/y"}"#, &["/data"]),
            (r#"{"op":"directory","path":"/data/a"}"#, &["/data/a"]),
            (r#"{"op":"tree","path":"/data/a"}"#, &["/data/a/**"]),
            (r#"{"op":"tree","path":"/"}"#, &["/data/**"]),
            (r#"{"op":"lost"}"#, &["/data/**"]),
            (r#"{"op":"create","path":"/other/f"}"#, &[]),
            ("{\"op\":\"create\",\"path\":\"/data/\u{10fffe}/f\"}", &["/data/\u{fffd}"]),
            ("  ", &[]),
        ] {
            assert_eq!(suspects(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn lines_that_mean_nothing_are_told() {
        for (line, expected) in [
            ("create /data/x", "expected value"),
            (r#"{"op":"create"}"#, "it has no text 'path'"),
            (r#"{"op":"create","path":"data/x"}"#, "'path' is not an absolute path"),
            (r#"{"op":"create","path":"/data/../x"}"#, "'path' is not an absolute path"),
            (r#"{"op":"rename","path":"/data/x"}"#, "it has no text 'to'"),
            (r#"{"op":"made","path":"/data/x"}"#, "'made' is not a kind of event"),
            (r#"{"op":"create","path":"/data/x","dir":"no"}"#, "'dir' is neither"),
            (r#"{"path":"/data/x"}"#, "it has no text 'op'"),
        ] {
            let error = suspects(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
