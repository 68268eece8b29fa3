//! POSIX access control lists in the form in which Linux keeps them in `system.posix_acl_access`.
//!
//! Layout (linux/posix_acl_xattr.h, all little endian): a `u32` version, 2; then any number of
//! entries of 8 bytes: `u16` tag, `u16` permission bits (r 4, w 2, x 1), `u32` id (meaningful for
//! named entries only).

const VERSION: u32 = 2;
const UNDEFINED_ID: u32 = u32::MAX;

/// The user or group that one entry of an ACL concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclTag {
    /// The owner of the file.
    Owner,
    /// A named user.
    User(u32),
    /// The owning group of the file.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// The most that named users and all groups may have.
    Mask,
    /// Everybody else.
    Other,
}

/// One entry of an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The user or group that it concerns.
    pub tag: AclTag,
    /// Permission bits: r 4, w 2, x 1.
    pub permissions: u16,
}

/// An access ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The entries, in the order of the attribute.
    pub entries: Vec<AclEntry>,
}

/// Why the bytes of an ACL attribute could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// The length is not 4 + 8n.
    #[error("an ACL attribute of {0} bytes, expected 4 and a multiple of 8")]
    Length(usize),
    /// Another version than 2.
    #[error("ACL version {0}, expected 2")]
    Version(u32),
    /// A tag that Linux does not define.
    #[error("unknown ACL tag {0:#x}")]
    Tag(u16),
}

impl Acl {
    /// Name of the extended attribute that holds a file's access ACL.
    pub const XATTR_NAME: &'static str = "system.posix_acl_access";

    /// Decodes the value of the attribute.
    pub fn decode(bytes: &[u8]) -> Result<Self, AclError> {
        let Some((version, entries)) = bytes.split_first_chunk::<4>() else {
            return Err(AclError::Length(bytes.len()));
        };
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(AclError::Version(version));
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(AclError::Length(bytes.len()));
        }
        let entries = entries
            .iter()
            .map(|&[t0, t1, p0, p1, i0, i1, i2, i3]| {
                let id = u32::from_le_bytes([i0, i1, i2, i3]);
                let tag = match u16::from_le_bytes([t0, t1]) {
                    0x01 => AclTag::Owner,
                    0x02 => AclTag::User(id),
                    0x04 => AclTag::OwningGroup,
                    0x08 => AclTag::Group(id),
                    0x10 => AclTag::Mask,
                    0x20 => AclTag::Other,
                    unknown => return Err(AclError::Tag(unknown)),
                };
                Ok(AclEntry { tag, permissions: u16::from_le_bytes([p0, p1]) & 7 })
            })
            .collect::<Result<_, _>>()?;
        Ok(Acl { entries })
    }

    /// Encodes the ACL as the value of the attribute. The kernel wants the entries in the order of
    /// [`AclTag`]'s variants, named ones by id.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + 8 * self.entries.len());
        bytes.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id) = match entry.tag {
                AclTag::Owner => (0x01_u16, UNDEFINED_ID),
                AclTag::User(id) => (0x02, id),
                AclTag::OwningGroup => (0x04, UNDEFINED_ID),
                AclTag::Group(id) => (0x08, id),
                AclTag::Mask => (0x10, UNDEFINED_ID),
                AclTag::Other => (0x20, UNDEFINED_ID),
            };
            bytes.extend(tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_survives_a_round_trip() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let acl = Acl {
            entries: vec![
                entry(AclTag::Owner, 7),
                entry(AclTag::User(1000), 5),
                entry(AclTag::OwningGroup, 5),
                entry(AclTag::Group(20), 0),
                entry(AclTag::Mask, 5),
                entry(AclTag::Other, 0),
            ],
        };
        assert_eq!(Acl::decode(&acl.encode()), Ok(acl));
    }

    #[test]
    fn malformed_bytes_are_errors() {
        assert_eq!(Acl::decode(&[2, 0]), Err(AclError::Length(2)));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(AclError::Version(1)));
        assert_eq!(Acl::decode(&[2, 0, 0, 0, 1]), Err(AclError::Length(5)));
        assert_eq!(Acl::decode(&[2, 0, 0, 0, 3, 0, 7, 0, 0, 0, 0, 0]), Err(AclError::Tag(3)));
    }
}
