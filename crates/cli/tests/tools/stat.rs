//! stat's forms.

use crate::common::seeded;
use crate::place::{Case, Site, users, words};
use rand::RngExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTIVES: &str = "aAbBdDfFgGhimnNorRstTuUwWxXyYzZ";

fn compare(site: &Site, line: Vec<String>, dir: &Path, user: usize) {
    let users = users();
    let user = users[user].as_ref();
    site.compare(&Case {
        tool: "stat",
        words: line,
        dir,
        user,
        vars: &[],
        end: b'\n',
        unordered: false,
    });
}

/// All entries of the tree's top, by name.
fn names(site: &Site) -> Vec<String> {
    let entries = std::fs::read_dir(&site.tree).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names
}

#[test]
fn stat_prints_what_gnus_stat_prints() {
    let site = Site::new();
    let names = names(&site);
    let of_all = |options: &[&str]| {
        let mut line: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        line.push("--".to_owned());
        line.extend(names.clone());
        line
    };
    for user in 0..3 {
        for options in [
            &[][..],
            &["-t"],
            &["-L"],
            &["-Lt"],
            &["--terse", "--cached=never"],
            &["-c", "%n"],
            &["--format=%s %N"],
        ] {
            compare(&site, of_all(options), &site.tree, user);
        }
    }
    for format in ["%Hd,%Ld|%Hr,%Lr", "%%|%n%%", "%", "100%"] {
        compare(&site, of_all(&["-c", format]), &site.tree, 0);
    }
    for format in [
        "%n\\n",
        "\\t%s\\x41\\101\\e[0m\\a\\b\\f\\v\\r\\\\\\\"|",
        "a\\0b%n\\n",
        "%n\\",
        "\\x|\\q|\\8\\n",
    ] {
        compare(&site, of_all(&["--printf", format]), &site.tree, 0);
        compare(&site, of_all(&["-c", format]), &site.tree, 0);
    }
    // A wrong directive ends it, behind what was printed before.
    for format in ["%5%", "%n|% ", "%-", "%s %+%", "%#"] {
        let [expected, shown] =
            site.run(None, &site.tree, "stat", &["-c".into(), format.into(), "plain".into()], &[]);
        assert_eq!(shown.stdout, expected.stdout, "{format}");
        let said = String::from_utf8(expected.stderr).unwrap().replace("stat: ", "canopy: ");
        assert_eq!(String::from_utf8(shown.stderr).unwrap(), said, "{format}");
        assert_eq!(shown.status.code(), expected.status.code(), "{format}");
    }
    let mut random = seeded(3);
    for number in 0..300 {
        let mut format = String::new();
        for _ in 0..random.random_range(1..5) {
            let letter = DIRECTIVES.chars().nth(random.random_range(0..DIRECTIVES.len())).unwrap();
            let flags = ["", "-", "0", "#", "+", "'"][random.random_range(0..6)];
            let width = ["", "30"][random.random_range(0..2)];
            let precision = ["", ".1", ".6"][random.random_range(0..3)];
            // stat cannot tell the mount point of what it may not enter, but the index can.
            let letter = if matches!(letter, 'N' | 'm') { 'n' } else { letter };
            format.push_str(&format!("%{flags}{width}{precision}{letter}|"));
        }
        let option = ["-c", "--printf", "-Lc"][number % 3];
        let mut line = vec![option.to_owned(), format];
        line.push("--".to_owned());
        line.extend((0..3).map(|_| names[random.random_range(0..names.len())].clone()));
        compare(&site, line, &site.tree, number % 3);
    }
    compare(&site, words("-c %n|%N|%h a/one to-a ./a/../c/d"), &site.linked, 0);
}

#[test]
fn stat_takes_flags_widths_and_precisions_as_gnus_stat_does() {
    let site = Site::new();
    let names = names(&site);
    let all_flags =
        ["", "20", "-20", "020", "#", "'", "+", ".3", "-#12.4", "012.", " 9", "#30.", "-.5"];
    for letter in DIRECTIVES.chars() {
        // Where it drops a flag, stat 9.1 prints an 's' too many behind the target of a link.
        let is_right = |flags: &&str| {
            let is_dropped = flags.starts_with(['0', '\'', '+', ' ']) || flags.contains('#');
            letter != 'N' || !is_dropped
        };
        let formats = all_flags.iter().copied().filter(is_right);
        let formats: Vec<String> = formats.map(|flags| format!("[%{flags}{letter}]")).collect();
        for format in [&formats.join("\n"), &formats[0]] {
            let mut line = ["-c", format, "--"].map(str::to_owned).to_vec();
            line.extend(names.clone());
            compare(&site, line, &site.tree, 0);
        }
    }
}

#[test]
fn stat_names_extended_attributes_behind_what_gnus_stat_prints() {
    let site = Site::new();
    let file = site.tree.join("plain");
    rustix::fs::setxattr(&file, "user.project", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    site.place.index(&site.index, &site.tree);
    let [expected, shown] = site.run(None, &site.tree, "stat", &["plain".into()], &[]);
    let expected = String::from_utf8(expected.stdout).unwrap() + "Xattrs: user.project\n";
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), expected);
}

