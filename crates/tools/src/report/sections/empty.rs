//! Empty directories.

use super::*;

/// Directories with nothing in them.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Empty {
    count: i64,
    first: Vec<String>,
}

/// What the pass over listings collects.
#[derive(Default)]
pub(in crate::report) struct EmptyDirectories {
    count: i64,
    first: TopK,
}

impl EmptyDirectories {
    /// Begins with none.
    pub(in crate::report) fn new(top: usize) -> Self {
        EmptyDirectories { count: 0, first: TopK::new(top) }
    }

    /// Takes in a directory.
    pub(in crate::report) fn add(&mut self, id: RowId) {
        self.count += 1;
        self.first.offer(0, id);
    }

    /// Takes in the directories of another worker.
    pub(in crate::report) fn merge(&mut self, other: EmptyDirectories) {
        self.count += other.count;
        self.first.merge(other.first);
    }
}

impl ReportSection for Empty {
    const TITLE: &'static str = "Empty directories";
    const NEEDS: &'static [Need] = &[Need::Listings];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let EmptyDirectories { count, first } = std::mem::take(&mut facts.listings.empty);
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
