//! Changes of several servers while a partition of one of their directories is handed over.

use crate::net::{Fate, Net, POLICY, file, list, lookup, rename};
use canopy_cluster::{Error, HandOverStage, IntentMessage, Request, Response, Sender, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{EntryName, FileId, New, RenameMode, Reply};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use std::borrow::Cow;
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
            (IntentMessage::Commit(_), Some(net)) => {
                seen.push(net.split(ServerId(1), at[1], &mut |_: HandOverStage| true));
                Fate::Arrives
            }
            (IntentMessage::Ask { .. }, _) => Fate::Lost,
            _ => Fate::Arrives,
        }
    })));
    let client = net.client();
    rename(&client, (at[0], "a"), (at[1], &name), RenameMode::Replace).unwrap();
    net.set_faults(None);
    let splits = splits.lock();
    assert!(matches!(splits[..], [Err(Error::Stopped(_))]), "{splits:?}");
    assert!(net.split(ServerId(1), at[1], &mut |_: HandOverStage| true).unwrap());
    assert!(lookup(&client, at[1], &name).is_some());
    assert_eq!(list(&net.client(), at[1]).len(), 21);
    net.settle();
    net.assert_sound();
}

#[test]
fn a_rename_waits_for_the_end_of_a_hand_over() {
    for stop in [HandOverStage::Entries, HandOverStage::Complete, HandOverStage::Give] {
        let net = Net::new(3, POLICY);
        let at = with_files(&net);
        let name = moving_name(at[1]);
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        net.set_faults(Some(Box::new(move |_, step| {
            counted.fetch_add(
                usize::from(matches!(step, IntentMessage::Prepare { .. })),
                Ordering::AcqRel,
            );
            Fate::Arrives
        })));
        thread::scope(|scope| {
            let (net, name) = (&net, &name);
            let steps = &mut |step: HandOverStage| {
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

/// All of them were in one message with the file, which could become too long.
#[test]
fn very_many_executed_changes_go_ahead_of_a_file() {
    let net = Net::new(2, POLICY);
    let at = with_files(&net);
    let make = |server: u32, session: u64, slot: u64| {
        let name = format!("{session}-{slot}");
        let name = EntryName::new(at[server as usize], name.as_bytes());
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        let request = Request::Execute(Operation::Change(create));
        net.peers().ask(ServerId(server), change_of(session, slot), &request).unwrap();
    };
    for session in 0..40 {
        (0..256).for_each(|slot| make(0, session, slot));
        (0..256).for_each(|slot| make(1, 100 + session, slot));
    }
    let sent = Arc::new(Mutex::new([0, 0]));
    let counted = sent.clone();
    net.set_faults(Some(Box::new(move |server, step| {
        let is_ahead = matches!(step, IntentMessage::Executed(_));
        let is_part = matches!(step, IntentMessage::Prepare { .. });
        counted.lock()[usize::from(is_part)] += usize::from(is_ahead || is_part);
        assert!(!is_ahead || server == ServerId(1));
        Fate::Arrives
    })));
    let client = net.client();
    rename(&client, (at[0], "a"), (at[1], "file0"), RenameMode::Exchange).unwrap();
    // The participant replies with its own first.
    assert_eq!(*sent.lock(), [1, 2]);
    // Those that it has taken go back once.
    rename(&client, (at[0], "a"), (at[1], "file0"), RenameMode::Exchange).unwrap();
    assert_eq!(*sent.lock(), [2, 3]);
    rename(&client, (at[0], "a"), (at[1], "file0"), RenameMode::Exchange).unwrap();
    assert_eq!(*sent.lock(), [2, 4]);
    net.set_faults(None);
    // Each knows what the other has executed.
    for (server, session) in [(1_u32, 0), (1, 39), (0, 100), (0, 139)] {
        let late = Change::Unlink(EntryName::new(at[server as usize], b"late"));
        let request = Request::Execute(Operation::Change(late));
        let reply = net.peers().ask(ServerId(server), change_of(session, 255), &request);
        assert!(matches!(reply, Ok(Response::Reply(Reply::Inode(_)))), "{reply:?}");
    }
    net.settle();
    net.assert_sound();
}

/// Returns the sender of the first change of a slot of a session.
fn change_of(session: u64, slot: u64) -> Sender<'static> {
    let (session, number) = (SessionId((1 << 40) + session), 256 + slot);
    Sender { caller: Caller::Trusted, session, number, life: None }
}
