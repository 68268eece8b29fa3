//! Objects in memory, for tests and for tables that need not outlast the process.

use super::{Append, Created, Listed, Storage};
use crate::error::{Error, Result};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Range;

/// Objects in memory.
#[derive(Default)]
pub struct MemoryStorage(RwLock<BTreeMap<String, Bytes>>);

impl Storage for MemoryStorage {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.read(name)?;
        let range = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let range = range.filter(|(start, end)| start <= end && *end <= bytes.len());
        let (start, end) = range.ok_or_else(|| Error::corrupt(name, "shorter than it must be"))?;
        Ok(bytes.slice(start..end))
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.0.read().get(name).cloned().ok_or_else(|| Error::NotFound(name.into()))
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let mut objects = self.0.write();
        if objects.contains_key(name) {
            return Ok(Created::ThereWasOne);
        }
        objects.insert(name.into(), bytes);
        Ok(Created::Now)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let objects = self.0.read();
        let from = objects.range(prefix.max(after).to_string()..);
        let below = from.take_while(|(name, _)| name.starts_with(prefix));
        let after = below.filter(|(name, _)| name.as_str() > after);
        Ok(after
            .map(|(name, bytes)| Listed { name: name.clone(), size_bytes: bytes.len() as u64 })
            .collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.write().remove(name);
        Ok(())
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}
