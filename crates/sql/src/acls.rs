//! The table `acls`: POSIX ACLs, which the index keeps as extended attributes, an entry a row.

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Field, UInt32Type};
use canopy_model::{Acl, AclTag, unescape};
use canopy_read::columns::{numbers, strings};
use canopy_text::{group_name, user_name};
use datafusion::error::Result;
use std::sync::Arc;

/// The columns besides those of all tables.
pub(super) fn fields() -> [Field; 5] {
    let text = |name| Field::new(name, DataType::Utf8, true);
    [
        Field::new("kind", DataType::Utf8, false),
        Field::new("tag", DataType::Utf8, false),
        Field::new("id", DataType::UInt32, true),
        text("who"),
        Field::new("permissions", DataType::Utf8, false),
    ]
}

/// The ACLs among a batch of attributes, an entry a row. A value that is no ACL gives no rows.
pub(super) fn decoded(batch: &RecordBatch) -> Result<RecordBatch> {
    let [paths, names, keys, values] =
        ["path", "name", "key", "value"].map(|name| strings(batch, name));
    let modes = numbers::<UInt32Type>(batch, "mode").values();
    let mut rows = Vec::new();
    for at in 0..batch.num_rows() {
        let kind = match keys.value(at) {
            "system.posix_acl_access" => "access",
            "system.posix_acl_default" => "default",
            _ => continue,
        };
        let acl = Acl::decode(&unescape(values.value(at))).unwrap_or_default();
        rows.extend(acl.entries.into_iter().map(|entry| (at, kind, entry)));
    }
    let texts = |text: &dyn Fn(usize) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..rows.len()).map(text)))
    };
    let described = rows.iter().map(|(_, _, entry)| match entry.tag {
        AclTag::Owner => ("owner", None, None),
        AclTag::User(uid) => ("user", Some(uid), user_name(uid)),
        AclTag::OwningGroup => ("owning_group", None, None),
        AclTag::Group(gid) => ("group", Some(gid), group_name(gid)),
        AclTag::Mask => ("mask", None, None),
        AclTag::Other => ("other", None, None),
    });
    let described: Vec<_> = described.collect();
    let letters = |bits: u16| {
        let letter = |bit: u16, letter: char| if bits & bit != 0 { letter } else { '-' };
        [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')].iter().collect::<String>()
    };
    let columns: [(&str, ArrayRef); 8] = [
        ("path", texts(&|row| paths.value(rows[row].0).to_owned())),
        ("name", texts(&|row| names.value(rows[row].0).to_owned())),
        ("mode", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| modes[row.0])))),
        ("kind", texts(&|row| rows[row].1.to_owned())),
        ("tag", texts(&|row| described[row].0.to_owned())),
        ("id", Arc::new(described.iter().map(|entry| entry.1).collect::<UInt32Array>())),
        ("who", Arc::new(described.iter().map(|entry| entry.2.clone()).collect::<StringArray>())),
        ("permissions", texts(&|row| letters(rows[row].2.permissions))),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.map(|(name, column)| (name, column, true)),
    )?)
}
