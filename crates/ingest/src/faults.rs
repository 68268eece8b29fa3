//! Entries and file systems that the index lacks, wholly or partly: the list of errors of a run, and
//! warnings.

use crate::Context;
use crate::listing::{one_reader, path_bytes_max};
use anyhow::Context as _;
use canopy_model::unescape;
use canopy_scan::{ClosedMount, Counts, Fault, Rules, ScanError, Step};
use canopy_site::{check_links, is_own_or_roots};
use canopy_text::counted;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, LineWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most characters of a path in a warning.
const SHOWN_MAX: usize = 200;

/// Most bytes of a path in the file of errors, and of that file: whoever makes long paths or many
/// errors must not fill the disk.
const LISTED_PATH_MAX: usize = 4096;
const LISTED_MAX: usize = 64 << 20;

/// Most errors of a part of a scan, and bytes of their paths, that are kept for the publisher.
const KEPT_MAX: usize = 200_000;
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Most mounts that are warned of one by one.
const MOUNTS_MAX: usize = 8;

/// The errors of entries of one run.
#[derive(Default)]
pub struct Faults {
    /// Fault, reason and path, one a line, with control characters escaped.
    file: Option<(PathBuf, Mutex<ErrorList>)>,
    /// All errors, for the process that publishes.
    kept: Option<Mutex<KeptErrors>>,
    failed: OnceLock<(PathBuf, String)>,
    narrowed: OnceLock<PathBuf>,
    moved: OnceLock<PathBuf>,
    long: OnceLock<PathBuf>,
}

impl Faults {
    /// Opens the file that lists them, if one is asked for. It is emptied, unless a run goes on that
    /// began at `begun_ns` and that has written to it. It names entries that only root may know of,
    /// so it is for its owner alone. It must not be in the index.
    ///
    /// # Errors
    ///
    /// If the file cannot be made, or would lie in the index.
    pub fn new(file: Option<&Path>, index: &Path, begun_ns: Option<i64>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(Faults::default()) };
        let list = check_outside(path, index)
            .and_then(|()| ErrorList::open(path, begun_ns))
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Faults { file: Some((path.to_owned(), Mutex::new(list))), ..Faults::default() })
    }

    /// Returns one that keeps all errors.
    pub(crate) fn kept() -> Self {
        Faults { kept: Some(Mutex::default()), ..Faults::default() }
    }

    /// Counts errors that were left out.
    pub(crate) fn leave_out(&self, count: u64) {
        if let Some((_, file)) = &self.file {
            file.lock().left_out += count;
        }
    }

    /// Takes the errors out that were kept.
    pub(crate) fn take_kept(&self) -> KeptErrors {
        self.kept.as_ref().map(|kept| std::mem::take(&mut *kept.lock())).unwrap_or_default()
    }

    /// Adds an error of an entry below the root `base`.
    pub(crate) fn add(&self, base: &Path, error: &ScanError) {
        if let Some(kept) = &self.kept {
            kept.lock().add(error);
            return;
        }
        let path = base.join(std::ffi::OsStr::from_bytes(&unescape(error.path.as_str())));
        let (what, why) = match error.fault {
            Fault::Failed(step, errno) => {
                let what = match step {
                    Step::List => "cannot list",
                    Step::Look => "cannot look at",
                    Step::ReadLink => "cannot read the link",
                    Step::Xattrs => "cannot read the extended attributes of",
                };
                (what, std::io::Error::from(errno).to_string())
            }
            Fault::Moved => ("left out what is in", "it was moved meanwhile".to_owned()),
            Fault::Narrowed => ("shown to fewer", "a directory on the way changed".to_owned()),
            Fault::LongPath => ("left out what is in", "it is nested too deeply".to_owned()),
        };
        if let Some((_, file)) = &self.file {
            file.lock().add(what, &path, &why);
        }
        let example = match error.fault {
            Fault::Failed(..) if error.vanished() => return,
            Fault::Failed(..) => {
                self.failed.get_or_init(|| (path, why));
                return;
            }
            Fault::Moved => &self.moved,
            Fault::Narrowed => &self.narrowed,
            Fault::LongPath => &self.long,
        };
        example.get_or_init(|| path);
    }

    /// Ends the file, and warns of the faults that `counts` has, with an example each.
    pub(crate) fn finish(self, cx: &Context<'_>, counts: &Counts) -> anyhow::Result<()> {
        let place = match &self.file {
            Some((path, _)) => format!("{} lists all", path.display()),
            None => "--errors FILE lists all".to_owned(),
        };
        let listed = self.file.map_or(Ok(()), |(_, file)| file.into_inner().finish());
        if let Some((path, why)) = self.failed.get() {
            cx.warn(format_args!(
                "{} could not be read, such as {}: {why} ({place})",
                counted(counts.failed.load(Ordering::Relaxed), "entry"),
                shown(path)
            ));
        }
        if let Some(path) = self.narrowed.get() {
            cx.note(format_args!(
                "warning: permissions or places of directories changed under the scan: {} for those \
                 alone who were let in before and after, such as {}; index again",
                counted(counts.narrowed.load(Ordering::Relaxed), "listing"),
                shown(path)
            ));
        }
        if let Some(path) = self.moved.get() {
            cx.note(format_args!(
                "warning: what was read of {} is left out, moved under the scan, such as {}; index \
                 again",
                counted(counts.moved.load(Ordering::Relaxed), "directory"),
                shown(path)
            ));
        }
        if let Some(path) = self.long.get() {
            cx.note(format_args!(
                "warning: what is in {} is left out, with a path longer than {} bytes ('path_max') \
                 or too deep for the open files that the system allows, such as {}",
                counted(counts.long_paths.load(Ordering::Relaxed), "directory"),
                path_bytes_max(&cx.site.settings),
                shown(path)
            ));
        }
        let unmapped = counts.unmapped.load(Ordering::Relaxed);
        if unmapped > 0 && !one_reader() {
            cx.note(format_args!(
                "warning: {} of users or groups that this user namespace does not know, for root \
                 alone; index outside of it",
                counted(unmapped, "directory")
            ));
        }
        listed.context("cannot write the list of errors")
    }
}

