//! A walk whose threads stop again and again hands over the same listings as one whose do not.

use canopy_model::{ClassTable, Listing, OwnerLimits, Sink};
use canopy_scan::{Counts, MountRules, Pauses, Root, ScanContext, ScanError, ScanOptions, scan};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names in each part of each directory.
#[derive(Default)]
struct Listed(BTreeMap<(String, u32), Vec<String>>);

impl Sink for Listed {
    type Error = Infallible;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Infallible> {
        let names = listing.rows.iter().map(|row| row.name.to_owned()).collect();
        let known = self.0.insert((listing.path.as_str().to_owned(), listing.part), names);
        assert!(known.is_none(), "{} was listed twice", listing.path.as_str());
        Ok(())
    }
}

/// Walks a tree with two threads that stop whenever they have asked so often whether to.
fn listed(tree: &Path, part_bytes: usize, every: usize) -> (Listed, usize) {
    let classes = ClassTable::with_grants([], 0, OwnerLimits::default());
    let rules = MountRules::new(Vec::new(), false);
    let root = Root::open(tree, &classes, &rules).unwrap();
    let options = ScanOptions { part_bytes, one_reader: true, ..ScanOptions::default() };
    let (asked, mut pauses) = (AtomicUsize::new(0), 0);
    let due = || asked.fetch_add(1, Ordering::Relaxed) % every == every - 1;
    let pauses_of_scan = Pauses {
        due: &due,
        pause: &mut |_, _| {
            pauses += 1;
            Ok(())
        },
    };
    let sinks = vec![Listed::default(), Listed::default()];
    let counts = Counts::default();
    let on_error = |error: &ScanError| panic!("{error:?}");
    let cx = ScanContext {
        options: &options,
        classes: &classes,
        rules: &rules,
        counts: &counts,
        on_error: &on_error,
    };
    let Ok(sinks) = scan(root, None, &cx, sinks, pauses_of_scan);
    let mut all = Listed::default();
    for (place, names) in sinks.into_iter().flat_map(|sink| sink.0) {
        assert!(all.0.insert(place, names).is_none());
    }
    let entries: usize = all.0.values().map(Vec::len).sum();
    assert_eq!(counts.entries.into_inner(), entries as u64);
    (all, pauses)
}

#[test]
fn listings_have_the_same_parts_however_often_threads_stop() {
    let place = tempfile::tempdir().unwrap();
    for dir in ["", "a", "a/b", "a/b/c", "d", "e"] {
        let dir = place.path().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        (0..700).for_each(|file| std::fs::write(dir.join(format!("f{file}")), "").unwrap());
    }
    // Each directory as one part, and as several.
    for part_bytes in [1 << 20, 1000] {
        let (expected, pauses) = listed(place.path(), part_bytes, usize::MAX);
        assert_eq!((expected.0.len() == 6, pauses), (part_bytes > 1000, 0));
        for every in [7, 13, 20] {
            let (found, pauses) = listed(place.path(), part_bytes, every);
            assert!(pauses > 2, "{pauses}");
            assert_eq!(found.0, expected.0);
        }
    }
}
