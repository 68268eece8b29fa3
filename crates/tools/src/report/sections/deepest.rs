//! The deepest directories.

use super::*;

/// The directories that are most levels below the path that was asked about.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Deepest(Vec<DeepDirectory>);

#[derive(Clone, Debug, Serialize)]
struct DeepDirectory {
    path: String,
    depth: i128,
}

impl ReportSection for Deepest {
    const TITLE: &'static str = "Deepest directories";
    const NOTE: Option<&'static str> = Some("Levels below the path asked about.");
    const NEEDS: &'static [Need] = &[Need::Listings];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let deepest = std::mem::take(&mut facts.listings.deepest);
        let deepest = facts.first_directories(deepest)?.into_iter();
        Ok(Some(Deepest(deepest.map(|(path, depth)| DeepDirectory { path, depth }).collect())))
    }

    fn blocks(&self) -> Vec<Block> {
        let cells = |row: &DeepDirectory| vec![count(row.depth), name(&row.path)];
        vec![table(&[("depth", true), ("path", false)], &self.0, cells).block()]
    }
}