/// Checks a path of a file that a command writes.
///
/// # Errors
///
/// If it leads into an index, whose files nothing else may write.
pub fn check_outside(path: &Path, index: &Path) -> anyhow::Result<()> {
    let directory = std::path::absolute(path)?.parent().map(Path::canonicalize).transpose();
    let index = index.canonicalize();
    let is_in = matches!((directory, index), (Ok(Some(at)), Ok(index)) if at.starts_with(&index));
    anyhow::ensure!(!is_in, "it would be in the index: choose another place");
    Ok(())
}

/// Opens a file for the caller alone, to add to it if it was written to since `begun_ns`. One that
/// somebody else could read or have put there is refused; a device or a pipe of the caller's or root's
/// is written to as it is.
fn create_own(path: &Path, begun_ns: Option<i64>) -> anyhow::Result<File> {
    check_links(path)?;
    if let Some(special) = open_special(path)? {
        return Ok(special);
    }
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    let owner = nix::unistd::geteuid().as_raw();
    anyhow::ensure!(about.is_file(), "it is not a file");
    anyhow::ensure!(about.uid() == owner, "it belongs to uid {}: remove it", about.uid());
    anyhow::ensure!(about.nlink() == 1, "it has other names, too: remove it");
    file.set_permissions(Permissions::from_mode(0o600))?;
    // The clock of file systems is a little late.
    if begun_ns.is_none_or(|begun_ns| about.mtime() + 1 < begun_ns / 1_000_000_000) {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens what is there and no plain file, if it is the caller's or root's. A symbolic link must lie
/// where nobody else can put one, and lead to no plain file, as `/dev/stdout` may.
fn open_special(path: &Path) -> anyhow::Result<Option<File>> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(there) = open(path, flags, Mode::empty()) else { return Ok(None) };
    let there = File::from(there);
    let about = there.metadata()?;
    if about.is_file() {
        return Ok(None);
    }
    anyhow::ensure!(is_own_or_roots(about.uid()), "what is there belongs to uid {}", about.uid());
    if !about.is_symlink() {
        let place = format!("/proc/self/fd/{}", there.as_raw_fd());
        return Ok(Some(OpenOptions::new().write(true).open(place)?));
    }
    let above = std::path::absolute(path)?;
    let above = above.parent().unwrap_or(Path::new("/")).metadata()?;
    let is_safe = is_own_or_roots(above.uid()) && above.mode() & 0o022 == 0;
    anyhow::ensure!(is_safe, "it is a symbolic link");
    let file = OpenOptions::new().write(true).open(path)?;
    anyhow::ensure!(!file.metadata()?.is_file(), "it is a symbolic link");
    Ok(Some(file))
}

/// Errors of a part of a scan.
#[derive(Default)]
pub(crate) struct KeptErrors {
    pub(crate) errors: Vec<ScanError>,
    bytes: usize,
    /// Number of further errors.
    pub(crate) left_out: u64,
}

impl KeptErrors {
    fn add(&mut self, error: &ScanError) {
        if self.errors.len() >= KEPT_MAX || self.bytes + error.path.as_str().len() > KEPT_BYTES_MAX
        {
            self.left_out += 1;
            return;
        }
        self.bytes += error.path.as_str().len();
        self.errors.push(error.clone());
    }
}

/// The file of `--errors`.
struct ErrorList {
    file: LineWriter<File>,
    bytes: usize,
    /// Errors beyond [`LISTED_MAX`].
    left_out: u64,
    /// Hashes of the lines of a run that goes on: what it has listed since it was noted last how far
    /// it was comes again.
    known: HashSet<u64>,
    hashes: RandomState,
}

impl ErrorList {
    fn open(path: &Path, begun_ns: Option<i64>) -> anyhow::Result<Self> {
        let mut file = create_own(path, begun_ns)?;
        let (mut known, hashes, mut bytes) = (HashSet::new(), RandomState::new(), 0);
        if file.metadata()?.is_file() {
            let mut lines = BufReader::new(&mut file);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
                known.insert(hashes.hash_one(&line[..]));
                bytes += line.len();
                line.clear();
            }
            // A torn line is removed.
            file.set_len(bytes as u64)?;
        }
        Ok(ErrorList { file: LineWriter::new(file), bytes, left_out: 0, known, hashes })
    }

    fn add(&mut self, what: &str, path: &Path, why: &str) {
        if self.bytes > LISTED_MAX {
            self.left_out += 1;
            return;
        }
        let path = path.as_os_str().as_bytes();
        let shown = path[..path.len().min(LISTED_PATH_MAX)].escape_ascii();
        let line = match path.len() {
            ..=LISTED_PATH_MAX => format!("{what} {shown}: {why}\n"),
            bytes => format!("{what} {shown}... ({bytes} bytes): {why}\n"),
        };
        if self.known.contains(&self.hashes.hash_one(line.as_bytes())) {
            return;
        }
        self.bytes += line.len();
        // A full disk shows when the file is finished.
        drop(self.file.write_all(line.as_bytes()));
    }

    fn finish(mut self) -> std::io::Result<()> {
        if self.left_out > 0 {
            writeln!(self.file, "and {} more", self.left_out)?;
        }
        self.file.flush()
    }
}

