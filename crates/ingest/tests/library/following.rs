//! Namespaces that are followed in the process of the caller.

use crate::{CancelAll, Messages, canopy, names, tree, wait_for, wait_until};
use anyhow::Context as _;
use canopy_index::Index;
use canopy_ingest::daemon::{
    Daemon, DaemonOptions, InProcess, Verb, VerbCall, VerbResult, VerbRunner,
};
use canopy_ingest::{
    Cancel, Context, Followed, Interrupted, ListingSource, Namespaces, Shards, SourceRun, Stopped,
};
use canopy_model::{Approach, Attributes, Audience, ClassTable, Device, SourcePathBuf};
use canopy_scan::{FoundXattr, MountRules, Pauses, Root, ScanContext, scan};
use canopy_site::Site;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Sorted names in each directory of a tree, by its path below the root.
type Contents = BTreeMap<String, Vec<String>>;

/// Directories as namespaces. A directory counts as changed if other names are in it.
struct Directories;

impl Namespaces for Directories {
    fn root_of(&self, namespace: &Path, _: Option<&Path>) -> anyhow::Result<PathBuf> {
        Ok(namespace.to_owned())
    }

    fn open(&self, namespace: &Path) -> anyhow::Result<Box<dyn ListingSource>> {
        Ok(Box::new(Directory::open(namespace)?))
    }

    fn follow(&self, namespace: &Path, known: Option<&str>) -> anyhow::Result<Followed> {
        let now = Directory::open(namespace)?;
        let Some(known) = known else { return Ok(Followed::Changed(Box::new(now), None)) };
        let known: Contents = serde_json::from_str(known)?;
        let is_changed = |one: &(&String, &Vec<String>)| known.get(one.0) != Some(one.1);
        let changed = now.contents.iter().filter(is_changed);
        let changed: Vec<_> =
            changed.map(|(path, _)| SourcePathBuf::escaped(path.clone())).collect();
        match changed.is_empty() {
            true => Ok(Followed::Unchanged(None)),
            false => Ok(Followed::Changed(Box::new(now), Some(changed))),
        }
    }

    fn forget(&self, _: &Path, known: &str) {
        serde_json::from_str::<Contents>(known).expect("a state that was kept");
    }
}

/// An open directory.
struct Directory {
    root: Root,
    contents: Contents,
}

impl Directory {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let mut contents = Contents::new();
        let mut left = vec![(path.to_owned(), String::new())];
        while let Some((directory, below)) = left.pop() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&directory).context("the namespace cannot be read")? {
                let (entry, name) = entry.map(|it| (it.path(), it.file_name()))?;
                let name = name.into_string().expect("tests use plain names");
                if entry.is_dir() {
                    left.push((entry, canopy_model::join(&below, &name)));
                }
                names.push(name);
            }
            names.sort();
            contents.insert(below, names);
        }
        let root = Root::open(path, &ClassTable::default(), &rules())?;
        Ok(Directory { root, contents })
    }
}

fn rules() -> MountRules {
    MountRules::new(Vec::new(), false)
}

impl ListingSource for Directory {
    fn about(&self) -> (Attributes, Device) {
        (self.root.attributes, self.root.dev)
    }

    fn approach(&self, above: Approach, _: &ClassTable) -> Approach {
        above
    }

    fn xattrs(&self, _: Audience, _: &ClassTable) -> anyhow::Result<Vec<FoundXattr>> {
        Ok(Vec::new())
    }

    fn list<'w>(
        &self,
        root: &Path,
        _: &Approach,
        run: &SourceRun<'_>,
        sinks: Vec<Shards<'w>>,
    ) -> anyhow::Result<Vec<Shards<'w>>> {
        let SourceRun { options, classes, part, counts, on_error } = *run;
        let cx = ScanContext { options, classes, rules: &rules(), counts, on_error };
        let mut pause = |_: &mut Vec<_>, _: &dyn Fn() -> _| Ok::<_, Stopped>(());
        let pauses = Pauses { due: &|| false, pause: &mut pause };
        Ok(scan(Root::open(root, classes, cx.rules)?, part, &cx, sinks, pauses)?)
    }

    fn keep(self: Box<Self>) -> String {
        serde_json::to_string(&self.contents).expect("names are text")
    }
}

const RUNNER: InProcess<'_> = InProcess { namespaces: Some(&Directories) };

/// Returns the path by which a tree is followed as a namespace.
fn namespace_of(tree: &Path) -> PathBuf {
    PathBuf::from(format!("ns:{}", tree.display()))
}

/// Returns the entries of a tree in an index.
fn entries(index: &Path, tree: &Path) -> Vec<String> {
    let mut names = names(index, tree);
    names.sort();
    names
}

