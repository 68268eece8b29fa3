//! Lists that stay encoded until somebody asks for them.
//!
//! Every command reads the manifests of all shards that its user may see, and asks for the details
//! of few of them.
//!
//! Checksums, covers and hard links stay packed until they are needed. The documents around them
//! are Postcard: when the catalog was JSON, it took a third of a user's `du -s`.

use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::OnceLock;

/// A list, encoded by Postcard. An empty one has no bytes.
#[derive(Clone)]
pub(crate) struct PackedList<T> {
    bytes: Box<[u8]>,
    list: OnceLock<Vec<T>>,
}

impl<T: Serialize> PackedList<T> {
    /// Encodes a list.
    pub(crate) fn new(list: Vec<T>) -> postcard::Result<Self> {
        let bytes =
            if list.is_empty() { Vec::new() } else { postcard::to_extend(&list, Vec::new())? };
        Ok(PackedList { bytes: bytes.into(), list: OnceLock::from(list) })
    }
}

impl<T: DeserializeOwned> PackedList<T> {
    /// Returns the list. Decoded at most once, or at most once by each thread that asks at the same
    /// time.
    pub(crate) fn get(&self) -> postcard::Result<&[T]> {
        if let Some(list) = self.list.get() {
            return Ok(list);
        }
        let list =
            if self.bytes.is_empty() { Vec::new() } else { postcard::from_bytes(&self.bytes)? };
        Ok(self.list.get_or_init(|| list))
    }
}

impl<T> PackedList<T> {
    /// Returns whether it has nothing in it; decodes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<T> Default for PackedList<T> {
    fn default() -> Self {
        PackedList { bytes: Box::default(), list: OnceLock::new() }
    }
}

impl<T> PartialEq for PackedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T: fmt::Debug + DeserializeOwned> fmt::Debug for PackedList<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}

impl<T> Serialize for PackedList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

impl<'de, T> Deserialize<'de> for PackedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_bytes(BytesVisitor)
            .map(|bytes| PackedList { bytes, list: OnceLock::new() })
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Box<[u8]>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_as_it_was() {
        for list in [vec![], vec![(7_u32, "a".to_owned()), (9, String::new())]] {
            let packed = PackedList::new(list.clone()).unwrap();
            let bytes = postcard::to_extend(&packed, Vec::new()).unwrap();
            let read: PackedList<(u32, String)> = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read.is_empty(), list.is_empty());
            assert_eq!(read.get().unwrap(), list);
            assert_eq!(read, packed);
        }
    }

    #[test]
    fn undecodable_data_is_an_error() {
        let bytes =
            postcard::to_extend(&PackedList::new(vec![1_u8, 2]).unwrap(), Vec::new()).unwrap();
        let read: PackedList<(u64, String)> = postcard::from_bytes(&bytes).unwrap();
        assert!(read.get().is_err());
    }
}