/// Entries that the index does not show though the source would, at one moment of a run.
#[derive(Clone)]
pub(crate) struct Shortfalls {
    /// Number, kind and fault of entries.
    counts: [(u64, &'static str, &'static str); 6],
    /// Directories for their owner and root alone, by owner.
    beyond_limits: BTreeMap<u32, u64>,
    closed: Vec<ClosedMount>,
}

impl Shortfalls {
    /// Takes them from the counts of a run.
    pub(crate) fn new(
        counts: &Counts,
        beyond_limits: BTreeMap<u32, u64>,
        closed: Vec<ClosedMount>,
    ) -> Self {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = [
            (count(&counts.failed), "entry", "could not be read"),
            (count(&counts.vanished), "entry", "vanished"),
            (count(&counts.moved), "directory", "left out, moved meanwhile"),
            (count(&counts.narrowed), "listing", "shown to fewer, since directories changed"),
            (count(&counts.long_paths), "directory", "left out, nested too deeply"),
            (count(&counts.unmapped), "directory", "of users or groups that are not known"),
        ];
        Shortfalls { counts, beyond_limits, closed }
    }

    /// Formats what was added since an earlier moment.
    pub(crate) fn since(&self, before: &Shortfalls) -> Vec<String> {
        let mut lines = Vec::new();
        for ((count, one, what), (earlier, ..)) in self.counts.iter().zip(&before.counts) {
            if count > earlier {
                lines.push(format!("{} {what}", counted(count - earlier, one)));
            }
        }
        for (owner, count) in &self.beyond_limits {
            let added = count - before.beyond_limits.get(owner).unwrap_or(&0);
            if added > 0 {
                lines.push(format!(
                    "{} for uid {owner} and root alone, since that owner asks for too many access \
                     classes",
                    counted(added, "directory")
                ));
            }
        }
        let closed = self.closed.get(before.closed.len()..).unwrap_or_default();
        for ClosedMount { point, file_system, entered, .. } in closed.iter().take(MOUNTS_MAX) {
            let point = shown(Path::new(std::ffi::OsStr::from_bytes(point)));
            let what = if *entered { "is for root alone, wholly or partly" } else { "is left out" };
            lines.push(format!("{point} ({file_system}) {what}"));
        }
        if closed.len() > MOUNTS_MAX {
            let more = counted(closed.len() - MOUNTS_MAX, "other file system");
            lines.push(format!("{more} also left out or for root alone"));
        }
        lines
    }
}