#[test]
fn each_call_reads_the_changes_since_the_last_one() {
    let place = tempfile::tempdir().unwrap();
    let (tree, index) = (tree(place.path(), "tree", 3), place.path().join("index"));
    let moved = place.path().join("moved");
    let (site, messages, cancel) = (Site::default(), Messages::default(), Cancel::default());
    let cx = Context { observer: &messages, ..Context::new(&site, &cancel) };
    let namespace = namespace_of(&tree);
    let run = |runner: &InProcess<'_>, stop: &dyn Fn() -> bool| {
        let verb = Verb::Follow(&namespace);
        runner.run(&cx, &VerbCall { verb, index: &index, rate_max: None, stop })
    };
    let generation = |result: anyhow::Result<VerbResult>| result.unwrap().generation.map(|it| it.0);
    let follow = || generation(run(&RUNNER, &|| false));
    let error = |result: anyhow::Result<VerbResult>| format!("{:#}", result.unwrap_err());

    let without = error(run(&InProcess::default(), &|| false));
    assert_eq!(without, "this program cannot read namespaces");
    assert_eq!(follow(), Some(1));
    assert_eq!(entries(&index, &tree), ["0", "1", "2", "tree"]);
    assert_eq!(follow(), None);

    fs::create_dir_all(tree.join("one/two")).unwrap();
    fs::write(tree.join("one/two/new"), "text").unwrap();
    assert_eq!(follow(), Some(2));
    assert_eq!(entries(&index, &tree), ["0", "1", "2", "new", "one", "tree", "two"]);
    // Only the directory with other names is read.
    fs::write(tree.join("0"), "other text").unwrap();
    fs::write(tree.join("one/two/newer"), "text").unwrap();
    assert_eq!(follow(), Some(3));
    let size = |name: &str| {
        let mut find = std::process::Command::new(canopy());
        find.arg("--index").arg(&index).arg("find").arg(&tree);
        let output = find.args(["-name", name, "-printf", "%s"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!((size("0"), size("newer")), ("4".to_owned(), "4".to_owned()));

    fs::rename(&tree, &moved).unwrap();
    assert!(error(run(&RUNNER, &|| false)).starts_with("the namespace cannot be read"));
    fs::rename(&moved, &tree).unwrap();
    assert_eq!(follow(), None);
    fs::remove_dir_all(tree.join("one")).unwrap();
    assert_eq!(follow(), Some(4));
    assert_eq!(entries(&index, &tree), ["0", "1", "2", "tree"]);
    assert!(messages.0.into_inner().unwrap().is_empty());
}

/// Directories that open once a runner has cancelled the call.
struct Late(Mutex<Receiver<()>>);

impl Namespaces for Late {
    fn root_of(&self, namespace: &Path, asked: Option<&Path>) -> anyhow::Result<PathBuf> {
        Directories.root_of(namespace, asked)
    }

    fn open(&self, namespace: &Path) -> anyhow::Result<Box<dyn ListingSource>> {
        Directories.open(namespace)
    }

    fn follow(&self, namespace: &Path, known: Option<&str>) -> anyhow::Result<Followed> {
        self.0.lock().unwrap().recv()?;
        Directories.follow(namespace, known)
    }

    fn forget(&self, namespace: &Path, known: &str) {
        Directories.forget(namespace, known);
    }
}

#[test]
fn a_stopped_call_publishes_nothing_and_the_next_one_publishes_all() {
    let place = tempfile::tempdir().unwrap();
    let (tree, index) = (tree(place.path(), "tree", 3), place.path().join("index"));
    let (site, cancel) = (Site::default(), Cancel::default());
    let cx = Context::new(&site, &cancel);
    let namespace = namespace_of(&tree);
    let follow = |namespaces: &dyn Namespaces, stop: &dyn Fn() -> bool| {
        let verb = Verb::Follow(&namespace);
        let call = VerbCall { verb, index: &index, rate_max: None, stop };
        InProcess { namespaces: Some(namespaces) }.run(&cx, &call)
    };
    for (generation, name) in [(1, "0"), (2, "new")] {
        fs::write(tree.join(name), "").unwrap();
        // Before the second question, the first answer has cancelled the call.
        let (cancelled, opens) = sync_channel(1);
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                cancelled.send(()).unwrap();
            }
            true
        };
        let stopped = follow(&Late(Mutex::new(opens)), &stop).unwrap_err();
        assert!(stopped.is::<Stopped>() || stopped.is::<Interrupted>(), "{stopped:#}");
        let published = Index::open(&index).map_or(0, |index| index.generation().0);
        assert_eq!(published, generation - 1);
        let next = follow(&Directories, &|| false).unwrap();
        assert_eq!(next.generation.map(|it| it.0), Some(generation));
        assert!(entries(&index, &tree).iter().any(|one| one == name));
    }
    assert!(!cancel.is_requested());
}

#[test]
fn a_daemon_follows_namespaces_and_trees_in_its_process() {
    let place = tempfile::tempdir().unwrap();
    let trees = ["namespace", "tree"].map(|name| tree(place.path(), name, 2));
    let moved = place.path().join("moved");
    let index = place.path().join("index");
    let (site, messages) = (Site::default(), Messages::default());
    let cancel = [Cancel::default()];
    let cx = Context { observer: &messages, ..Context::new(&site, &cancel[0]) };
    let options = DaemonOptions {
        interval: Duration::from_millis(100),
        ..DaemonOptions::new(vec![namespace_of(&trees[0]), trees[1].clone()])
    };
    let daemon = Daemon::begin(&cx, &index, &options, &RUNNER, &|_| {}).unwrap();
    std::thread::scope(|scope| {
        let _ends = CancelAll(&cancel);
        let running = scope.spawn(|| daemon.run());
        for tree in &trees {
            wait_for(&index, tree, "0");
            fs::write(tree.join("new"), "").unwrap();
            wait_for(&index, tree, "new");
        }
        // A namespace that cannot be read is tried again, and the tree is still followed.
        fs::rename(&trees[0], &moved).unwrap();
        let is_reported = || messages.0.lock().unwrap().iter().any(|one| one.contains("again"));
        wait_until("a message", is_reported);
        fs::write(trees[1].join("newer"), "").unwrap();
        wait_for(&index, &trees[1], "newer");
        fs::write(moved.join("newer"), "").unwrap();
        fs::rename(&moved, &trees[0]).unwrap();
        wait_for(&index, &trees[0], "newer");
        cancel[0].request();
        running.join().unwrap().unwrap();
    });
    let messages = messages.0.into_inner().unwrap();
    let expected = "the namespace cannot be read";
    assert!(messages.iter().all(|one| one.contains(expected)), "{messages:?}");
}