#[test]
fn stat_fits_seconds_into_widths_as_gnus_stat_does() {
    let site = Site::new();
    let mut formats = Vec::new();
    for letter in "WXYZ".chars() {
        for flags in ["", "-", "0", "+", " ", "-0", "0+", "'"] {
            for width in ["", "1", "2", "5", "8", "10", "11", "12", "14", "16", "20", "30"] {
                for precision in ["", ".", ".0", ".1", ".3", ".8", ".9", ".10", ".15"] {
                    formats.push(format!("[%{flags}{width}{precision}{letter}]"));
                }
            }
        }
    }
    // A line of output for each format, so that the wrong one is seen.
    for formats in formats.chunks(27) {
        let format = formats.join("\n");
        let line = ["-c", &format, "--", "plain", "loop", "sub", "exec", "empty", "none"];
        compare(&site, line.map(str::to_owned).to_vec(), &site.tree, 0);
    }
}

#[test]
fn stat_takes_quoting_zone_and_locale_from_the_environment() {
    let site = Site::new();
    let line = |options: &[&str]| {
        let mut line: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        line.push("--".to_owned());
        line.extend(names(&site));
        line
    };
    for style in
        ["literal", "shell", "shell-always", "c", "c-maybe", "escape", "locale", "clocale", "bad"]
    {
        for locale in ["C", "C.UTF-8"] {
            for options in [&["-c", "%N|%-40N|%.4N"][..], &["--printf", "%n %N\\n"], &[]] {
                let vars =
                    [("QUOTING_STYLE", style), ("LC_ALL", locale), ("TZ", "America/New_York")];
                let case = Case {
                    tool: "stat",
                    words: line(options),
                    dir: &site.tree,
                    user: None,
                    vars: &vars,
                    end: b'\n',
                    unordered: false,
                };
                site.compare(&case);
            }
        }
    }
}

#[test]
fn stat_tells_what_is_missing_as_gnus_stat_does() {
    let site = Site::new();
    for user in 0..3 {
        for line in [
            "-c %n missing plain",
            "-c %n plain/",
            "-c=%n plain",
            "-L -c %n broken to-file",
            "-c %n private/secret sub",
            "-c %N sub/ sub// ./sub to-dir/ ../tree",
        ] {
            compare(&site, words(line), &site.tree, user);
        }
    }
    for line in [
        "",
        "-c",
        "-c %n",
        "-Lc",
        "--printf",
        "-e plain",
        "--nonsense plain",
        "--format",
        "--f plain",
        "--terse=1 plain",
        "--cached plain",
        "--cached=x plain",
        "--cached= plain",
        "-c %5 plain",
        "-c %-10.3 plain",
        "-c %5 missing plain missing",
    ] {
        site.both_refuse("stat", line, &[]);
    }
}

#[test]
fn stat_warns_of_escapes_as_gnus_stat_does() {
    let site = Site::new();
    for format in ["%n\\", "a\\q%s\\x|\\8\\9\\n", "\\\\\\\"\\a\\e\\101\\x41", "\\x", "\\%n\\"] {
        let words = ["--printf".into(), format.into(), "plain".into()];
        let [expected, shown] = site.run(None, &site.tree, "stat", &words, &[]);
        let warnings = |output: &[u8]| {
            let text = String::from_utf8_lossy(output).into_owned();
            let lines = text.lines().map(|line| line.split_once(": ").unwrap().1.to_owned());
            lines.collect::<Vec<_>>()
        };
        assert_eq!(warnings(&shown.stderr), warnings(&expected.stderr), "{format}");
        assert_eq!(shown.stdout, expected.stdout, "{format}");
        assert_eq!(shown.status.code(), expected.status.code(), "{format}");
    }
}

#[test]
fn stat_tells_devices_and_mount_points_as_gnus_stat_does() {
    let site = Site::new();
    let mounted = site.tree.join("sub/deeper");
    let mount = |arguments: &[&str]| {
        let status = Command::new("mount").args(arguments).arg(&mounted).status().unwrap();
        assert!(status.success());
    };
    mount(&["-t", "tmpfs", "none"]);
    let _unmount = Unmount(mounted.clone());
    std::fs::create_dir_all(mounted.join("in/it")).unwrap();
    std::fs::write(mounted.join("file"), "x").unwrap();
    site.place.index(&site.index, &site.tree);
    for line in ["%d|%D|%Hd|%Ld|%m|%n", "%m"] {
        let files = "-- . .. sub sub/deeper sub/deeper/in/it sub/deeper/file to-dir plain char";
        let mut words = words(files);
        words.splice(0..0, ["-c".to_owned(), line.to_owned()]);
        words.retain(|word| word != "..");
        compare(&site, words, &site.tree, 0);
    }
    compare(&site, words("-t sub/deeper sub/deeper/in"), &site.tree, 0);
}

/// Unmounts a directory in the end.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn stat_prints_json() {
    let site = Site::new();
    let words = ["--json", "plain", "to-dir", "char", "missing"].map(Into::into);
    let [_, shown] = site.run(None, &site.tree, "stat", &words, &[]);
    assert_eq!(shown.status.code(), Some(1));
    let rows: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let expected = ["plain", "to-dir", "char"].map(|name| {
        let found = site.tree.join(name).symlink_metadata().unwrap();
        (name.to_owned(), found.ino(), found.size(), found.rdev(), found.blksize(), found.dev())
    });
    let number = |row: &serde_json::Value, key: &str| row[key].as_u64().unwrap();
    let shown = rows.as_array().unwrap().iter().map(|row| {
        let [ino, size, rdev, blksize, dev] =
            ["ino", "size", "rdev", "blksize", "dev"].map(|key| number(row, key));
        (row["path"].as_str().unwrap().to_owned(), ino, size, rdev, blksize, dev)
    });
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert_eq!(rows[1]["target"], "sub");
    assert_eq!(rows[0]["xattrs"], serde_json::json!([]));
}