/// Warns of mounts whose contents the index shows to fewer users than the system might.
pub(crate) fn warn_of_mounts(cx: &Context<'_>, closed: &[ClosedMount]) {
    for mount in closed.iter().take(MOUNTS_MAX) {
        let ClosedMount { point, file_system, rules, entered } = mount;
        let point = if point.is_empty() {
            "a file system that /proc does not tell".to_owned()
        } else {
            format!("{} ({file_system})", shown(Path::new(std::ffi::OsStr::from_bytes(point))))
        };
        match rules {
            _ if mount.is_network() && !entered => cx.note(format_args!(
                "{point} is of another machine and left out: name it as a source, or its type in \
                 'trust_fs', or give --no-prune"
            )),
            _ if !entered => {
                cx.note(format_args!("warning: {point} was mounted by a user and is left out"))
            }
            Rules::Mode => cx.note(format_args!(
                "warning: {point} may take no account of ACLs: what has one is for root alone, \
                 unless 'trust_fs' names the type"
            )),
            _ => cx.note(format_args!(
                "warning: {point} does not leave it to modes and ACLs who sees what: it is for \
                 root alone, unless 'trust_fs' names the type"
            )),
        }
    }
    if let Some(more) = closed.len().checked_sub(MOUNTS_MAX).filter(|more| *more > 0) {
        let (systems, are) =
            (counted(more, "more file system"), if more == 1 { "is" } else { "are" });
        cx.note(format_args!("warning: {systems} {are} for root alone or left out"));
    }
}

/// Notes the mounts that were not entered since they hold no files.
pub(crate) fn warn_of_empty_mounts(cx: &Context<'_>, points: &[Vec<u8>]) {
    let path = |point: &Vec<u8>| shown(Path::new(std::ffi::OsStr::from_bytes(point)));
    match points {
        [] => {}
        [one] => cx.note(format_args!("{} holds no files and is not entered", path(one))),
        [one, two] => {
            cx.note(format_args!(
                "{} and {} hold no files and are not entered",
                path(one),
                path(two)
            ));
        }
        [one, two, more @ ..] => cx.note(format_args!(
            "{}, {} and {} more hold no files and are not entered (--dry-run names them)",
            path(one),
            path(two),
            more.len()
        )),
    }
}

/// Returns the beginning of a path for a message.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
