//! Writing files of sealed records anew: several as one, and without their dead records. That takes
//! no path: each record stays sealed as it is.

use super::compaction::{DEAD_FOR_MAX_NS, Due};
use super::{Held, Writer, now_ns};
use crate::error::{Error, Result};
use crate::sealed::{self, Sealed, SealedFile};
use crate::source_id::SourceId;
use canopy_model::ClassId;
use std::collections::{BTreeMap, BTreeSet};

/// Files of a source in a class that stay as they are whatever their sizes.
const FILES_MIN: usize = 8;

/// Bytes from which on a file is joined with no other one.
const JOINED_BYTES_MAX: u64 = 32 << 20;

/// Dead records of a file from which on it is written anew, if they are a sixteenth of all: the
/// manifest names each.
const DEAD_MAX: u64 = 1024;

impl Writer {
    /// Writes files of sealed records anew that have been waiting for long, or are too many, in
    /// classes that have changed. Unreadable files are left as they are: they may be of another
    /// source than the published one.
    pub(super) fn join_due_sealed(&mut self) -> Result<()> {
        for (class, files) in self.sealed_to_join(Due::Now, |class| self.changed.contains(&class)) {
            match self.join_files(class, files) {
                Err(Error::Corrupt { .. } | Error::ShardFile { .. }) => {}
                joined => joined?,
            }
        }
        Ok(())
    }

    /// Writes files of sealed records anew, of which the records are at most `records_max`, or those of
    /// one new file. Returns how many, and whether there are more; nothing, and does nothing, if
    /// `stop` has said so.
    pub(super) fn join_sealed(
        &mut self,
        due: Due,
        records_max: u64,
        stop: impl Fn() -> bool,
    ) -> Result<Option<(usize, bool)>> {
        let (mut files, mut records) = (0, 0);
        for (class, joined) in self.sealed_to_join(due, |_| true) {
            records += joined.iter().map(|file| file.records).sum::<u64>();
            if files > 0 && records > records_max {
                return Ok(Some((files, true)));
            }
            if stop() {
                return Ok(None);
            }
            files += joined.len();
            self.join_files(class, joined)?;
        }
        Ok(Some((files, false)))
    }

    /// Returns which files of a class become one each.
    fn sealed_to_join(
        &self,
        due: Due,
        is_wanted: impl Fn(ClassId) -> bool,
    ) -> Vec<(ClassId, Vec<SealedFile>)> {
        let mut all = Vec::new();
        for (&class, held) in self.classes.iter().filter(|(class, _)| is_wanted(**class)) {
            let mut by_source: BTreeMap<SourceId, Vec<SealedFile>> = BTreeMap::new();
            for file in &held.manifest.sealed {
                by_source.entry(file.source).or_default().push(file.clone());
            }
            let joined = by_source.into_values().flat_map(|files| to_join(files, due));
            all.extend(joined.map(|files| (class, files)));
        }
        all
    }

    /// Writes files of a class as one, if anything is left of them.
    fn join_files(&mut self, class: ClassId, files: Vec<SealedFile>) -> Result<()> {
        let gone: BTreeSet<String> = files.iter().map(|file| file.id.clone()).collect();
        let directory = self.dirs.directory(&self.table, class);
        let files: Vec<Sealed> =
            files.into_iter().map(|file| Sealed::new(file, directory.clone())).collect();
        let joined = sealed::join(&self.options.disk, self.new_id(), &files)?;
        let Held { manifest, .. } = self.classes.entry(class).or_default();
        manifest.sealed.retain(|file| !gone.contains(&file.id));
        manifest.sealed.extend(joined);
        self.changed.insert(class);
        Ok(())
    }
}

/// Returns which files of a source in a class become one each. Small ones are joined such that each
/// that stays has at least twice as many bytes as all smaller ones together, so that a record is
/// written anew seldom; or all of them, if that is asked for. Others are written anew that have too
/// many dead records, or, if that is asked for, any.
fn to_join(mut files: Vec<SealedFile>, due: Due) -> Vec<Vec<SealedFile>> {
    files.sort_by_key(|file| file.bytes);
    let small = files.partition_point(|file| file.bytes < JOINED_BYTES_MAX);
    let count = match due {
        Due::Any if small > 1 => small,
        Due::Now if files.len() > FILES_MIN => {
            let (mut count, mut below) = (0, 0);
            for (at, file) in files[..small].iter().enumerate() {
                count = if at > 0 && file.bytes < 2 * below { at + 1 } else { count };
                below += file.bytes;
            }
            count
        }
        _ => 0,
    };
    let rest = files.split_off(count);
    let mut joined = Vec::from_iter(Some(files).filter(|files| !files.is_empty()));
    let now_ns = now_ns();
    for file in rest {
        let is_old = file.dead_since_ns.is_some_and(|since| now_ns - since > DEAD_FOR_MAX_NS);
        let is_wasteful = file.dead_records > DEAD_MAX.max(file.records / 16)
            || file.dead_records * 2 > file.records;
        if file.dead_records > 0 && (is_wasteful || is_old || due == Due::Any) {
            joined.push(vec![file]);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::PackedList;

    fn file(bytes: u64, dead_records: u64) -> SealedFile {
        let (id, sums, dead) = (format!("1-{bytes}"), PackedList::default(), PackedList::default());
        let dead_since_ns = (dead_records > 0).then(now_ns);
        SealedFile {
            id,
            source: SourceId(1),
            records: 100,
            bytes,
            sums,
            dead,
            dead_records,
            dead_since_ns,
        }
    }

    fn sizes(files: &[(u64, u64)], due: Due) -> Vec<Vec<u64>> {
        let files = files.iter().map(|&(bytes, dead)| file(bytes, dead)).collect();
        let joined = to_join(files, due);
        joined.iter().map(|files| files.iter().map(|file| file.bytes).collect()).collect()
    }

    #[test]
    fn records_are_written_anew_seldom() {
        assert!(sizes(&[(5, 0), (6, 50)], Due::Now).is_empty());
        assert_eq!(sizes(&[(5, 0), (6, 51)], Due::Now), [[6]]);
        assert_eq!(sizes(&[(5, 0), (6, 0), (50, 1)], Due::Any), [[5, 6, 50]]);
        assert!(sizes(&[(5, 0), (JOINED_BYTES_MAX, 0)], Due::Any).is_empty());
        let few: Vec<_> = (0..FILES_MIN as u64).map(|at| (100 + at, 0)).collect();
        assert!(sizes(&few, Due::Now).is_empty());
        let large = SealedFile { records: 1_000_000, ..file(8 * JOINED_BYTES_MAX, DEAD_MAX + 1) };
        assert!(to_join(vec![large], Due::Now).is_empty());
        let huge = JOINED_BYTES_MAX;
        let many: Vec<_> = few.iter().copied().chain([(10_000, 0), (huge, 0), (huge, 0)]).collect();
        assert_eq!(sizes(&many, Due::Now), [few.iter().map(|file| file.0).collect::<Vec<_>>()]);

        // However many updates there are, there are few files, and little is written.
        let (mut files, mut written) = (vec![(100_000, 0)], 0);
        for _ in 0..10_000 {
            files.push((10, 0));
            for joined in sizes(&files, Due::Now) {
                let bytes: u64 = joined.iter().sum();
                files.retain(|file| !joined.contains(&file.0));
                files.push((bytes, 0));
                written += bytes;
            }
            assert!(files.len() <= FILES_MIN + 16, "{files:?}");
        }
        assert_eq!(files.iter().map(|file| file.0).sum::<u64>(), 200_000);
        assert!(written < 200_000 * 20, "{written}");
    }
}
