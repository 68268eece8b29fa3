//! Conditions (`canopy_query`) judged by columns of an index: the columns that they ask for, the
//! outcomes that bounds of row groups leave, and the rows of a unit that may pass.
//!
//! Attributes alone are judged here. A test of a name, a path, a target or an extended attribute
//! may have either outcome, so that a condition never loses a row.

use crate::error::Result;
use crate::inode::InodeColumns;
use crate::plan::{Unit, push_row};
use canopy_index::column::{ATIME, BLOCKS, BTIME, CTIME, GID, INO, MODE, MTIME, NLINK, SIZE, UID};
use canopy_index::{ColumnId, Columns, FileKind, RowRange};
use canopy_model::{Attributes, FileType};
use canopy_query::{
    AttributeTest, Candidate, Expression, Field, Outcomes, Span, Test, TextField, Types,
};
use std::convert::Infallible;

/// Fields with the columns that have their values. An index does not know projects.
const COLUMNS: [(Field, ColumnId); 11] = [
    (Field::Size, SIZE.id()),
    (Field::Blocks, BLOCKS.id()),
    (Field::Mode, MODE.id()),
    (Field::Uid, UID.id()),
    (Field::Gid, GID.id()),
    (Field::Links, NLINK.id()),
    (Field::Inode, INO.id()),
    (Field::Mtime, MTIME.id()),
    (Field::Ctime, CTIME.id()),
    (Field::Atime, ATIME.id()),
    (Field::Btime, BTIME.id()),
];

/// Bits of the mode of a directory.
const DIRECTORY: u32 = 0o040_000;

/// Returns the column that has the values of a field.
pub fn column_of(field: Field) -> Option<ColumnId> {
    COLUMNS.iter().find(|(known, _)| *known == field).map(|(_, column)| *column)
}

/// Returns the field whose values a column has.
pub fn field_of(column: ColumnId) -> Option<Field> {
    COLUMNS.iter().find(|(_, known)| *known == column).map(|(field, _)| *field)
}

/// Returns the columns that a test asks for.
pub fn columns(test: AttributeTest) -> Columns {
    match test {
        AttributeTest::Span(field, _) => column_of(field).map_or(Columns::NONE, Columns::from),
        AttributeTest::Type(_) | AttributeTest::Permissions(..) => MODE.into(),
    }
}

/// Returns the outcomes that a test may have among rows that are all directories or all not, and
/// whose columns lie within bounds, where `bounds` knows them.
///
/// # Errors
///
/// Fails as `bounds` does.
pub fn outcomes<E>(
    test: AttributeTest,
    dirs: bool,
    bounds: impl Fn(ColumnId) -> Result<Option<(i64, i64)>, E>,
) -> Result<Outcomes, E> {
    Ok(match test {
        AttributeTest::Span(field, span) => {
            let bounds = column_of(field).map(bounds).transpose()?.flatten();
            bounds.map_or(Outcomes::EITHER, |bounds| {
                Outcomes::of_span(field, span, values_between(field, bounds))
            })
        }
        AttributeTest::Type(types) if dirs => Outcomes::certain(types.contains(DIRECTORY)),
        AttributeTest::Type(types) => {
            let directory = Types::of('d').unwrap_or_default();
            let others = types.intersection(directory.complement());
            Outcomes { may_pass: others != Types::default(), may_fail: true }
        }
        AttributeTest::Permissions(..) => Outcomes::EITHER,
    })
}

/// Returns the values of a field between two of its column, where numbers without a sign wrap.
fn values_between(field: Field, (least, most): (i64, i64)) -> Span {
    match field {
        Field::Inode => Span { least: (least as u64).into(), most: (most as u64).into() },
        // Negative values count as 0.
        _ if !field.is_time() => Span { least: least.max(0).into(), most: most.max(0).into() },
        _ => Span { least: least.into(), most: most.into() },
    }
}

