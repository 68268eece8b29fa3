//! Sources whose roots lie behind gates: what those learn of them who know the passage on the way.
//!
//! Unlike sealed records, which never change, this is in the manifest of the class, sealed anew
//! whenever that of the listers says something else: a source gets another name, or is updated.

use crate::error::{Error, Result};
use crate::manifest::SourceRecord;
use crate::names::{Names, Secret};
use crate::sealed::padded;
use crate::source_id::SourceId;
use canopy_model::AbsolutePath;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A source that a class has sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HiddenSource {
    pub(crate) source: SourceId,
    /// The last passage to its root, absolute and escaped.
    pub(crate) passage: String,
}

/// A source, sealed with the last passage to its root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedSource {
    /// The hash of the passage.
    pub(crate) hash: [u8; 16],
    /// Bytes with which nothing else is sealed.
    pub(crate) salt: [u8; 16],
    /// A [`KnownSource`] in Postcard, with zeros behind it.
    pub(crate) content: Vec<u8>,
}

/// The sealed content of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KnownSource {
    /// Hash of the class of those who may list all gates on the way (`Names::class_hash`). Its
    /// manifest has an equal record.
    pub(crate) listers: [u8; 16],
    pub(crate) record: SourceRecord,
}

impl SealedSource {
    /// Seals a source for a manifest at `manifest`.
    pub(crate) fn new(
        names: &Names,
        manifest: &Path,
        passage: AbsolutePath<'_>,
        salt: [u8; 16],
        source: &KnownSource,
    ) -> Result<Self> {
        let content = postcard::to_extend(source, Vec::new());
        let mut content = content.map_err(Error::encode(manifest))?;
        content.resize(padded(content.len()), 0);
        names.seal(Secret::Source, passage, &salt, &mut content);
        Ok(SealedSource { hash: names.hash(Secret::Source, passage), salt, content })
    }

    /// Opens what is sealed with a passage; `None` if this is not.
    pub(crate) fn open(
        &self,
        names: &Names,
        passage: AbsolutePath<'_>,
    ) -> Option<postcard::Result<KnownSource>> {
        if self.hash != names.hash(Secret::Source, passage) {
            return None;
        }
        let mut content = self.content.clone();
        names.seal(Secret::Source, passage, &self.salt, &mut content);
        Some(postcard::take_from_bytes(&content).map(|(source, _)| source))
    }
}
