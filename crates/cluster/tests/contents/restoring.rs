//! Restoring snapshots: whenever a restorer dies or sleeps, and whatever processes of before do.

use crate::place::{CHUNK, Life, Place, mortal_environment};
use canopy_cluster::contents::{collect_session, sessions};
use canopy_cluster::{Error, Process, RestoreError, Step, restore_cluster, unfinished_restore};
use canopy_namespace::operation::{Change, Moment, OnSnapshots, Operation, Page, Read};
use canopy_namespace::{EntryName, FileId, ROOT, RenameMode, Reply, system_clock};
use canopy_partition::{PartitionId, ServerId, SplitPolicy};
use canopy_store::{Clock, Environment};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NAME: &str = "then";
const FILES: usize = 40;

/// Names in the root with ids and contents.
type Tree = BTreeMap<String, (FileId, Vec<u8>)>;

/// A clock by which nobody waits: retries that are in vain end at once.
struct Impatient(Arc<dyn Clock>);

impl Clock for Impatient {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn sleep(&self, _: Duration) {}
}

/// Returns the environment of a restorer that dies, or sleeps.
fn mortal(environment: &Environment, life: &Arc<Life>) -> Environment {
    let environment = mortal_environment(environment, life);
    Environment { clock: Arc::new(Impatient(environment.clock.clone())), ..environment }
}

fn restore(environment: &Environment) -> Result<(), RestoreError> {
    restore_cluster(environment, &system_clock(), NAME, &|_, _| {})
}

fn name_of(number: usize) -> String {
    format!("file{number}")
}

/// Returns contents that differ from round to round: none, small, or of chunks.
fn contents(number: usize, round: u8) -> Vec<u8> {
    vec![round * 100 + number as u8; [0, 10, 3 * CHUNK as usize][number % 3]]
}

/// Makes files, a snapshot of them, and changes after it: contents, names, partitions.
fn site() -> (Place, Tree) {
    let policy = SplitPolicy { entries_max: 1000, ..SplitPolicy::default() };
    let place = Place::with_policy(policy);
    let client = place.rich_client();
    for number in 0..FILES {
        let id = client.create(&name_of(number)).id;
        client.put(id, &contents(number, 1));
    }
    place.process.split(ROOT, PartitionId::ZERO, &mut |_: Step| true).expect("a split");
    place.process.settle();
    client.0.end().expect("ended");
    let create = Operation::Snapshots(OnSnapshots::Create(NAME));
    client.execute(&create).expect("a snapshot");
    let then = tree(&place);
    let other = place.rich_client();
    for number in 0..FILES {
        let name = name_of(number);
        let from = EntryName::new(ROOT, name.as_bytes());
        match number % 4 {
            0 => other.put(then[&name].0, &contents(number + 2, 2)),
            1 => drop(other.execute(&Operation::Change(Change::Unlink(from))).expect("removed")),
            2 => {
                let name = format!("other{number}");
                let to = EntryName::new(ROOT, name.as_bytes());
                let (mode, whiteout) = (RenameMode::Replace, None);
                let rename = Change::Rename { from, to, mode, whiteout };
                other.execute(&Operation::Change(rename)).expect("renamed");
            }
            _ => other.put(other.create(&format!("new{number}")).id, &contents(2, 3)),
        }
    }
    let partition = PartitionId::new(1).expect("a partition");
    place.process.split(ROOT, partition, &mut |_: Step| true).expect("a split");
    place.process.settle();
    other.0.end().expect("ended");
    place.process.sync().expect("synced");
    (place, then)
}

fn tree(place: &Place) -> Tree {
    let client = place.rich_client();
    let (mut tree, mut after) = (Tree::new(), 0);
    loop {
        let page = Page { directory: ROOT, after, name: None, count_max: 100 };
        let list = Operation::Read(Moment::Now, Read::List(page));
        let Ok(Reply::Entries(entries)) = client.execute(&list) else { panic!("no entries") };
        if entries.count() == 0 {
            return tree;
        }
        for entry in entries.iter() {
            let name = String::from_utf8(entry.name.to_vec()).expect("a name");
            let id = entry.inode.id;
            tree.insert(name, (id, client.whole(id)));
            after = entry.cookie;
        }
    }
}

/// Opens a cluster, and returns what it has.
fn reopened(environment: &Environment) -> (Place, Tree) {
    let process = Process::with_all_servers(environment, &system_clock()).expect("a process");
    let place = Place { environment: environment.clone(), process };
    let tree = tree(&place);
    (place, tree)
}

#[test]
fn a_restorer_may_die_at_any_step() {
    for does_last in [false, true] {
        let (Place { environment, process }, then) = site();
        drop(process);
        let mut halves = 0;
        for steps in 0.. {
            let life = Life::new(steps, does_last);
            let restored = restore(&mortal(&environment, &life));
            if restored.is_ok() {
                break;
            }
            assert!(life.has_ended(), "{restored:?}");
            // Nobody uses what is restored in part.
            if let Some(name) = unfinished_restore(&*environment.storage).expect("a state") {
                let process = Process::new(&environment, &system_clock(), None);
                assert!(matches!(process, Err(Error::Unrestored(one)) if one == name));
                halves += 1;
            }
        }
        assert!(halves > 5, "{halves}");
        let (place, found) = reopened(&environment);
        assert!(found == then);
        // Objects that nothing needs any more go.
        let operations = place.operations();
        let objects = place.objects("contents/chunk/").len();
        for session in sessions(&*environment.storage).expect("sessions") {
            let process = &*place.process;
            collect_session(&environment, process, &operations, session, &mut || ())
                .expect("collected");
        }
        assert!(place.objects("contents/chunk/").len() < objects);
        assert!(tree(&place) == then);
    }
}

/// A restorer sleeps before any of its steps. Meanwhile another one finishes its work, and a process
/// serves: nothing of that is lost.
#[test]
fn a_restorer_that_sleeps_takes_nothing_back() {
    let mut steps = 0;
    loop {
        let (Place { environment, process }, then) = site();
        drop(process);
        let serving = Arc::<Mutex<Option<Place>>>::default();
        let meanwhile = {
            let (environment, serving) = (environment.clone(), serving.clone());
            move || {
                restore(&environment).expect("restored");
                let (place, _) = reopened(&environment);
                place.client().create("kept");
                place.process.sync().expect("synced");
                *serving.lock().expect("no panic") = Some(place);
            }
        };
        let life = Life::sleeping(steps, meanwhile);
        // It may fail, since others have the tables.
        let _ = restore(&mortal(&environment, &life));
        let has_slept = serving.lock().expect("no panic").take().is_some();
        if !has_slept {
            assert!(steps > 5, "{steps}");
            return;
        }
        let (_, mut found) = reopened(&environment);
        assert!(found.remove("kept").is_some(), "{steps}");
        assert!(found == then, "{steps}");
        steps += 1;
    }
}

#[test]
fn processes_of_before_do_nothing_any_more() {
    let (place, then) = site();
    // No map has its process, so nobody asks for it.
    restore(&place.environment).expect("restored");
    let client = place.client();
    client.create("late");
    assert!(place.process.sync().is_err(), "another process has opened its tables");
    for server in (0..3).map(ServerId) {
        let _ = place.process.stop(server);
        assert!(matches!(place.process.start(server), Err(Error::Restored)));
    }
    assert!(reopened(&place.environment).1 == then);
    let Err(RestoreError::NoSnapshot(_)) =
        restore_cluster(&place.environment, &system_clock(), "never", &|_, _| {})
    else {
        panic!("there is no such snapshot")
    };
    assert!(reopened(&place.environment).1 == then, "nothing has begun");
}
