//! The tables of what Lustre tells in extended attributes: `layouts`, `stripes`,
//! `directory_layouts` and `hsm`. A value that cannot be decoded gives a row of nulls, so that
//! nothing is missing in silence.

use super::decoded::{Cell, DecodedColumn, DecodedRows, Holds, XattrValue};
use canopy_model::escape;
use canopy_model::lustre::{HSM_KEYS, HsmState, LAYOUT_KEYS, Layout, STRIPES_KEYS, Stripes};

const fn column(name: &'static str, holds: Holds) -> DecodedColumn {
    DecodedColumn::new(name, holds).or_null()
}

/// Of `layouts`: a row for each component.
pub(super) static LAYOUT: [DecodedColumn; 10] = [
    column("component", Holds::U32),
    column("mirror", Holds::U32),
    column("extent_start", Holds::I64),
    column("extent_end", Holds::I64),
    column("stripe_count", Holds::U32),
    column("stripe_size", Holds::I64),
    column("pool", Holds::Text),
    column("pattern", Holds::Text),
    column("flags", Holds::Text),
    column("osts", Holds::Text),
];

/// Of `stripes`: a row for each object on an OST.
pub(super) static STRIPE: [DecodedColumn; 5] = [
    column("component", Holds::U32),
    column("stripe", Holds::U32),
    column("ost", Holds::U32),
    column("pool", Holds::Text),
    column("bytes", Holds::I64),
];

/// Of `directory_layouts`: a row for each striped directory.
pub(super) static DIRECTORY: [DecodedColumn; 4] = [
    column("mdt_index", Holds::U32),
    column("stripe_count", Holds::U32),
    column("hash", Holds::Text),
    column("pool", Holds::Text),
];

/// Of `hsm`: a row for each file that an archive knows.
pub(super) static HSM: [DecodedColumn; 3] =
    [column("state", Holds::Text), column("archive", Holds::U64), column("version", Holds::U64)];

/// Makes the rows of `layouts`.
pub(super) fn layouts(xattr: &XattrValue<'_>, rows: &mut DecodedRows) {
    if !LAYOUT_KEYS.contains(&xattr.key) {
        return;
    }
    let Some(layout) = Layout::decode(xattr.value) else {
        return rows.push([const { Cell::Null }; LAYOUT.len()]);
    };
    for part in &layout.components {
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
}

/// Makes the rows of `stripes`.
pub(super) fn stripes(xattr: &XattrValue<'_>, rows: &mut DecodedRows) {
    if !LAYOUT_KEYS.contains(&xattr.key) {
        return;
    }
    let Some(layout) = Layout::decode(xattr.value) else {
        return rows.push([const { Cell::Null }; STRIPE.len()]);
    };
    layout.each_stripe(xattr.size_bytes, |part, stripe| {
        rows.push([
            part.id.into(),
            (stripe.number as u32).into(),
            stripe.ost.into(),
            text(part.pool),
            stripe.bytes.into(),
        ]);
    });
}

/// Makes the row of `directory_layouts`.
pub(super) fn directory_layouts(xattr: &XattrValue<'_>, rows: &mut DecodedRows) {
    if !STRIPES_KEYS.contains(&xattr.key) {
        return;
    }
    rows.push(match Stripes::decode(xattr.value) {
        None => [const { Cell::Null }; DIRECTORY.len()],
        Some(stripes) => [
            stripes.mdt.into(),
            stripes.count.into(),
            stripes.hash_word().into(),
            text(stripes.pool),
        ],
    });
}

/// Makes the row of `hsm`.
pub(super) fn hsm(xattr: &XattrValue<'_>, rows: &mut DecodedRows) {
    if !HSM_KEYS.contains(&xattr.key) {
        return;
    }
    rows.push(match HsmState::decode(xattr.value) {
        None => [const { Cell::Null }; HSM.len()],
        Some(state) => [words(state.words()), state.archive.into(), state.version.into()],
    });
}

fn text(bytes: &[u8]) -> Cell {
    escape(bytes).into_owned().into()
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> Cell {
    words.collect::<Vec<_>>().join(",").into()
}
