//! Keeping indexes of attributes: which entries a change adds and removes. They are in the batch of
//! the change, so that they always agree with the records. Files without a name have none.

use crate::error::Result;
use crate::records::attributes::Attribute;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{EntryName, FileId};
use crate::records::tablet::Tablet;
use canopy_store::Batch;

/// Returns whether an attribute is one of names, of which a file may have several.
pub(crate) fn is_of_names(attribute: Attribute) -> bool {
    matches!(attribute, Attribute::Extension | Attribute::Name)
}

impl Tablet {
    /// Adds to `batch` what indexes have of an inode, and takes away what they had `before`.
    pub(crate) fn index_inode(
        &self,
        batch: &mut Batch,
        before: Option<&Inode>,
        after: Option<&Inode>,
    ) -> Result<()> {
        let configured = self.configured();
        for attribute in &configured.indexes.attributes {
            if is_of_names(*attribute) {
                continue;
            }
            // A directory in several parts is found where its first partition is.
            let is_whole = |inode: &&Inode| !inode.has(flag::ACCESS_HALF | flag::FURTHER);
            let entry = |inode: &Inode| {
                let value = attribute.value(inode, b"");
                value.map(|value| attribute.entry(&value, inode.id))
            };
            let (old, new) =
                (before.filter(is_whole).and_then(entry), after.filter(is_whole).and_then(entry));
            // A builder of an index may have passed the old place of the file, and not see the new
            // one.
            if old == new && !configured.building.has(*attribute) {
                continue;
            }
            if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
                batch.delete(old.as_ref())?;
            }
            if let Some(new) = new {
                batch.put(new.as_ref(), b"")?;
            }
        }
        Ok(())
    }

    /// Adds to `batch` what indexes have of a name, and takes away what they had of the name
    /// `before`. A file with several names keeps what another one has: `is_linked`. A directory whose
    /// content half lies apart is indexed there, with its name.
    pub(crate) fn index_name(
        &self,
        batch: &mut Batch,
        inode: &Inode,
        before: Option<EntryName<'_>>,
        after: Option<&[u8]>,
        is_linked: bool,
    ) -> Result<()> {
        let configured = self.configured();
        let attributes = &configured.indexes.attributes;
        if inode.has(flag::ACCESS_HALF) || !attributes.iter().copied().any(is_of_names) {
            return Ok(());
        }
        for attribute in attributes.iter().filter(|one| is_of_names(**one)) {
            let entry = |name: &[u8]| {
                let value = attribute.value(inode, name);
                value.map(|value| attribute.entry(&value, inode.id))
            };
            let (old, new) = (before.and_then(|before| entry(before.name)), after.and_then(entry));
            if let (Some(before), Some(old)) = (before, old.filter(|old| new.as_ref() != Some(old)))
            {
                let mut is_kept = false;
                if is_linked {
                    self.each_name(inode.id, |parent, name| {
                        is_kept = EntryName::new(parent, name) != before
                            && entry(name).as_ref() == Some(&old);
                        !is_kept
                    })?;
                }
                if !is_kept {
                    batch.delete(old.as_ref())?;
                }
            }
            if let Some(new) = new {
                batch.put(new.as_ref(), b"")?;
            }
        }
        Ok(())
    }

    /// Adds to `batch` what the index of an extended attribute has, if there is one.
    pub(crate) fn index_xattr(
        &self,
        batch: &mut Batch,
        id: FileId,
        name: &[u8],
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<()> {
        let configured = self.configured();
        let entry = |value| configured.indexes.xattr_entry(name, value, id);
        if let Some(old) = before.and_then(entry) {
            batch.delete(old.as_ref())?;
        }
        if let Some(new) = after.and_then(entry) {
            batch.put(new.as_ref(), b"")?;
        }
        Ok(())
    }
}