/// Returns whether bounds leave a row of a unit that passes.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn may_pass(expression: &Expression, unit: &Unit) -> Result<bool> {
    let dirs = unit.kind == FileKind::Dirs;
    let remaining = expression.outcomes(&mut |test| match test {
        Test::Always(passes) => Ok(Outcomes::certain(*passes)),
        Test::Attribute(test) => outcomes(*test, dirs, |column| unit.bounds(column)),
        Test::Text(..) | Test::Xattr(..) => Ok(Outcomes::EITHER),
    });
    Ok(remaining?.may_pass)
}

/// Returns the rows of a unit that may pass, by columns of attributes.
///
/// # Errors
///
/// Fails with `Index` if the index cannot be read, or a file of it is damaged.
pub fn select(expression: &Expression, unit: &Unit) -> Result<Vec<RowRange>> {
    let mut asked = Columns::NONE;
    expression.each_test(&mut |test| match test {
        Test::Attribute(test) => asked.add(columns(*test)),
        Test::Text(TextField::Target, _) => asked.add(MODE),
        Test::Always(_) | Test::Text(..) | Test::Xattr(..) => {}
    });
    if asked.is_empty() {
        return Ok(unit.rows.clone());
    }
    let mut rows = unit.rows.iter().flat_map(|range| range.clone());
    let mut selected: Vec<RowRange> = Vec::new();
    for batch in unit.read(asked)? {
        let batch = batch?;
        let inodes = InodeColumns::of(&batch);
        for (at, row) in (0..batch.num_rows()).zip(&mut rows) {
            if row_may_pass(expression, &inodes.row(at)) {
                push_row(&mut selected, row);
            }
        }
    }
    Ok(selected)
}

/// Returns whether an entry with these attributes may pass.
fn row_may_pass(expression: &Expression, attributes: &Attributes) -> bool {
    let outcomes = expression.outcomes(&mut |test| {
        Ok::<_, Infallible>(match test {
            Test::Always(passes) => Outcomes::certain(*passes),
            Test::Attribute(test) => {
                Outcomes::certain(test.passes(&NamedRow::nameless(attributes)))
            }
            Test::Text(TextField::Target, _) if !is_link(attributes) => Outcomes::certain(false),
            Test::Text(..) | Test::Xattr(..) => Outcomes::EITHER,
        })
    });
    let Ok(outcomes) = outcomes;
    outcomes.may_pass
}

fn is_link(attributes: &Attributes) -> bool {
    attributes.file_type() == FileType::Symlink
}

/// An entry of an index, as conditions are tested on it. Texts are not escaped.
#[derive(Clone, Copy)]
pub struct NamedRow<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Its name, if [`canopy_query::Needs::name`] asks for it.
    pub name: &'a [u8],
    /// Its path from the directory that is searched, without a '/' in front, if
    /// [`canopy_query::Needs::path`] asks for it.
    pub path: &'a [u8],
    /// Where it leads, if it is a symbolic link.
    pub target: &'a [u8],
    /// Returns the value of an extended attribute, if there is one of this name.
    pub xattr: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
}

impl<'a> NamedRow<'a> {
    fn nameless(attributes: &'a Attributes) -> Self {
        NamedRow { attributes, name: b"", path: b"", target: b"", xattr: &|_| None }
    }
}

impl Candidate for NamedRow<'_> {
    fn number(&self, field: Field) -> i128 {
        let a = self.attributes;
        match field {
            Field::Size => a.size_bytes.max(0).into(),
            Field::Blocks => a.blocks.max(0).into(),
            Field::Mode => a.mode.into(),
            Field::Uid => a.uid.into(),
            Field::Gid => a.gid.into(),
            Field::Links => a.nlink.into(),
            Field::Project => 0,
            Field::Inode => a.ino.into(),
            Field::Mtime => a.mtime_ns.into(),
            Field::Ctime => a.ctime_ns.into(),
            Field::Atime => a.atime_ns.into(),
            Field::Btime => a.btime_ns.into(),
        }
    }

    fn mode(&self) -> u32 {
        self.attributes.mode
    }

    fn name(&self) -> &[u8] {
        self.name
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn target(&self) -> &[u8] {
        self.target
    }

    fn xattr(&self, name: &[u8]) -> Option<Vec<u8>> {
        (self.xattr)(name)
    }
}
