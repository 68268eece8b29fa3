//! Items by file: in memory while they are few, then in files without names, one for each share of the
//! ids. Each of them is read as a whole later.

use super::{Item, Items};
use crate::error::{Error, Result};
use canopy_namespace::FileId;
use canopy_partition::ServerId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

/// Bytes that stay in memory.
const MEMORY_BYTES: usize = 64 << 20;

/// Shares of the ids.
const BUCKETS: usize = 64;

/// Items of all files.
pub(super) struct Buckets {
    buckets: Vec<Bucket>,
    bytes: usize,
}

#[derive(Default)]
struct Bucket {
    /// Encoded items, each with its length, that are not in the file yet.
    memory: Vec<u8>,
    file: Option<File>,
}

impl Default for Buckets {
    fn default() -> Self {
        let buckets = Vec::from_iter((0..BUCKETS).map(|_| Bucket::default()));
        Buckets { buckets, bytes: 0 }
    }
}

impl Buckets {
    /// Adds an item of a file.
    pub(super) fn add(&mut self, id: FileId, server: ServerId, item: &Item) -> Result<()> {
        // Ids of one block follow each other: the multiplication spreads them.
        let bucket = (id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % BUCKETS;
        // Bytes in memory cannot fail to be written.
        let encoded = postcard::to_extend(&(id, server, item), Vec::new()).unwrap_or_default();
        let memory = &mut self.buckets[bucket].memory;
        memory.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
        memory.extend_from_slice(&encoded);
        self.bytes += encoded.len() + 4;
        if self.bytes > MEMORY_BYTES {
            self.buckets.iter_mut().try_for_each(Bucket::spill).map_err(io)?;
            self.bytes = 0;
        }
        Ok(())
    }

    /// Passes the items of each file on, file by file, and forgets them.
    pub(super) fn each(
        &mut self,
        pass: &mut dyn FnMut(FileId, &Items) -> Result<()>,
    ) -> Result<()> {
        for bucket in &mut self.buckets {
            let mut bytes = Vec::new();
            if let Some(mut file) = bucket.file.take() {
                file.seek(SeekFrom::Start(0)).map_err(io)?;
                file.read_to_end(&mut bytes).map_err(io)?;
            }
            bytes.append(&mut bucket.memory);
            let mut files: BTreeMap<FileId, Items> = BTreeMap::new();
            let mut rest = &bytes[..];
            while let Some((length, behind)) = rest.split_first_chunk() {
                let (encoded, behind) = behind
                    .split_at_checked(u32::from_le_bytes(*length) as usize)
                    .ok_or(Error::Unfit)?;
                let (id, server, item) = postcard::from_bytes(encoded).map_err(|_| Error::Unfit)?;
                files.entry(id).or_default().push((server, item));
                rest = behind;
            }
            for (id, items) in &files {
                pass(*id, items)?;
            }
        }
        Ok(())
    }
}

impl Bucket {
    fn spill(&mut self) -> std::io::Result<()> {
        let file = match self.file.take() {
            Some(file) => self.file.insert(file),
            None => self.file.insert(tempfile::tempfile()?),
        };
        file.write_all(&self.memory)?;
        self.memory = Vec::new();
        Ok(())
    }
}

fn io(source: std::io::Error) -> Error {
    let what = "keep what servers report in a temporary file".into();
    canopy_namespace::Error::Io { what, source }.into()
}
