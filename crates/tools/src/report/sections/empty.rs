//! Empty directories.

use super::*;

/// Directories with nothing in them.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Empty {
    count: i64,
    first: Vec<String>,
}

impl ReportSection for Empty {
    const TITLE: &'static str = "Empty directories";
    const NEEDS: &'static [Need] = &[Need::Listings];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let FlaggedRows { count, first } = std::mem::take(&mut facts.listings.empty);
        let first = facts.first_directories(first)?;
        Ok(Some(Empty { count, first: first.into_iter().map(|(path, _)| path).collect() }))
    }

    fn blocks(&self) -> Vec<Block> {
        let mut table = table(&[("path", false)], &self.first, |path| vec![name(path)]);
        if self.count > self.first.len() as i64 && !self.first.is_empty() {
            table = table.titled(format!("The first {}", self.first.len()));
        }
        let known = Block::Facts(vec![(count(self.count), "empty directories")]);
        vec![known, table.block()]
    }
}
