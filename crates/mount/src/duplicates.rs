//! `[duplicates]`: files with the same contents, among those that the asking user may read.
//!
//! Sizes are counted first, then the beginnings of files of one size are compared, then all of
//! those that begin alike, by BLAKE3 hashes of their blocks that are not all zeros, each with its
//! place. So holes are not read, and a file is equal to its copy without holes. Files without a byte
//! are left out, and a file with several names counts once.

use crate::node::Node;
use crate::pool::Turn;
use crate::queries::{Queries, about};
use canopy_fuse::places::{PackedPath, PackedPaths};
use canopy_fuse::results::{Findings, FoundFile, RESULTS_MAX};
use canopy_model::{Credentials, Wanted};
use canopy_namespace::operation::{Moment, PastHandle};
use canopy_namespace::{Error, FileId, Inode, NAME_BYTES_MAX};
use canopy_query::Expression;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// A query that reads for longer is refused.
const TIME_MAX: Duration = Duration::from_secs(120);

/// Most different sizes of files.
const SIZES_MAX: usize = 4_000_000;

/// Memory that a size takes while files are counted, and a file that may have the contents of another.
const SIZE_BYTES: usize = size_of::<(u64, bool)>() + 1;
const CANDIDATE_BYTES: usize = 2 * size_of::<Candidate>() + 2 * size_of::<u64>();

/// Bytes that are compared first.
const BEGINNING_BYTES: u64 = 4096;

/// Bytes that are read at a time.
const STEP_BYTES: u64 = 1 << 20;

/// Size of a block; one of zeros is not hashed.
const BLOCK_BYTES: u64 = 4096;

/// Digits of hashes in names.
const DIGITS: usize = 16;

type Answer<T> = Result<T, Error>;

/// A file that may have the contents of another one.
struct Candidate {
    place: PackedPath,
    inode: Inode,
}

/// Why a query is refused, and what would help.
pub(crate) enum Refused {
    Because(String, Errno),
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Failed(error)
    }
}

/// A file that can be read.
enum Open {
    Now(FileId),
    Past(PastHandle),
}

struct Reader<'a> {
    queries: &'a Queries,
    turn: &'a Turn<'a>,
    base: Node,
    who: &'a Credentials,
    until: Instant,
}

/// Returns why there is no room for so many bytes of memory, if there is none.
type HasRoom<'a> = &'a mut dyn FnMut(usize) -> Result<(), (String, Errno)>;

/// Returns the files below a directory that an expression is true of and whose contents another one
/// of them has, the names of equal ones together: `HASH-NUMBER-NAME`. No more than [`RESULTS_MAX`].
pub(crate) fn duplicates(
    queries: &Queries,
    turn: &Turn<'_>,
    base: Node,
    expression: &Expression,
    who: &Credentials,
    has_room: HasRoom<'_>,
) -> Result<Findings, Refused> {
    let reader = Reader { queries, turn, base, who, until: Instant::now() + TIME_MAX };
    let (places, groups) = reader.of_one_size(expression, has_room)?;
    let groups = reader.split(groups, |reader, id| reader.hash(id, BEGINNING_BYTES))?;
    let groups = reader.split(groups, |reader, id| reader.hash(id, u64::MAX))?;
    let (ranks, mut all) = (places.ranks(), Findings::new(RESULTS_MAX));
    for (hash, mut group) in groups {
        let key = |one: &Candidate| (ranks[places.directory_of(one.place)], places.name(one.place));
        group.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        let digits = hash.to_hex();
        for (at, Candidate { place, inode }) in group.into_iter().enumerate() {
            let mut name = format!("{}-{}-", &digits[..DIGITS], at + 1).into_bytes();
            name.extend_from_slice(places.name(place));
            name.truncate(NAME_BYTES_MAX);
            let found = FoundFile {
                path: places.path(place),
                is_beyond: false,
                id: inode.id.0,
                about: about(&inode),
            };
            all.add_named(&found, Some(name));
        }
        has_room(places.bytes() + all.bytes())
            .map_err(|(why, errno)| Refused::Because(why, errno))?;
    }
    Ok(all)
}

/// Files that are alike as far as is known, with a hash of that.
type Group = (blake3::Hash, Vec<Candidate>);

