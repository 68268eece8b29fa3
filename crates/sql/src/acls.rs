//! The table `acls`: POSIX ACLs, which the index keeps as extended attributes, an entry a row.

use super::decoded::{DecodedColumn, DecodedRows, Decoder, XattrValue};
use arrow::datatypes::DataType;
use canopy_model::{Acl, AclTag};
use canopy_text::{group_name, user_name};

/// A row for each entry of an ACL; a value that is not an ACL gives none. The columns: whether the
/// ACL is that of the entry or the default one of a directory; the kind of user or group; its id;
/// its name; the permissions, as three letters.
pub(super) static ACLS: Decoder = Decoder {
    keys: &[Acl::XATTR_NAME, DEFAULT],
    columns: &[
        DecodedColumn::new("kind", DataType::Utf8),
        DecodedColumn::new("tag", DataType::Utf8),
        DecodedColumn::new("id", DataType::UInt32).or_null(),
        DecodedColumn::new("who", DataType::Utf8).or_null(),
        DecodedColumn::new("permissions", DataType::Utf8),
    ],
    decode,
};

/// The attribute with the default ACL of a directory.
const DEFAULT: &str = "system.posix_acl_default";

fn decode(xattr: &XattrValue<'_>, rows: &mut DecodedRows) -> Option<()> {
    let kind = if xattr.key == DEFAULT { "default" } else { "access" };
    for entry in Acl::decode(xattr.value).unwrap_or_default().entries {
        let (tag, id, who) = match entry.tag {
            AclTag::Owner => ("owner", None, None),
            AclTag::User(uid) => ("user", Some(uid), user_name(uid)),
            AclTag::OwningGroup => ("owning_group", None, None),
            AclTag::Group(gid) => ("group", Some(gid), group_name(gid)),
            AclTag::Mask => ("mask", None, None),
            AclTag::Other => ("other", None, None),
        };
        let permissions = letters(entry.permissions);
        rows.push([kind.into(), tag.into(), id.into(), who.into(), permissions.into()]);
    }
    Some(())
}

fn letters(permissions: u16) -> String {
    let letter = |bit: u16, letter: char| if permissions & bit != 0 { letter } else { '-' };
    [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')].iter().collect()
}
