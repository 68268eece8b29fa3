//! Names of directories and files of an index.

use crate::schema::FileKind;
use canopy_model::{AbsolutePath, GRANTS_MAX, Generation, Principal};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The key of an index: makes hashes of paths differ between indexes. Every reader of the index may
/// know it; the path is the secret.
pub(crate) type Key = [u8; 32];

/// Where a class is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ClassPlace {
    /// The name of its first directory: random, so that it is known only from lists.
    pub(crate) tag: [u8; 16],
    /// How many directories, one in the other, lead to its files: as many as it has grants.
    pub(crate) depth: u32,
}

impl ClassPlace {
    /// That of the class of everybody.
    pub(crate) const EVERYONE: ClassPlace = ClassPlace { tag: [0; 16], depth: 0 };

    /// Returns whether a writer makes such a place.
    pub(crate) fn is_sound(self) -> bool {
        self.depth as usize <= GRANTS_MAX
    }
}

/// Things that a path reveals to those who know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// An entry of a gate.
    Entry,
    /// Listings behind a passage.
    Passage,
    /// A source whose root lies behind a passage or is one.
    Source,
}

impl Secret {
    fn name(self) -> &'static str {
        match self {
            Secret::Entry => "entry",
            Secret::Passage => "passage",
            Secret::Source => "source",
        }
    }
}

/// The names in one index.
#[derive(Clone)]
pub(crate) struct Names {
    index: PathBuf,
    key: Key,
}

impl Names {
    pub(crate) fn new(index: &Path, key: Key) -> Self {
        Names { index: index.to_owned(), key }
    }

    /// Returns the directory of the index.
    pub(crate) fn index(&self) -> &Path {
        &self.index
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Returns the directory of the classes that not everybody belongs to.
    pub(crate) fn classes(&self) -> PathBuf {
        self.index.join("classes")
    }

    /// Returns the directories that lead to the files of a class, the last one with the files.
    pub(crate) fn class_chain(&self, place: ClassPlace) -> Vec<PathBuf> {
        let Some(further) = place.depth.checked_sub(1) else {
            return vec![self.index.join("everyone")];
        };
        let first = self.classes().join(hex::encode(place.tag));
        let mut chain = vec![first];
        for _ in 0..further {
            chain.push(chain[chain.len() - 1].join("and"));
        }
        chain
    }

    /// Returns the directory with the files of a class.
    pub(crate) fn class(&self, place: ClassPlace) -> PathBuf {
        self.class_chain(place).pop().expect("a class has a directory")
    }

    /// Returns sixteen bytes that stand for a class without telling where it is.
    pub(crate) fn class_hash(&self, place: ClassPlace) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"class\0").update(&place.tag);
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        hash
    }

    /// Returns the directory of the lists of classes.
    pub(crate) fn lists(&self) -> PathBuf {
        self.index.join("lists")
    }

    /// Returns the path of the list of classes for a user or a group.
    pub(crate) fn list(&self, principal: Principal, generation: Generation) -> PathBuf {
        self.lists().join(match principal {
            Principal::User(uid) => format!("u{uid}-{generation}.bin"),
            Principal::Group(gid) => format!("g{gid}-{generation}.bin"),
        })
    }

    /// Returns sixteen bytes that identify a path without naming it.
    pub(crate) fn hash(&self, secret: Secret, path: AbsolutePath<'_>) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(secret.name().as_bytes()).update(b"\0").update(path.as_str().as_bytes());
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        hash
    }

    /// Seals or opens bytes with a path as the secret. `salt` must differ each time.
    pub(crate) fn seal(
        &self,
        secret: Secret,
        path: AbsolutePath<'_>,
        salt: &[u8],
        bytes: &mut [u8],
    ) {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"seal ").update(secret.name().as_bytes()).update(b"\0").update(salt);
        hasher.update(path.as_str().as_bytes());
        let mut stream = vec![0; bytes.len()];
        hasher.finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// The directory, in that of a class, of shards whose names only sealed records contain.
pub(crate) const GATED: &str = "gated";

pub(crate) fn current(index: &Path) -> PathBuf {
    index.join("CURRENT")
}