impl Reader<'_> {
    /// Returns the files that can be read and that are of the size of another one, each once.
    fn of_one_size(
        &self,
        expression: &Expression,
        has_room: HasRoom<'_>,
    ) -> Result<(PackedPaths, Vec<Group>), Refused> {
        let sizes = self.sizes(expression, has_room)?;
        let (mut groups, mut seen) = (HashMap::<u64, Vec<Candidate>>::new(), HashSet::new());
        let (mut places, mut room) = (PackedPaths::default(), Ok(()));
        self.queries.search(self.base, expression, self.who, self.turn, |found| {
            let is_one = is_candidate(&found.inode)
                && sizes.get(&found.inode.size) == Some(&true)
                && seen.insert(found.inode.id);
            if is_one {
                let (place, inode) = (places.add(&found.path), found.inode);
                groups.entry(inode.size).or_default().push(Candidate { place, inode });
                room = has_room(places.bytes() + seen.len() * CANDIDATE_BYTES);
            }
            seen.len() <= RESULTS_MAX && room.is_ok()
        })?;
        room.map_err(|(why, errno)| Refused::Because(why, errno))?;
        if seen.len() > RESULTS_MAX {
            let why = format!(
                "more than {RESULTS_MAX} files have the size of another one; ask for fewer, as with \
                 [size>1M]/[duplicates]"
            );
            return Err(Refused::Because(why, Errno::TOOBIG));
        }
        let nothing = blake3::hash(b"");
        Ok((places, groups.into_values().map(|group| (nothing, group)).collect()))
    }

    /// Returns the sizes of files, each with whether several files are of that size.
    fn sizes(
        &self,
        expression: &Expression,
        has_room: HasRoom<'_>,
    ) -> Result<HashMap<u64, bool>, Refused> {
        let (mut sizes, mut room) = (HashMap::<u64, bool>::new(), Ok(()));
        self.queries.search(self.base, expression, self.who, self.turn, |found| {
            if is_candidate(&found.inode) {
                let several = sizes.contains_key(&found.inode.size);
                sizes.insert(found.inode.size, several);
                room = has_room(sizes.capacity() * SIZE_BYTES);
            }
            sizes.len() <= SIZES_MAX && room.is_ok()
        })?;
        room.map_err(|(why, errno)| Refused::Because(why, errno))?;
        if sizes.len() > SIZES_MAX {
            let why =
                format!("files of more than {SIZES_MAX} sizes; ask below a smaller directory");
            return Err(Refused::Because(why, Errno::TOOBIG));
        }
        Ok(sizes)
    }

    /// Leaves the files that have the hash of another one in their group.
    fn split(
        &self,
        groups: Vec<Group>,
        hash: impl Fn(&Self, &Inode) -> Result<Option<blake3::Hash>, Refused>,
    ) -> Result<Vec<Group>, Refused> {
        let mut all = Vec::new();
        for (_, group) in groups.into_iter().filter(|(_, group)| group.len() > 1) {
            let mut parts = HashMap::<blake3::Hash, Vec<Candidate>>::new();
            for found in group {
                if let Some(hash) = hash(self, &found.inode)? {
                    parts.entry(hash).or_default().push(found);
                }
            }
            all.extend(parts.into_iter().filter(|(_, part)| part.len() > 1));
        }
        Ok(all)
    }

    /// Returns the hash of what a file has, up to a length; none if it cannot be read.
    fn hash(&self, inode: &Inode, length: u64) -> Result<Option<blake3::Hash>, Refused> {
        let file = match self.open(inode) {
            Ok(Some(file)) => file,
            // It may have gone, or been hidden.
            Ok(None) | Err(_) => return Ok(None),
        };
        let hashed = self.hash_opened(&file, inode.size.min(length));
        match file {
            Open::Now(id) => {
                self.queries.namespace.close(id)?;
                self.queries.namespace.release(id, 1)?;
            }
            Open::Past(handle) => self.queries.namespace.close_past_file(handle),
        }
        hashed
    }

    fn open(&self, inode: &Inode) -> Answer<Option<Open>> {
        let (namespace, id) = (self.queries.pasts.by(self.who), inode.id);
        let (at, _) = self.queries.place(self.base)?;
        if let Moment::Snapshot(number) = at {
            let may = namespace.lets_read(at, id, self.who)?
                && namespace.is_shown(number, id, Wanted::READ, self.who)?;
            return may.then(|| namespace.open_past_file(number, id).map(Open::Past)).transpose();
        }
        namespace.hold(id)?;
        let opened = match namespace.lets_read(at, id, self.who) {
            Ok(true) => {
                namespace.open_for(self.who, Wanted::READ, id).map(|()| Some(Open::Now(id)))
            }
            other => other.map(|_| None),
        };
        if !matches!(opened, Ok(Some(_))) {
            namespace.release(id, 1)?;
        }
        opened
    }

    fn hash_opened(&self, file: &Open, length: u64) -> Result<Option<blake3::Hash>, Refused> {
        let namespace = &self.queries.namespace;
        let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
        while at < length {
            self.turn.pause(0);
            if Instant::now() > self.until {
                let why = format!(
                    "reading the files takes more than {} s; ask for fewer, as with \
                     [size>1M]/[duplicates], or below a smaller directory",
                    TIME_MAX.as_secs()
                );
                return Err(Refused::Because(why, Errno::TOOBIG));
            }
            let data = match file {
                Open::Now(id) => match namespace.seek_from(*id, false, at) {
                    Err(Error::Posix(Errno::NXIO)) => Ok(length),
                    data => data,
                },
                Open::Past(handle) => namespace.past_data_from(*handle, at),
            };
            let Ok(data) = data else { return Ok(None) };
            at = at.max(data / BLOCK_BYTES * BLOCK_BYTES);
            if at >= length {
                break;
            }
            let step = (length - at).min(STEP_BYTES) as usize;
            let read = match file {
                Open::Now(id) => namespace.read_at(*id, at, step, false),
                Open::Past(handle) => namespace.read_past_at(*handle, at, step),
            };
            // A file that has become shorter is not as it was found.
            let Ok(mut bytes) = read else { return Ok(None) };
            if bytes.len() < step {
                bytes.truncate(bytes.len() / BLOCK_BYTES as usize * BLOCK_BYTES as usize);
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            for block in bytes.chunks(BLOCK_BYTES as usize) {
                if block.iter().any(|&byte| byte != 0) {
                    hasher.update(&at.to_le_bytes());
                    hasher.update(block);
                }
                at += block.len() as u64;
            }
        }
        Ok(Some(hasher.finalize()))
    }
}

fn is_candidate(inode: &Inode) -> bool {
    inode.is_regular() && inode.size > 0
}
