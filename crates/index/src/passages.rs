//! Opening what is sealed, for one caller: what paths lead to behind gates.

use crate::builder::Builder;
use crate::column::NAME;
use crate::error::{Error, Result};
use crate::hidden::SealedSource;
use crate::manifest::SourceRecord;
use crate::names::{ClassPlace, Key, Names};
use crate::schema::FileKind;
use crate::sealed::{Sealed, SealedFile, SealedPart, SealedRecord};
use crate::shard::Shard;
use crate::shard_record::ShardRecord;
use crate::source_id::SourceId;
use canopy_model::{AbsolutePath, SourcePath, is_below};
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of subdirectories that are read at a time.
const BATCH_ROWS: usize = 4096;

/// The sealed records of the classes that the caller may read.
pub(crate) struct SealedFiles {
    names: Arc<Names>,
    /// Hashes of these classes.
    visible: FxHashSet<[u8; 16]>,
    files: Vec<Sealed>,
    /// Sources that they have sealed, each with the directory of its class.
    sources: Vec<(SealedSource, PathBuf)>,
}

/// Sources and shards behind passages.
#[derive(Default)]
pub(crate) struct Behind {
    pub(crate) sources: Vec<SourceRecord>,
    pub(crate) shards: Vec<Shard>,
}

impl Default for SealedFiles {
    fn default() -> Self {
        Self::new(Arc::new(Names::new(Path::new(""), Key::default())))
    }
}

impl SealedFiles {
    pub(crate) fn new(names: Arc<Names>) -> Self {
        SealedFiles { names, visible: FxHashSet::default(), files: Vec::new(), sources: Vec::new() }
    }

    /// Adds what is sealed in a class that the caller may read.
    pub(crate) fn add(
        &mut self,
        place: ClassPlace,
        directory: &Path,
        files: Vec<SealedFile>,
        sources: Vec<SealedSource>,
    ) {
        self.visible.insert(self.names.class_hash(place));
        let files = files.into_iter().map(|file| Sealed::new(file, directory.to_owned()));
        self.files.extend(files);
        self.sources.extend(sources.into_iter().map(|source| (source, directory.to_owned())));
    }

    /// Returns what is sealed for those who know the path of an entry of a gate, absolute and
    /// escaped.
    pub(crate) fn entry(
        &self,
        source: SourceId,
        path: AbsolutePath<'_>,
    ) -> Result<Vec<SealedRecord>> {
        let mut found = Vec::new();
        for file in self.files.iter().filter(|file| file.source() == source) {
            found.extend(file.entry(&self.names, path)?);
        }
        Ok(found)
    }

    /// Returns what lies behind the passages that paths name, absolute and escaped, and those that
    /// can be listed behind them, but for what the caller may list anyway. `known` are sources that
    /// the caller may list: what is sealed of those that are elsewhere than all paths is not asked.
    pub(crate) fn behind(
        &self,
        paths: &[AbsolutePath<'_>],
        known: &[SourceRecord],
    ) -> Result<Behind> {
        let mut behind = Behind::default();
        if self.files.is_empty() && self.sources.is_empty() {
            return Ok(behind);
        }
        let mut waiting: Vec<String> = Vec::new();
        for path in paths {
            waiting.extend(path.with_above().map(|passage| passage.as_str().to_owned()));
        }
        let roots: FxHashMap<SourceId, &str> =
            known.iter().map(|source| (source.id, source.root.trim_start_matches('/'))).collect();
        let may_have = |file: &&Sealed| {
            let Some(root) = roots.get(&file.source()) else { return true };
            let mut asked = paths.iter().map(|path| path.as_str().trim_start_matches('/'));
            asked.any(|asked| is_below(root, asked) || is_below(asked, root))
        };
        let files: Vec<&Sealed> = self.files.iter().filter(may_have).collect();
        let mut tried = FxHashSet::default();
        // Few rows each: one shard of all of a source.
        let mut rows: FxHashMap<SourceId, (PathBuf, Builder)> = FxHashMap::default();
        while let Some(passage) = waiting.pop() {
            if !tried.insert(passage.clone()) {
                continue;
            }
            let path = AbsolutePath::new(&passage);
            for (sealed, class) in &self.sources {
                if let Some(source) = sealed.open(&self.names, path) {
                    let source = source.map_err(|error| Error::corrupt(class, error))?;
                    let is_new = !self.visible.contains(&source.listers);
                    behind.sources.extend(Some(source.record).filter(|_| is_new));
                }
            }
            for file in &files {
                for part in file.behind(&self.names, path)? {
                    let is_sound = part.shards.iter().all(ShardRecord::is_sound);
                    if part.source != file.source() || !is_sound {
                        return Err(file.corrupt("a record in it is not such as a writer makes"));
                    }
                    if self.visible.contains(&part.listers) {
                        continue;
                    }
                    let shards = file.open_shards(&part);
                    let SealedPart { root, gates, rows: packed, source, .. } = part;
                    let below = SealedPart::below_root(&passage, &root);
                    for gate in &gates {
                        let mut add = |name: &str| {
                            waiting.push(gate.as_path().child(name).as_path().absolute(&root));
                        };
                        packed.subdirectories(below, gate.as_path()).for_each(&mut add);
                        for shard in &shards {
                            subdirectories(shard, gate.as_path(), &mut add)?;
                        }
                    }
                    behind.shards.extend(shards);
                    let (_, builder) = rows
                        .entry(source)
                        .or_insert_with(|| (file.directory().to_owned(), Builder::default()));
                    packed.unpack(builder, below);
                }
            }
        }
        for (source, (directory, builder)) in rows {
            if !builder.is_empty() {
                behind.shards.push(Shard::in_memory(source, directory, builder)?);
            }
        }
        Ok(behind)
    }
}

/// Passes on the names of the directories in a directory.
fn subdirectories(
    shard: &Shard,
    directory: SourcePath<'_>,
    each: &mut impl FnMut(&str),
) -> Result<()> {
    let (_, dirs) = shard.rows_of(&shard.listings_at(directory)?)?;
    if dirs.is_empty() {
        return Ok(());
    }
    for batch in shard.read(FileKind::Dirs, NAME, &dirs, BATCH_ROWS)? {
        let batch = batch?;
        let names = NAME.of(&batch)?;
        (0..batch.num_rows()).for_each(|at| each(names.value(at)));
    }
    Ok(())
}
