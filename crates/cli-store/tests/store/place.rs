//! A storage place with tables, and the command run on it.

use canopy_store::storage::LocalStorage;
use canopy_store::{
    Batch, Column, Durability, Environment, Key, KeyRef, Layout, MergeOperator, Options,
    SstableCache, Table, TableId, create,
};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// Adds bytes to the end of a value.
pub struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn apply(&self, _key: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        [value.unwrap_or_default(), operand].concat()
    }

    fn combine(&self, _key: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8> {
        [first, second].concat()
    }
}

pub fn options() -> Options {
    Options { sstable_bytes: 16 << 10, grace_ms: 0, ..Options::default() }
}

pub fn with_merges() -> Options {
    Options { operator: Some(Arc::new(Append)), ..options() }
}

pub fn layout() -> Layout {
    let column = |name: &str, width, near| Column { name: name.into(), width, near };
    Layout { columns: vec![column("size", 4, None), column("mtime", 8, None)] }
}

pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub environment: Environment,
    pub cache: Arc<SstableCache>,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(&dir.path().join("storage")).unwrap();
        let environment = Environment::system(Arc::new(storage));
        let cache = SstableCache::new(&environment, 8 << 20);
        Fixture { dir, environment, cache }
    }

    /// Where the tables lie.
    pub fn storage(&self) -> String {
        self.dir.path().join("storage").to_str().unwrap().to_owned()
    }

    pub fn create(&self, options: &Options) -> TableId {
        create(&self.environment, layout(), options).unwrap()
    }

    pub fn open(&self, id: TableId, options: &Options) -> Table {
        Table::open(&self.environment, id, self.cache.clone(), options.clone()).unwrap()
    }

    /// A table with `count` records in one run.
    pub fn table(&self, count: u64) -> TableId {
        let id = self.create(&options());
        let table = self.open(id, &options());
        put(&table, 0..count);
        table.flush().unwrap();
        id
    }

    /// The objects of a table whose names have `part`, as paths, in order.
    pub fn objects(&self, id: TableId, part: &str) -> Vec<PathBuf> {
        let listed = self.environment.storage.list(&format!("{id}/{part}"), "").unwrap();
        let storage = self.dir.path().join("storage");
        listed.into_iter().map(|one| storage.join(one.name)).collect()
    }

    /// Runs `canopy-store store` with words, of which `@` is the storage.
    pub fn run(&self, line: &[&str]) -> Output {
        let storage = self.storage();
        let words = line.iter().map(|word| if *word == "@" { &*storage } else { word });
        command().args(words).output().unwrap()
    }

    /// Runs it, expects success without messages and returns what it printed.
    #[track_caller]
    pub fn text(&self, line: &[&str]) -> String {
        let output = self.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Verifies all; returns the exit code and what was printed.
    #[track_caller]
    pub fn verify(&self) -> (i32, String) {
        let output = self.run(&["verify", "@"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "{said}");
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    }

    #[track_caller]
    pub fn assert_sound(&self) {
        let (code, text) = self.verify();
        assert!(code == 0 && text.ends_with(": no faults\n"), "{code}: {text}");
    }

    /// Verifies all and expects a fault of the object at `path`.
    #[track_caller]
    pub fn assert_fault(&self, path: &Path, what: &str) {
        let (code, text) = self.verify();
        let name = path.strip_prefix(self.storage()).unwrap().to_str().unwrap();
        let is_told = text.lines().any(|line| line.starts_with(name) && line.contains(what));
        assert!(code == 1 && is_told, "{name}, {what}: {code}: {text}");
        let last = text.lines().last().unwrap();
        let faults = text.lines().filter(|line| !line.starts_with("note: ")).count() - 1;
        let expected = if faults == 1 { "1 fault".into() } else { format!("{faults} faults") };
        assert!(last.ends_with(&expected), "{text}");
    }
}

/// The command, as `canopy` runs it.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopy-store"));
    command.arg0("canopy").arg("store");
    command
}

pub fn key(at: u64) -> Key {
    Key::named(at / 1000, format!("file-{at}").as_bytes())
}

pub fn value(at: u64) -> Vec<u8> {
    let (size, mtime) = (at as u32, 1_700_000_000_000_000_000 + at);
    [&size.to_le_bytes()[..], &mtime.to_le_bytes(), b"and more"].concat()
}

/// Writes records of these numbers.
pub fn put(table: &Table, numbers: std::ops::Range<u64>) {
    let mut batch = Batch::new();
    for at in numbers {
        batch.put(key(at).as_ref(), &value(at)).unwrap();
        if batch.len() == 1000 {
            table.write(&batch, Durability::Visible).unwrap();
            batch.clear();
        }
    }
    table.write(&batch, Durability::Durable).unwrap();
}

/// Changes a byte of a file, calls `check` and puts it right again.
pub fn with_flipped(path: &Path, at: usize, check: impl FnOnce()) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, &bytes).unwrap();
    check();
    bytes[at] ^= 0x10;
    fs::write(path, &bytes).unwrap();
}
