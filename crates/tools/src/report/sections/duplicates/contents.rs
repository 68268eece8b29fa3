//! Comparison of the contents of candidates for duplicates.
//!
//! 1. Groups of files of one size are looked at by the space that duplicates among them could take,
//!    largest first.
//! 2. The first 64 KiB of each file are hashed, then the whole of those that are alike so far.
//! 3. The search ends when enough groups are found that no other can exceed.
//!
//! Files are read by the permissions of the caller, through no symbolic link, and only if they are
//! as they were when they were scanned. BLAKE3 is used, whose hashes nobody can make collide.
//!
//! Memory: some 24 bytes for each file of a size, and the paths of [`FILES_AT_ONCE`].

use super::{DuplicateGroup, DuplicateRule, Duplicates, paths_of_group};
use crate::error::Result;
use crate::find::OthersMounts;
use crate::report::details::{self, EntryDetails};
use crate::report::parts::CoveredFile;
use canopy_model::unescape;
use canopy_read::work::listed;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, fstat, openat2, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Files whose paths are in memory at a time.
const FILES_AT_ONCE: usize = 1 << 16;

/// Bytes of a file that are hashed first.
const BEGINNING_BYTES: u64 = 64 << 10;

/// Bytes that are read at a time.
const BLOCK_BYTES: u64 = 64 << 10;

/// Files of one size, one for each inode.
pub(super) struct SizeGroup {
    pub(super) size_bytes: i64,
    /// Space on disk that is saved if all files but one go.
    pub(super) wasted_bytes: i64,
    /// Numbers of rows among those of all parts, ascending.
    pub(super) rows: Vec<u32>,
}

/// Finds the groups of equal contents that take most space, at most `top`.
pub(super) fn compared(
    parts: &[CoveredFile<'_>],
    mut groups: Vec<SizeGroup>,
    top: usize,
    threads: usize,
) -> Result<Duplicates> {
    groups.sort_by_key(|group| std::cmp::Reverse((group.wasted_bytes, group.size_bytes)));
    let mut found = Duplicates {
        not_read: Some(0),
        not_compared: Some(0),
        rule: DuplicateRule::Contents,
        ..Duplicates::default()
    };
    let others = OthersMounts::read();
    let mut comparison = Comparison { parts, threads, others, not_read: 0 };
    let mut groups = groups.into_iter();
    while let Some(group) = groups.next() {
        let is_enough = top.checked_sub(1).and_then(|last| found.largest.get(last));
        if is_enough.is_some_and(|least| least.wasted_bytes >= group.wasted_bytes) {
            let left = group.rows.len() + groups.map(|group| group.rows.len()).sum::<usize>();
            found.not_compared = Some(left as i64);
            break;
        }
        let size_bytes = group.size_bytes;
        for rows in comparison.equal(group.rows, BEGINNING_BYTES.min(size_bytes as u64))? {
            let same = match size_bytes as u64 > BEGINNING_BYTES {
                true => comparison.equal(rows, u64::MAX)?,
                false => vec![rows],
            };
            for rows in same {
                found.add(size_bytes, rows, &comparison, top)?;
            }
        }
    }
    found.not_read = Some(comparison.not_read);
    Ok(found)
}

impl Duplicates {
    /// Counts files of equal contents, and keeps them if they are among the largest groups.
    fn add(
        &mut self,
        bytes: i64,
        rows: Vec<u32>,
        comparison: &Comparison<'_>,
        top: usize,
    ) -> Result<()> {
        let (mut entries, mut sum, mut most) = (Vec::new(), 0_i128, 0);
        for rows in rows.chunks(FILES_AT_ONCE) {
            let more = details::of_rows(comparison.parts, rows, comparison.threads)?;
            for entry in more.values() {
                let disk_bytes = entry.attributes.blocks.saturating_mul(512);
                sum += i128::from(disk_bytes);
                most = most.max(disk_bytes);
            }
            entries.extend(more.into_values());
            entries.sort_by(EntryDetails::cmp_path);
            entries.truncate(paths_of_group(top));
        }
        let wasted_bytes = i64::try_from(sum - i128::from(most)).unwrap_or(i64::MAX);
        let files = rows.len() as i64;
        self.groups += 1;
        self.files += files;
        self.wasted_bytes = self.wasted_bytes.saturating_add(wasted_bytes);
        let paths = entries.iter().map(EntryDetails::path).collect();
        let group =
            DuplicateGroup { name: None, bytes, mtime_ns: None, files, wasted_bytes, paths };
        let key = |group: &DuplicateGroup| (group.wasted_bytes, group.bytes);
        let before = |other: &DuplicateGroup| {
            key(other) > key(&group) || (key(other) == key(&group) && other.paths < group.paths)
        };
        self.largest.insert(self.largest.partition_point(before), group);
        self.largest.truncate(top);
        Ok(())
    }
}

struct Comparison<'a> {
    parts: &'a [CoveredFile<'a>],
    threads: usize,
    /// Files there are not read.
    others: OthersMounts,
    /// Files that could not be read, or have changed since they were scanned.
    not_read: i64,
}

