//! The table `acls`: POSIX ACLs, which the index keeps as extended attributes, an entry a row.

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use canopy_index::column::{KEY, VALUE};
use canopy_model::{Acl, AclTag, unescape};
use canopy_text::{group_name, user_name};
use datafusion::error::Result;
use std::sync::Arc;

/// A column besides those that values of extended attributes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AclColumn {
    /// Whether the ACL is that of the entry or the default one of a directory.
    Kind,
    /// Whom the entry is about.
    Tag,
    /// The user or group that it names.
    Id,
    /// The name of that.
    Who,
    /// What is allowed, as three letters.
    Permissions,
}

/// An entry of an ACL.
struct Row {
    /// Number of the value that it is in.
    value: u32,
    kind: &'static str,
    tag: &'static str,
    id: Option<u32>,
    who: Option<String>,
    permissions: String,
}

impl AclColumn {
    const ALL: [AclColumn; 5] =
        [AclColumn::Kind, AclColumn::Tag, AclColumn::Id, AclColumn::Who, AclColumn::Permissions];

    fn name(self) -> &'static str {
        match self {
            AclColumn::Kind => "kind",
            AclColumn::Tag => "tag",
            AclColumn::Id => "id",
            AclColumn::Who => "who",
            AclColumn::Permissions => "permissions",
        }
    }

    /// Returns the column as Arrow has it.
    pub(super) fn field(self) -> Field {
        let data_type = if self == AclColumn::Id { DataType::UInt32 } else { DataType::Utf8 };
        Field::new(self.name(), data_type, matches!(self, AclColumn::Id | AclColumn::Who))
    }

    /// Returns its values in a batch of [`decode`].
    pub(super) fn array(self, batch: &RecordBatch) -> canopy_index::Result<&ArrayRef> {
        batch.column_by_name(self.name()).ok_or(canopy_index::Error::NotRead(self.name()))
    }

    fn of(self, rows: &[Row]) -> ArrayRef {
        let texts = |text: fn(&Row) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(text)))
        };
        match self {
            AclColumn::Kind => texts(|row| row.kind),
            AclColumn::Tag => texts(|row| row.tag),
            AclColumn::Id => Arc::new(rows.iter().map(|row| row.id).collect::<UInt32Array>()),
            AclColumn::Who => {
                Arc::new(rows.iter().map(|row| row.who.as_deref()).collect::<StringArray>())
            }
            AclColumn::Permissions => texts(|row| &row.permissions),
        }
    }
}

/// Makes a row of each entry of the ACLs among a batch of values, with the columns of the value and
/// those of [`AclColumn`]. A value that is no ACL gives no rows.
pub(super) fn decode(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = rows(batch).map_err(super::tables::external)?;
    let values = UInt32Array::from_iter_values(rows.iter().map(|row| row.value));
    let taken = take_record_batch(batch, &values)?;
    let mut fields = taken.schema().fields().to_vec();
    let mut columns = taken.columns().to_vec();
    for column in AclColumn::ALL {
        fields.push(Arc::new(column.field()));
        columns.push(column.of(&rows));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn rows(batch: &RecordBatch) -> canopy_index::Result<Vec<Row>> {
    let (keys, values) = (KEY.of(batch)?, VALUE.of(batch)?);
    let mut rows = Vec::new();
    for at in 0..keys.len() {
        let kind = match keys.value(at) {
            "system.posix_acl_access" => "access",
            "system.posix_acl_default" => "default",
            _ => continue,
        };
        let acl = Acl::decode(&unescape(values.value(at))).unwrap_or_default();
        rows.extend(acl.entries.into_iter().map(|entry| {
            let (tag, id, who) = match entry.tag {
                AclTag::Owner => ("owner", None, None),
                AclTag::User(uid) => ("user", Some(uid), user_name(uid)),
                AclTag::OwningGroup => ("owning_group", None, None),
                AclTag::Group(gid) => ("group", Some(gid), group_name(gid)),
                AclTag::Mask => ("mask", None, None),
                AclTag::Other => ("other", None, None),
            };
            Row { value: at as u32, kind, tag, id, who, permissions: letters(entry.permissions) }
        }));
    }
    Ok(rows)
}

fn letters(permissions: u16) -> String {
    let letter = |bit: u16, letter: char| if permissions & bit != 0 { letter } else { '-' };
    [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')].iter().collect()
}
