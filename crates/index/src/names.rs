//! What directories and files of an index are called.

use crate::schema::FileKind;
use canopy_model::{ClassPath, Gate, GateStep, GrantId};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

/// The key of an index: makes the names of passages differ between indexes. Whoever may read the
/// index may know it; what is secret is the name of the child that a passage leads to.
pub(crate) type Key = [u8; 32];

/// The names in one index.
#[derive(Clone)]
pub(crate) struct Names {
    index: PathBuf,
    key: Key,
}

/// A directory that leads to a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DirName {
    /// Those who pass a grant.
    Grant(GrantId),
    /// Those who may search a gate.
    Gate(Gate),
    /// Those who know the child that this is the hash of.
    Passage([u8; 16]),
}

impl fmt::Display for DirName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirName::Grant(id) => write!(formatter, "g{}", id.0),
            DirName::Gate(gate) => write!(formatter, "k{}-{}", gate.search.0, gate.read.0),
            DirName::Passage(hash) => write!(formatter, "p{}", hex::encode(hash)),
        }
    }
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

    /// Returns the directories that lead to a class.
    pub(crate) fn steps(&self, class: &ClassPath) -> Vec<DirName> {
        let mut steps = Vec::new();
        for step in &class.gates {
            steps.extend(step.grants.iter().map(|&id| DirName::Grant(id)));
            steps.push(DirName::Gate(step.gate));
            steps.push(self.passage(&step.child));
        }
        steps.extend(class.grants.iter().map(|&id| DirName::Grant(id)));
        steps
    }

    /// Returns the directory of a class.
    pub(crate) fn class(&self, class: &ClassPath) -> PathBuf {
        let mut path = self.classes().into_os_string();
        for step in self.steps(class) {
            write!(path, "/{step}").expect("writing to memory does not fail");
        }
        path.into()
    }

    /// Returns the directory, in that of a gate, of the child with this absolute path.
    pub(crate) fn passage(&self, child: &str) -> DirName {
        DirName::Passage(self.hash("passage", child))
    }

    /// Returns the directory behind the last of these gates.
    pub(crate) fn behind(&self, gates: impl IntoIterator<Item = GateStep>) -> PathBuf {
        let gates = gates.into_iter().collect();
        self.class(&ClassPath { gates, grants: Vec::new() })
    }

    /// Returns sixteen bytes that tell a path from all others without naming it.
    pub(crate) fn hash(&self, purpose: &str, path: &str) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(purpose.as_bytes()).update(b"\0").update(path.as_bytes());
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        hash
    }

    /// Seals or opens bytes with a path as the secret. `nonce` must differ each time.
    pub(crate) fn seal(&self, path: &str, nonce: &[u8], bytes: &mut [u8]) {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"seal\0").update(&(nonce.len() as u32).to_le_bytes()).update(nonce);
        hasher.update(path.as_bytes());
        let mut stream = vec![0; bytes.len()];
        hasher.finalize_xof().fill(&mut stream);
        bytes.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

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

/// Returns the path of the document of a passage in its directory.
pub(crate) fn passage(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("passage-{generation}.bin"))
}

/// Returns the generation in the name of a file that [`passage`] has named.
pub(crate) fn passage_generation(name: &str) -> Option<u64> {
    name.strip_prefix("passage-")?.strip_suffix(".bin")?.parse().ok()
}

pub(crate) fn shard_file(shard: &str, kind: FileKind) -> String {
    format!("{shard}-{}.parquet", kind.name())
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
        names.seal("/home/ann", b"1", &mut bytes);
        let mut wrong = bytes;
        names.seal("/home/bob", b"1", &mut wrong);
        assert_ne!(&wrong, b"a record");
        names.seal("/home/ann", b"1", &mut bytes);
        assert_eq!(&bytes, b"a record");
    }
}
