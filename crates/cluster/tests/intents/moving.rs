//! Changes of several servers while a partition of one of their directories is handed over.

use crate::net::{Fate, Net, POLICY, file, list, lookup, rename};
use canopy_cluster::{Error, IntentStep, Step};
use canopy_namespace::{EntryName, FileId, RenameMode};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Returns a name that goes away with the upper half of an unsplit directory.
fn moving_name(directory: FileId) -> String {
    let mut names = (0..).map(|number| format!("moving{number}"));
    let goes = |name: &String| EntryName::new(directory, name.as_bytes()).hash() >> 63 == 1;
    names.find(goes).unwrap()
}

fn with_files(net: &Net) -> [FileId; 2] {
    let at = [0, 1].map(|server| net.directory_at(server, 0o755, 7));
    let client = net.client();
    (0..20).for_each(|number| _ = file(&client, at[1], &format!("file{number}")));
    file(&client, at[0], "a");
    at
}

#[test]
fn a_partition_with_a_locked_name_stays() {
    let net = Net::new(3, POLICY);
    let at = with_files(&net);
    let name = moving_name(at[1]);
    let splits = Arc::new(Mutex::new(Vec::new()));
    let (seen, of) = (splits.clone(), Arc::downgrade(&net));
    net.set_faults(Some(Box::new(move |_, step| {
        let mut seen = seen.lock();
        if !seen.is_empty() {
            return Fate::Arrives;
        }
        // The name is locked until its server hears of the decision: by this message, or by an
        // answer to its own question.
        match (step, of.upgrade()) {
            (IntentStep::Commit(_), Some(net)) => {
                seen.push(net.split(ServerId(1), at[1], &mut |_: Step| true));
                Fate::Arrives
            }
            (IntentStep::Ask { .. }, _) => Fate::Lost,
            _ => Fate::Arrives,
        }
    })));
    let client = net.client();
    rename(&client, (at[0], "a"), (at[1], &name), RenameMode::Replace).unwrap();
    net.set_faults(None);
    let splits = splits.lock();
    assert!(matches!(splits[..], [Err(Error::Stopped(_))]), "{splits:?}");
    assert!(net.split(ServerId(1), at[1], &mut |_: Step| true).unwrap());
    assert!(lookup(&client, at[1], &name).is_some());
    assert_eq!(list(&net.client(), at[1]).len(), 21);
    net.settle();
    net.assert_sound();
}

#[test]
fn a_rename_waits_for_the_end_of_a_hand_over() {
    for stop in [Step::Entries, Step::Complete, Step::Give] {
        let net = Net::new(3, POLICY);
        let at = with_files(&net);
        let name = moving_name(at[1]);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        net.set_faults(Some(Box::new(move |_, step| {
            counted.fetch_add(
                usize::from(matches!(step, IntentStep::Prepare { .. })),
                Ordering::AcqRel,
            );
            Fate::Arrives
        })));
        thread::scope(|scope| {
            let (net, name) = (&net, &name);
            let steps = &mut |step: Step| {
                if step == stop && asked.load(Ordering::Acquire) == 0 {
                    scope.spawn(move || {
                        let client = net.client();
                        rename(&client, (at[0], "a"), (at[1], name), RenameMode::Replace).unwrap();
                    });
                    // It has been sent, and refused, more than once.
                    while asked.load(Ordering::Acquire) < 3 {
                        thread::yield_now();
                    }
                }
                true
            };
            assert!(net.split(ServerId(1), at[1], steps).unwrap());
        });
        net.set_faults(None);
        let client = net.client();
        assert!(lookup(&client, at[1], &name).is_some(), "{stop:?}");
        assert!(lookup(&client, at[0], "a").is_none());
        assert_eq!(list(&client, at[1]).len(), 21);
        net.settle();
        net.assert_sound();
    }
}
