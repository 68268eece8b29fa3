//! The table `acls`: POSIX ACLs, which the index keeps as extended attributes, an entry a row.

use super::decoded::{DecodedColumn, DecodedRows, Holds, XattrValue};
use canopy_model::{Acl, AclTag};
use canopy_text::{group_name, user_name};

/// Whether the ACL is that of the entry or the default one of a directory; whom the entry is about;
/// the user or group that it names; the name of that; what is allowed, as three letters.
pub(super) static COLUMNS: [DecodedColumn; 5] = [
    DecodedColumn::new("kind", Holds::Text),
    DecodedColumn::new("tag", Holds::Text),
    DecodedColumn::new("id", Holds::U32).or_null(),
    DecodedColumn::new("who", Holds::Text).or_null(),
    DecodedColumn::new("permissions", Holds::Text),
];

/// Makes a row of each entry of an ACL. A value that is no ACL gives no rows.
pub(super) fn decode(xattr: &XattrValue<'_>, rows: &mut DecodedRows) {
    let kind = match xattr.key {
        "system.posix_acl_access" => "access",
        "system.posix_acl_default" => "default",
        _ => return,
    };
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
}

fn letters(permissions: u16) -> String {
    let letter = |bit: u16, letter: char| if permissions & bit != 0 { letter } else { '-' };
    [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')].iter().collect()
}
