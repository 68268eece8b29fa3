//! Manual pages, help, and what goes into packages. Needs man(1), strip(1) and root.

use crate::common;

use common::Fixture;
use common::requirements::has;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use toml::de::{DeTable, DeValue};

fn canopy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_canopy")).args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = canopy(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Commands that help lists.
fn commands() -> Vec<String> {
    let help = text(&["--help"]);
    let listed = help.split_once("Commands:").unwrap().1.split_once("Options:").unwrap().0;
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The output of man(1) for a page; there must be no warning.
fn shown(page: &Path) -> String {
    let mut man = Command::new("man");
    let output = man
        .args(["--warnings", "-l"])
        .arg(page)
        .env("MANWIDTH", "200")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_fits_the_terminal() {
    for (columns, most) in [(80, 80), (200, 100)] {
        for words in ["--help", "du --help", "help index"] {
            let line = format!("stty cols {columns}; {} {words}", env!("CARGO_BIN_EXE_canopy"));
            let mut command = Command::new("script");
            command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
            command.env("SHELL", "/bin/sh").env("NO_COLOR", "1");
            let output = command.output().unwrap();
            let help = String::from_utf8(output.stdout).unwrap();
            let widths = help.lines().map(|line| line.trim_end().chars().count());
            let widest = widths.max().unwrap();
            assert!((most - 10..=most).contains(&widest), "{words} of {widest} columns: {help}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page_with_its_options() {
    let dir = tempfile::tempdir().unwrap();
    text(&["man", dir.path().to_str().unwrap()]);
    for command in commands() {
        let page = shown(&dir.path().join(format!("canopy-{command}.1")));
        for heading in ["ENVIRONMENT", "EXIT STATUS", "FILES", "SEE ALSO"] {
            assert!(page.contains(&format!("\n{heading}\n")), "{command}: {heading}");
        }
        let help = text(&[&command, "--help"]);
        let options: BTreeSet<&str> = help
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter(|word| word.len() > 3 && word.starts_with("--"))
            .collect();
        assert!(options.contains("--help"), "{help}");
        let missing: Vec<_> = options.iter().filter(|option| !page.contains(**option)).collect();
        assert!(missing.is_empty(), "{command}: {missing:?}\n{page}");
    }
    assert!(shown(&dir.path().join("canopy-table-add.1")).contains("--sqlite-table"));
    let main = dir.path().join("main.1");
    fs::write(&main, text(&["man"])).unwrap();
    let page = shown(&main);
    assert!(
        page.contains("canopy-sql(1)")
            && page.contains("CANOPY_PRUNE_NAMES")
            && page.contains("EXIT STATUS"),
        "{page}"
    );
    // Pages that are named are there.
    for entry in fs::read_dir(dir.path()).unwrap() {
        let page = fs::read_to_string(entry.unwrap().path()).unwrap().replace("\\-", "-");
        for (before, _) in page.match_indices("(1)").map(|(at, _)| page.split_at(at)) {
            let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).next();
            let name = name.unwrap();
            if name.starts_with("canopy") {
                assert!(dir.path().join(format!("{name}.1")).is_file(), "{name}");
            }
        }
    }
    let page = shown(&dir.path().join("canopy-ls.1"));
    assert!(page.contains("\nEXAMPLES\n") && page.contains("LS_COLORS"), "{page}");
    assert_eq!(fs::read(&main).unwrap(), fs::read(dir.path().join("canopy.1")).unwrap());
}

#[test]
fn help_explains_commands_and_topics() {
    assert_eq!(text(&["help"]), text(&["--help"]));
    assert_eq!(text(&["help", "sql"]), text(&["sql", "--help"]));
    assert_eq!(text(&["help", "table", "add"]), text(&["table", "add", "--help"]));
    for (topic, words) in [
        ("at", "mean the last generation that was published by then"),
        ("config", "/etc/canopy/config.toml"),
        ("environment", "CANOPY_INDEX"),
        ("exit-codes", "partial"),
        ("prompt", ".tables"),
    ] {
        let shown = text(&["help", topic]);
        assert!(shown.contains(words), "{topic}");
        let widest = shown.lines().max_by_key(|line| line.len()).unwrap();
        assert!(widest.len() <= 80, "{topic}: {widest}");
    }
    let output = canopy(&["help", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("topics are at, config"));
}

/// Strings of a list of tables, by a key of each; of a list of lists, their first.
fn sources(package: &DeTable<'_>, of: &str) -> Vec<String> {
    let metadata = package.get("metadata").unwrap().get_ref().as_table().unwrap();
    let package = metadata.get(of).unwrap().get_ref().as_table().unwrap();
    let assets = package.get("assets").unwrap().get_ref().as_array().unwrap();
    let source = |asset: &DeValue<'_>| match asset {
        DeValue::Array(fields) => {
            fields.iter().next().unwrap().get_ref().as_str().unwrap().to_owned()
        }
        other => {
            other.as_table().unwrap().get("source").unwrap().get_ref().as_str().unwrap().to_owned()
        }
    };
    assets.iter().map(|asset| source(asset.get_ref())).collect()
}

#[test]
fn files_of_packages_exist() {
    // Packages are made of a copy, so that nothing is written beside the sources.
    let dir = tempfile::tempdir().unwrap();
    for part in ["packaging", "docs", "LICENSE"] {
        let copied =
            Command::new("cp").arg("-r").arg(root().join(part)).arg(dir.path()).status().unwrap();
        assert!(copied.success(), "{part}");
    }
    for part in ["cli", "c/include"] {
        fs::create_dir_all(dir.path().join("crates").join(part)).unwrap();
    }
    let header = "crates/c/include/canopy.h";
    fs::copy(root().join(header), dir.path().join(header)).unwrap();
    fs::copy(root().join("crates/cli/Cargo.toml"), dir.path().join("crates/cli/Cargo.toml"))
        .unwrap();
    let made = Command::new(dir.path().join("packaging/build"))
        .args(["generate", env!("CARGO_BIN_EXE_canopy")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    programs_in_c_find_the_library(&dir.path().join("packaging/generated"));
    let manifest = fs::read_to_string(root().join("crates/cli/Cargo.toml")).unwrap();
    let manifest = DeTable::parse(&manifest).unwrap();
    let package = manifest.get_ref().get("package").unwrap().get_ref().as_table().unwrap();
    for of in ["deb", "generate-rpm"] {
        let sources = sources(package, of);
        assert!(sources.len() > 5, "{sources:?}");
        for source in sources {
            let below = source.strip_prefix("../../").unwrap();
            match below.split_once('*') {
                Some((parent, end)) => {
                    let files = fs::read_dir(dir.path().join(parent)).unwrap();
                    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
                    assert!(names.filter(|name| name.ends_with(end)).count() > 3, "{of}: {source}");
                }
                None => {
                    assert!(dir.path().join(below).metadata().unwrap().len() > 0, "{of}: {source}")
                }
            }
        }
    }
}

/// Links a program by what pkg-config prints, and runs it.
fn programs_in_c_find_the_library(usr: &Path) {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let source = "#include <canopy.h>\n#include <stdio.h>\n\
        int main(void) { canopy *c; int e = canopy_connect(\"canopy://\", NULL, NULL, &c);\n\
        printf(\"%d %s\\n\", e < 0, canopy_strerror(e)); return 0; }";
    let (file, program) = (usr.join("program.c"), usr.join("program"));
    fs::write(&file, source).unwrap();
    let pkg_config = || {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", usr.join("lib/pkgconfig"));
        command
    };
    let flags = pkg_config().args(["--cflags", "--libs", "canopy"]).output().unwrap();
    assert!(flags.status.success(), "{}", String::from_utf8_lossy(&flags.stderr));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let mut cc = Command::new("cc");
    cc.arg(&file).arg("-o").arg(&program).args(flags.split_whitespace());
    let built = cc.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&program).env("LD_LIBRARY_PATH", usr.join("lib")).output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && shown.starts_with("1 "), "{shown} {ran:?}");
    let version = pkg_config().args(["--modversion", "canopy"]).output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    assert_eq!(text(&["--version"]), format!("canopy {version}"));
}

#[test]
fn units_and_the_example_of_a_configuration_are_right() {
    let place = Fixture::new();
    let service = fs::read_to_string(root().join("packaging/canopy-index.service")).unwrap();
    let started =
        service.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/canopy ")).unwrap();
    if has("systemd-analyze") {
        // It wants the command of a unit to exist.
        let ours = service.replace("/usr/bin/canopy", place.canopy.to_str().unwrap());
        fs::write(place.path("canopy-index.service"), ours).unwrap();
        fs::copy(root().join("packaging/canopy-index.timer"), place.path("canopy-index.timer"))
            .unwrap();
        let units = [place.path("canopy-index.service"), place.path("canopy-index.timer")];
        let checked = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .args(&units)
            .output()
            .unwrap();
        let complaints = String::from_utf8(checked.stderr).unwrap();
        assert!(checked.status.success() && !complaints.contains("canopy-index"), "{complaints}");
    }
    // All that is commented out is right, and the command of the service indexes it.
    let example = fs::read_to_string(root().join("packaging/config.toml")).unwrap();
    let lines = example.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => key,
        _ => line,
    });
    let config = lines.collect::<Vec<_>>().join("\n");
    let keys = config.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')).count();
    assert_eq!(keys, 10, "{config}");
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    let config = config
        .replace("/var/lib/canopy/index", index.to_str().unwrap())
        .replace("[\"/home\", \"/srv\"]", &format!("[{tree:?}]"))
        // The test's own tree lies there.
        .replace("\"/tmp\", ", "");
    fs::write(place.path("config.toml"), config).unwrap();
    let errors = place.path("errors.txt");
    let words = started.replace("/var/log/canopy/errors.txt", errors.to_str().unwrap());
    let done = Command::new(&place.canopy)
        .args(words.split_whitespace())
        .env("CANOPY_SITE_CONFIG", place.path("config.toml"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(index.join("CURRENT").exists() && errors.exists());
}