impl Comparison<'_> {
    /// Divides files into groups whose first bytes are equal, of at least two files each.
    fn equal(&mut self, rows: Vec<u32>, bytes: u64) -> Result<Vec<Vec<u32>>> {
        let mut hashes: Vec<([u8; 16], u32)> = Vec::with_capacity(rows.len());
        for rows in rows.chunks(FILES_AT_ONCE) {
            let entries: Vec<(u32, EntryDetails)> =
                details::of_rows(self.parts, rows, self.threads)?.into_iter().collect();
            let hashed = listed(self.threads, &entries, |(row, entry)| {
                Ok::<_, crate::error::Error>(vec![(hash(entry, bytes, &self.others).ok(), *row)])
            })?;
            for (hash, row) in hashed {
                match hash {
                    Some(hash) => hashes.push((hash, row)),
                    None => self.not_read += 1,
                }
            }
        }
        hashes.sort_unstable();
        let groups = hashes.chunk_by(|a, b| a.0 == b.0).filter(|group| group.len() > 1);
        Ok(groups.map(|group| group.iter().map(|(_, row)| *row).collect()).collect())
    }
}

/// Hashes the first bytes of a file: its blocks that are not all zeros, each with its place. So holes
/// are not read, and a file is equal to its copy without holes.
fn hash(entry: &EntryDetails, bytes: u64, others: &OthersMounts) -> io::Result<[u8; 16]> {
    let file = open(entry, others)?;
    let end = bytes.min(entry.attributes.size_bytes as u64);
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; BLOCK_BYTES as usize];
    let mut at = 0;
    while at < end {
        match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => at = data / BLOCK_BYTES * BLOCK_BYTES,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            // The file system does not know holes.
            Err(_) => {}
        }
        let wanted = end.saturating_sub(at).min(BLOCK_BYTES) as usize;
        let block = &mut block[..wanted];
        file.read_exact_at(block, at)?;
        if block.iter().any(|&byte| byte != 0) {
            hasher.update(&at.to_le_bytes());
            hasher.update(block);
        }
        at += BLOCK_BYTES;
    }
    if !is_as_scanned(&fstat(&file)?, entry) {
        return Err(io::Error::other("the file has changed"));
    }
    let mut short = [0; 16];
    hasher.finalize_xof().fill(&mut short);
    Ok(short)
}

/// Opens a file that is as it was when it was scanned.
fn open(entry: &EntryDetails, others: &OthersMounts) -> io::Result<File> {
    let path = unescape(&entry.path()).into_owned();
    if others.has(&path) {
        return Err(io::Error::other("the file system is another user's"));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = |flags| openat2(CWD, &path[..], flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    // Only owners may leave the time of access alone.
    let file = File::from(open(flags | OFlags::NOATIME).or_else(|_| open(flags))?);
    if is_as_scanned(&fstat(&file)?, entry) {
        Ok(file)
    } else {
        Err(io::Error::other("the file has changed"))
    }
}

fn is_as_scanned(stat: &Stat, entry: &EntryDetails) -> bool {
    let known = &entry.attributes;
    let mtime_ns = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_ino == known.ino
        && stat.st_size == known.size_bytes
        && mtime_ns == i128::from(known.mtime_ns)
}
