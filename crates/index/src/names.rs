//! What directories and files of an index are called.

use crate::schema::FileKind;
use canopy_model::GrantId;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The key of an index: makes hashes of paths differ between indexes. Whoever may read the index
/// may know it; what is secret is the path.
pub(crate) type Key = [u8; 32];

/// What a path gives to those who know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// An entry of a gate.
    Entry,
    /// What lies behind a passage.
    Passage,
}

impl Secret {
    fn name(self) -> &'static str {
        match self {
            Secret::Entry => "entry",
            Secret::Passage => "passage",
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

    /// Returns the directory that holds the directories of all classes.
    pub(crate) fn classes(&self) -> PathBuf {
        self.index.join("classes")
    }

    /// Returns the directory of the class with these grants.
    pub(crate) fn class(&self, grants: impl IntoIterator<Item = GrantId>) -> PathBuf {
        let mut path = self.classes().into_os_string();
        for id in grants {
            write!(path, "/{}", grant(id)).expect("writing to memory does not fail");
        }
        path.into()
    }

    /// Returns sixteen bytes that tell a path from all others without naming it.
    pub(crate) fn hash(&self, secret: Secret, path: &str) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(secret.name().as_bytes()).update(b"\0").update(path.as_bytes());
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        hash
    }

    /// Seals or opens bytes with a path as the secret. `salt` must differ each time.
    pub(crate) fn seal(&self, secret: Secret, path: &str, salt: &[u8], bytes: &mut [u8]) {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"seal ").update(secret.name().as_bytes()).update(b"\0").update(salt);
        hasher.update(path.as_bytes());
        let mut stream = vec![0; bytes.len()];
        hasher.finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// Returns the name of the directory of those who pass a grant.
pub(crate) fn grant(id: GrantId) -> String {
    format!("g{}", id.0)
}

/// The directory, in that of a class, of shards whose names only sealed records tell.
pub(crate) const GATED: &str = "gated";

pub(crate) fn current(index: &Path) -> PathBuf {
    index.join("CURRENT")
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

pub(crate) fn catalog(index: &Path, generation: u64) -> PathBuf {
    index.join(format!("catalog-{generation}.bin"))
}

pub(crate) fn all_manifests(index: &Path, generation: u64) -> PathBuf {
    index.join(format!("manifests-{generation}.bin"))
}

pub(crate) fn manifest(class: &Path, generation: u64) -> PathBuf {
    class.join(format!("manifest-{generation}.bin"))
}

pub(crate) fn shard_file(shard: &str, kind: FileKind) -> String {
    format!("{shard}-{}.parquet", kind.name())
}

pub(crate) fn sealed_file(id: &str) -> String {
    format!("{id}-sealed.bin")
}

/// Rows of a derived table, in the directory of their class.
pub(crate) fn table_file(table: &str, generation: u64) -> String {
    format!("table-{table}-{generation}.parquet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_the_same_path_alone() {
        let names = Names::new(Path::new("/index"), [7; 32]);
        let mut bytes = *b"a record";
        names.seal(Secret::Entry, "/home/ann", b"1", &mut bytes);
        for (secret, path, salt) in [
            (Secret::Entry, "/home/bob", b"1"),
            (Secret::Passage, "/home/ann", b"1"),
            (Secret::Entry, "/home/ann", b"2"),
        ] {
            let mut wrong = bytes;
            names.seal(secret, path, salt, &mut wrong);
            assert_ne!(&wrong, b"a record");
        }
        names.seal(Secret::Entry, "/home/ann", b"1", &mut bytes);
        assert_eq!(&bytes, b"a record");
    }
}
