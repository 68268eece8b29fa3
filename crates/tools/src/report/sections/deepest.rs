//! The deepest directories.

use super::super::facts::Facts;
use super::super::format::visible;
use super::super::view::{Block, table};
use super::{Need, ReportSection};
use crate::error::Result;
use serde::Serialize;

/// The directories that are most levels below the path that was asked about.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Deepest(Vec<DeepDirectory>);

#[derive(Clone, Debug, Serialize)]
struct DeepDirectory {
    path: String,
    depth: i64,
}

impl ReportSection for Deepest {
    const TITLE: &'static str = "Deepest directories";
    const NOTE: Option<&'static str> = Some("Levels below the path asked about.");

    type Entries = ();

    fn needs(_: bool) -> &'static [Need] {
        &[Need::Listings]
    }

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let deepest = std::mem::take(&mut facts.listings.deepest);
        let deepest = facts.first_directories(deepest)?.into_iter();
        Ok(Some(Deepest(deepest.map(|(path, depth)| DeepDirectory { path, depth }).collect())))
    }

    fn blocks(&self) -> Vec<Block> {
        let cells = |row: &DeepDirectory| vec![row.depth.to_string(), visible(&row.path)];
        vec![table(&[("depth", true), ("path", false)], &self.0, cells).block()]
    }
}
