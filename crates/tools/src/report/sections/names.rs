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

/// What is collected of them.
pub(in crate::report) struct OddNames {
    control: FlaggedRows,
    not_utf8: FlaggedRows,
    direction: FlaggedRows,
}

impl EntryCollector for OddNames {
    const READS_DIRS: bool = true;

    fn new(scope: &Scope<'_>) -> Self {
        let none = || FlaggedRows::new(scope.options.top);
        OddNames { control: none(), not_utf8: none(), direction: none() }
    }

    fn columns(&self, _: &Part<'_>) -> Result<Columns> {
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
            let lists = [
                (name.chars().any(char::is_control), &mut self.control),
                (std::str::from_utf8(&unescape(name)).is_err(), &mut self.not_utf8),
                (name.chars().any(turns_text), &mut self.direction),
            ];
            for (_, list) in lists.into_iter().filter(|(is_odd, _)| *is_odd) {
                list.add(0, batch.id(at));
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.control.merge(other.control);
        self.not_utf8.merge(other.not_utf8);
        self.direction.merge(other.direction);
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        let lists = [&mut self.control, &mut self.not_utf8, &mut self.direction];
        lists.map(|list| &mut list.first).into()
    }
}

impl ReportSection for Names {
    const TITLE: &'static str = "Names that are hard to type";
    const NEEDS: &'static [Need] = &[Need::Dirs, Need::Entries];
    type Entries = OddNames;

    fn answer(facts: &mut Facts<'_>, found: OddNames) -> Result<Option<Self>> {
        Ok(Some(Names {
            control: found.control.answer(facts),
            not_utf8: found.not_utf8.answer(facts),
            direction: found.direction.answer(facts),
        }))
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
