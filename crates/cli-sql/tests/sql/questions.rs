//! The questions of docs/reports.md, asked as they stand there. Needs root.

use crate::common;

use common::Fixture;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn questions_of_administrators_have_right_answers() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    for (name, size, owner, days) in [
        ("large-unused", 200_000_000_000, 2001, 500),
        ("large-used", 200_000_000_000, 2002, 1),
        ("small-unused", 5, 2002, 500),
        ("ancient", 7, 2001, 4000),
    ] {
        let file = fs::File::create(tree.join(name)).unwrap();
        file.set_len(size).unwrap();
        let then = SystemTime::now() - DAY * days;
        file.set_times(fs::FileTimes::new().set_accessed(then).set_modified(then)).unwrap();
        chown(tree.join(name), Some(owner), None).unwrap();
    }
    place.index(&index, &tree);

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports.md");
    let docs = fs::read_to_string(docs).unwrap();
    let run = |question: &str| {
        let question = question.replace("/data", tree.to_str().unwrap());
        let command = format!("{} --index {}", place.canopy.display(), index.display());
        let line = question.replacen("canopy", &command, 1);
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{question}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{question}");
        shown.replace(&format!("{}/", tree.display()), "")
    };
    let statements: Vec<&str> =
        docs.lines().filter(|line| line.starts_with("canopy sql")).collect();
    let answers = statements.iter().map(|line| {
        let shown = run(&line.replacen("sql", "sql --format csv", 1));
        let rows = shown.lines().skip(1).map(|row| row.split(",2").next().unwrap().to_owned());
        rows.collect::<Vec<_>>()
    });
    let answers: Vec<Vec<String>> = answers.collect();
    assert_eq!(answers[0], ["large-unused"]);
    assert_eq!(answers[1], ["ancient"]);
    assert_eq!(answers[2].len(), 2);
    for (question, expected) in [
        ("canopy find /data -type f -size +100G -atime +365", "large-unused\n"),
        ("canopy find /data -type f -mtime +3650", "ancient\n"),
    ] {
        assert!(docs.contains(question));
        assert_eq!(run(question), expected);
    }
    let first = |list: &str| {
        let shown = run(&format!("canopy top {list} -n 1 --json /data"));
        assert!(docs.contains(list.split(' ').next().unwrap()));
        shown
    };
    assert!(first("unused").contains("ancient"));
    assert!(first("oldest").contains("ancient"));
    assert!(first("users").contains("2001") && !first("users").contains("2002"));
}
