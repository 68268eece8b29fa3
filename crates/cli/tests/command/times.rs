//! Times before 1970, with fractions and far from now, on every way in and out. Needs root.

use crate::common::{Fixture, sorted};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Names of files with their times, in seconds and nanoseconds since 1970: all are kept as they are.
const TIMES: [(&str, i64, i64); 10] = [
    ("before by half a second", -1, 500_000_000),
    ("before by one and a half", -2, 500_000_000),
    ("before by a nanosecond", -1, 999_999_999),
    ("first of 32 bits", -2_147_483_648, 0),
    ("1901", -2_147_483_649, 250_000_000),
    ("1701", -8_488_800_000, 1),
    ("1970", 0, 0),
    ("2038", 2_147_483_648, 5),
    ("2106", 4_294_967_296, 999_999_999),
    ("2239", 8_488_800_000, 123_456_789),
];

fn set_times(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
}

fn done(output: Output) -> Vec<u8> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn times_come_back_through_every_format() {
    let place = Fixture::new();
    // ext4 keeps no times before 1901.
    let disk = place.small_disk("disk", "8m");
    let tree = disk.0.join("tree");
    fs::create_dir(&tree).unwrap();
    for (name, seconds, nanoseconds) in TIMES {
        fs::write(tree.join(name), "x").unwrap();
        set_times(&tree.join(name), seconds, nanoseconds);
    }
    set_times(&tree, -2, 500_000_000);
    let index = place.path("index");
    place.index(&index, &tree);
    // The format of find(1) for times is odd before 1970, and ours.
    let format = "%P %T@ %A@ %t %TY-%Tm-%Td %TH:%TM:%TS\\0";
    let command = |program: &mut Command| {
        let shown =
            program.arg(&tree).args(["-type", "f", "-printf", format]).env("TZ", "UTC").output();
        sorted(&done(shown.unwrap()), 0)
    };
    let canopy = |index: &Path| {
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(index);
        command
    };
    let expected = command(&mut Command::new("find"));
    assert_eq!(command(canopy(&index).arg("find")), expected);
    assert_eq!(command(canopy(&index).args(["find", "--live"])), expected);
    let stat = |program: &mut Command| {
        let paths = TIMES.map(|(name, ..)| tree.join(name));
        program.args(["stat", "-c", "%n %y %Y %.Y %.3X %x"]).args(paths).env("TZ", "UTC");
        sorted(&done(program.output().unwrap()), b'\n')
    };
    assert_eq!(stat(&mut canopy(&index)), stat(&mut Command::new("env")));
    let list = place.path("list");
    let import = |format: &str, more: &[&str]| {
        let imported = place.path(&format!("imported-{format}"));
        let mut command = canopy(&imported);
        command.args(["import", "--format", format]).args(more).arg(&list);
        done(command.output().unwrap());
        imported
    };
    for format in ["csv", "ndjson", "parquet"] {
        let mut export = canopy(&index);
        export.args(["export", "--format", format]).arg(&tree).arg("-o").arg(&list);
        done(export.output().unwrap());
        assert_eq!(command(canopy(&import(format, &[])).arg("find")), expected, "{format}");
    }
    let printed = "%y %m %U %G %s %n %i %b %T@ %A@ %C@ %B@ %p\\0%l\\0";
    let find = Command::new("find").arg(&tree).args(["-printf", printed]).output().unwrap();
    fs::write(&list, done(find)).unwrap();
    assert_eq!(command(canopy(&import("find", &[])).arg("find")), expected, "find");
    // Traces have whole seconds, those that have begun.
    let mut export = canopy(&index);
    export.args(["export", "--format", "gufi-trace"]).arg(&tree).arg("-o").arg(&list);
    done(export.output().unwrap());
    let imported = import("gufi-trace", &["--root", tree.to_str().unwrap()]);
    let mut seconds = canopy(&imported);
    seconds.arg("stat").args(["-c", "%Y"]).args(TIMES.map(|(name, ..)| tree.join(name)));
    let expected: String = TIMES.iter().map(|(_, seconds, _)| format!("{seconds}\n")).collect();
    assert_eq!(String::from_utf8(done(seconds.output().unwrap())).unwrap(), expected);
    let query =
        "SELECT name, mtime FROM entries WHERE mtime < timestamp '1970-01-01' ORDER BY mtime";
    let shown = done(canopy(&index).args(["sql", "--format", "csv", query]).output().unwrap());
    assert_eq!(
        String::from_utf8(shown).unwrap(),
        "name,mtime\n1701,1701-01-01T00:00:00.000000001Z\n1901,1901-12-13T20:45:51.250Z\n\
         first of 32 bits,1901-12-13T20:45:52Z\nbefore by one and a half,1969-12-31T23:59:58.500Z\n\
         before by half a second,1969-12-31T23:59:59.500Z\n\
         before by a nanosecond,1969-12-31T23:59:59.999999999Z\n"
    );
}