/// Returns the path of the copy of `CURRENT`, for the writer.
pub(crate) fn current_copy(index: &Path) -> PathBuf {
    index.join("CURRENT.copy")
}

/// Returns the path of the list of what no generation from this one on needs.
pub(crate) fn leaving(index: &Path, generation: Generation) -> PathBuf {
    index.join(format!("leaving-{generation}"))
}

/// Returns the path of what proves that a directory is an index, and is locked by its writer.
pub(crate) fn lock(index: &Path) -> PathBuf {
    index.join("lock")
}

/// Returns the path of what the writer is about to make.
pub(crate) fn journal(index: &Path) -> PathBuf {
    index.join("journal")
}

/// Returns the path of what is known of sources that could not be indexed.
pub(crate) fn failures(index: &Path) -> PathBuf {
    index.join("failures")
}

/// Returns the path of what is known of a scan that has not come to its end.
pub(crate) fn unfinished(index: &Path) -> PathBuf {
    index.join("unfinished")
}

/// Returns the path of the list of its files.
pub(crate) fn unfinished_files(index: &Path) -> PathBuf {
    index.join("unfinished-files")
}

/// Returns the path of what those have who share a scan.
pub(crate) fn workers(index: &Path) -> PathBuf {
    index.join("workers")
}

/// Returns its path once nobody counts on it any more.
pub(crate) fn workers_over(index: &Path) -> PathBuf {
    index.join("workers.over")
}

pub(crate) fn catalog(index: &Path, generation: Generation) -> PathBuf {
    index.join(format!("catalog-{generation}.bin"))
}

pub(crate) fn all_manifests(index: &Path, generation: Generation) -> PathBuf {
    index.join(format!("manifests-{generation}.bin"))
}

pub(crate) fn manifest(class: &Path, generation: Generation) -> PathBuf {
    class.join(format!("manifest-{generation}.bin"))
}

/// Returns whether a text can be the id of a file, as a writer makes them: `GENERATION-NUMBER`, or
/// that with a `-` and hexadecimal digits.
pub(crate) fn is_id(text: &str) -> bool {
    let all =
        |text: &str, digit: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(digit);
    match text.split('-').collect::<Vec<_>>()[..] {
        [generation, number] => {
            all(generation, u8::is_ascii_digit) && all(number, u8::is_ascii_digit)
        }
        [generation, number, secret] => {
            all(generation, u8::is_ascii_digit)
                && all(number, u8::is_ascii_digit)
                && all(secret, u8::is_ascii_hexdigit)
        }
        _ => false,
    }
}

/// Returns whether a file of a shard or a page, or of sealed records, is of a generation.
pub(crate) fn is_of_generation(file: &Path, generation: Generation) -> bool {
    generation_of(file) == Some(generation)
}

/// Returns the generation that the name of a file with an id begins with.
pub(crate) fn generation_of(file: &Path) -> Option<Generation> {
    let name = file.file_name()?.to_str()?;
    name.split_once('-')?.0.parse().ok()
}

pub(crate) fn shard_file(shard: &str, kind: FileKind) -> String {
    format!("{shard}-{}.parquet", kind.name())
}

pub(crate) fn sealed_file(id: &str) -> String {
    format!("{id}-sealed.bin")
}

/// Rows of a derived table, in the directory of their class.
pub(crate) fn table_file(table: &str, generation: Generation) -> String {
    format!("table-{table}-{generation}.parquet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_names_open_with_their_own_path_alone() {
        let names = Names::new(Path::new("/index"), [7; 32]);
        let mut bytes = *b"a record";
        names.seal(Secret::Entry, AbsolutePath::new("/home/ann"), b"1", &mut bytes);
        for (secret, path, salt) in [
            (Secret::Entry, AbsolutePath::new("/home/bob"), b"1"),
            (Secret::Passage, AbsolutePath::new("/home/ann"), b"1"),
            (Secret::Entry, AbsolutePath::new("/home/ann"), b"2"),
        ] {
            let mut wrong = bytes;
            names.seal(secret, path, salt, &mut wrong);
            assert_ne!(&wrong, b"a record");
        }
        names.seal(Secret::Entry, AbsolutePath::new("/home/ann"), b"1", &mut bytes);
        assert_eq!(&bytes, b"a record");
    }
}
