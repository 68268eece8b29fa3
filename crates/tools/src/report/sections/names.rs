//! Names that are hard to type.

use super::*;
use canopy_index::column::NAME;
use canopy_model::unescape;
use canopy_text::safe::turns_text;

/// Names that are hard to type or mislead the eye.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Names {
    /// With control characters, such as an end of line.
    control: Flagged,
    /// That are not UTF-8.
    not_utf8: Flagged,
    /// With characters that change the direction of text.
    direction: Flagged,
}

/// Rows of these names, in the order of [`Names`].
pub(in crate::report) struct OddNames([FlaggedRows; 3]);

impl EntryCollector for OddNames {
    const READS_DIRS: bool = true;

    fn new(scope: &Scope<'_>) -> Self {
        OddNames(std::array::from_fn(|_| FlaggedRows::new(scope.options.top)))
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(NAME.into())
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let names = NAME.of(batch.batch)?;
        if is_plain(names.value_data()) {
            return Ok(());
        }
        for &at in &batch.rows {
            let name = names.value(at);
            if is_plain(name.as_bytes()) {
                continue;
            }
            let is_odd = [
                name.chars().any(char::is_control),
                std::str::from_utf8(&unescape(name)).is_err(),
                name.chars().any(turns_text),
            ];
            for (list, _) in self.0.iter_mut().zip(is_odd).filter(|(_, is_odd)| *is_odd) {
                list.add(0, batch.id(at));
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| own.merge(other));
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        self.0.iter_mut().map(|list| &mut list.first).collect()
    }
}

impl ReportSection for Names {
    const TITLE: &'static str = "Names that are hard to type";
    const NEEDS: &'static [Need] = &[Need::Dirs, Need::Entries];
    type Entries = OddNames;

    fn answer(facts: &mut Facts<'_>, found: OddNames) -> Result<Option<Self>> {
        let [control, not_utf8, direction] = found.0.map(|rows| rows.answer(facts));
        Ok(Some(Names { control, not_utf8, direction }))
    }

    fn blocks(&self) -> Vec<Block> {
        flagged_blocks(&[
            ("with control characters", &self.control),
            ("not UTF-8", &self.not_utf8),
            ("with characters that change the direction of text", &self.direction),
        ])
    }
}

/// Returns whether a text is printable ASCII, as nearly all names are. Without an early end, this
/// is done for many bytes at once.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, byte| plain & (b' '..0x7F).contains(byte))
}
