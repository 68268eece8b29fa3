//! The tables of Lustre's extended attributes: `layouts`, `stripes`, `directory_layouts` and `hsm`.
//! A value that cannot be decoded gives a row of nulls, so that nothing is missing in silence.

use super::decoded::{Cell, DecodedColumn, DecodedRows, Decoder, XattrValue};
use arrow::datatypes::DataType::{self, Int64, UInt32, UInt64, Utf8};
use canopy_model::escape;
use canopy_model::lustre::{HSM_KEYS, HsmState, LAYOUT_KEYS, Layout, STRIPES_KEYS, Stripes};

const fn column(name: &'static str, data_type: DataType) -> DecodedColumn {
    DecodedColumn::new(name, data_type).or_null()
}

/// A row for each component of a layout.
pub(super) static LAYOUTS: Decoder = Decoder {
    keys: &LAYOUT_KEYS,
    columns: &[
        column("component", UInt32),
        column("mirror", UInt32),
        column("extent_start", Int64),
        column("extent_end", Int64),
        column("stripe_count", UInt32),
        column("stripe_size", Int64),
        column("pool", Utf8),
        column("pattern", Utf8),
        column("flags", Utf8),
        column("osts", Utf8),
    ],
    decode: layouts,
};

/// A row for each object on an OST.
pub(super) static STRIPES: Decoder = Decoder {
    keys: &LAYOUT_KEYS,
    columns: &[
        column("component", UInt32),
        column("stripe", UInt32),
        column("ost", UInt32),
        column("pool", Utf8),
        column("bytes", Int64),
    ],
    decode: stripes,
};

/// A row for each striped directory.
pub(super) static DIRECTORY_LAYOUTS: Decoder = Decoder {
    keys: &STRIPES_KEYS,
    columns: &[
        column("mdt_index", UInt32),
        column("stripe_count", UInt32),
        column("hash", Utf8),
        column("pool", Utf8),
    ],
    decode: directory_layouts,
};

/// A row for each file that an archive knows.
pub(super) static HSM: Decoder = Decoder {
    keys: &HSM_KEYS,
    columns: &[column("state", Utf8), column("archive", UInt64), column("version", UInt64)],
    decode: hsm,
};

fn layouts(xattr: &XattrValue<'_>, rows: &mut DecodedRows) -> Option<()> {
    for part in &Layout::decode(xattr.value)?.components {
        let osts: Vec<String> = part.osts().map(|(_, ost)| ost.to_string()).collect();
        rows.push([
            part.id.into(),
            part.mirror().into(),
            part.start.into(),
            part.end.into(),
            part.stripe_count.map(u32::from).into(),
            part.stripe_size.into(),
            text(part.pool),
            words(part.pattern_words()),
            words(part.flag_words()),
            osts.join(",").into(),
        ]);
    }
    Some(())
}

fn stripes(xattr: &XattrValue<'_>, rows: &mut DecodedRows) -> Option<()> {
    Layout::decode(xattr.value)?.each_stripe(xattr.size_bytes, |part, stripe| {
        rows.push([
            part.id.into(),
            (stripe.number as u32).into(),
            stripe.ost.into(),
            text(part.pool),
            stripe.bytes.into(),
        ]);
    });
    Some(())
}

fn directory_layouts(xattr: &XattrValue<'_>, rows: &mut DecodedRows) -> Option<()> {
    let stripes = Stripes::decode(xattr.value)?;
    let (mdt, count) = (stripes.mdt.into(), stripes.count.into());
    rows.push([mdt, count, stripes.hash_word().into(), text(stripes.pool)]);
    Some(())
}

fn hsm(xattr: &XattrValue<'_>, rows: &mut DecodedRows) -> Option<()> {
    let state = HsmState::decode(xattr.value)?;
    rows.push([words(state.words()), state.archive.into(), state.version.into()]);
    Some(())
}

fn text(bytes: &[u8]) -> Cell {
    escape(bytes).into_owned().into()
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> Cell {
    words.collect::<Vec<_>>().join(",").into()
}
