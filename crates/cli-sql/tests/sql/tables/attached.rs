//! Tables of files that the administrator attaches.

use super::*;

#[test]
fn attached_files_join_by_path_and_by_device_and_inode() {
    let place = Fixture::new();
    let (tree, index) = small(&place);
    let files = [tree.join("open/seen"), tree.join("secret/hidden-name")];
    let csv = place.path("site data.csv");
    let mut text = "path,dev,ino,label\n".to_owned();
    for (number, file) in files.iter().enumerate() {
        let stat = file.metadata().unwrap();
        text += &format!("{},{},{},label-{number}\n", file.display(), stat.dev(), stat.ino());
    }
    fs::write(&csv, &text).unwrap();
    let csv = csv.to_str().unwrap();
    done(&place, &index, &["table", "add", "from_csv", csv]);
    // Other formats have these rows, too.
    let parquet = place.path("data.parquet");
    let copied =
        run(&place, &index, &root(), &["sql", "--format", "parquet", "SELECT * FROM from_csv"]);
    fs::write(&parquet, copied.stdout).unwrap();
    done(&place, &index, &["table", "add", "from_parquet", parquet.to_str().unwrap()]);
    let database = place.path("data#1?.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE \"a b\" (path, dev INT, ino, label TEXT); CREATE TABLE other (x)",
        )
        .unwrap();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<i64>().unwrap();
        let values = (fields[0], number(1), number(2), fields[3]);
        connection.execute("INSERT INTO \"a b\" VALUES (?, ?, ?, ?)", values).unwrap();
    }
    drop(connection);
    let database = database.to_str().unwrap();
    refused(
        &place,
        &index,
        &root(),
        &["table", "add", "from_sqlite", database],
        "choose one with --sqlite-table",
    );
    done(&place, &index, &["table", "add", "from_sqlite", database, "--sqlite-table", "a b"]);

    let expected = [r#"{"label":"label-0","size":5}"#, r#"{"label":"label-1","size":7}"#];
    let escaped: Vec<String> =
        expected.iter().map(|row| row.escape_default().to_string()).collect();
    for table in ["from_csv", "from_parquet", "from_sqlite"] {
        for join in ["a.path = e.path", "a.dev = e.dev AND a.ino = e.ino"] {
            let query = format!("SELECT a.label, e.size FROM entries e JOIN {table} a ON {join}");
            for (user, visible) in [(root(), 2), (alice(), 2), (bob(), 1)] {
                assert_eq!(rows(&place, &index, &user, &query), escaped[..visible], "{query}");
            }
        }
        let counted = rows(
            &place,
            &index,
            &bob(),
            &format!("SELECT count(*) AS n FROM {table} a, {table} b"),
        );
        assert_eq!(counted, [r#"{"n":4}"#.escape_default().to_string()]);
        let types = rows(
            &place,
            &index,
            &bob(),
            &format!("SELECT DISTINCT arrow_typeof(ino) AS t FROM {table}"),
        );
        assert_eq!(types, [r#"{"t":"Int64"}"#.escape_default().to_string()]);
    }
}

#[test]
fn directories_have_the_device_that_the_kernel_tells() {
    let place = Fixture::new();
    let (tree, index) = small(&place);
    let dev = tree.metadata().unwrap().dev();
    for table in ["entries", "directories"] {
        let query = format!("SELECT dev, count(*) AS n FROM {table} GROUP BY dev");
        let count = if table == "entries" { 2 } else { 3 };
        let expected = format!("{{\"dev\":{dev},\"n\":{count}}}").escape_default().to_string();
        assert_eq!(rows(&place, &index, &root(), &query), [expected]);
    }
    let root_row = format!(
        "SELECT count(*) AS n FROM directories WHERE path = '{}' AND dev = {dev}",
        tree.display()
    );
    assert_eq!(
        rows(&place, &index, &root(), &root_row),
        [r#"{"n":1}"#.escape_default().to_string()]
    );
}

#[test]
fn a_file_shows_its_rows_to_those_who_may_read_it() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    let data = place.path("data.csv");
    fs::write(&data, "path,word\n/x,sesame\n").unwrap();
    done(&place, &index, &["table", "add", "data", data.to_str().unwrap()]);
    chown(&data, Some(2001), Some(3001)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o600)).unwrap();
    let query = "SELECT word FROM data";
    let expected = [r#"{"word":"sesame"}"#.escape_default().to_string()];
    assert_eq!(rows(&place, &index, &alice(), query), expected);
    let words = format!("table data: cannot read {}: Permission denied", data.display());
    refused(&place, &index, &bob(), &["sql", query], &words);
    refused(&place, &index, &bob(), &["sql", "SELECT count(*) FROM entries, data"], &words);
    // In place of the file something else: still one error, and nobody waits for a pipe.
    fs::remove_file(&data).unwrap();
    refused(&place, &index, &alice(), &["sql", query], "No such file");
    nix::unistd::mkfifo(&data, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
    refused(&place, &index, &alice(), &["sql", query], "not a regular file");
}

/// Nothing is opened for a table that a query does not name: the files are gone.
#[test]
fn queries_that_do_not_name_a_table_do_not_open_it() {
    let place = Fixture::new();
    let (_, index) = small(&place);
    let data = place.path("data.csv");
    fs::write(&data, "path\n/x\n").unwrap();
    done(&place, &index, &["table", "add", "data", data.to_str().unwrap()]);
    done(&place, &index, &["table", "derive", "own", "SELECT path FROM entries"]);
    fs::remove_file(&data).unwrap();
    let output = Command::new("find")
        .arg(&index)
        .args(["-name", "table-*", "-delete", "-print"])
        .output()
        .unwrap();
    assert_eq!(sorted(&output.stdout, b'\n').len(), 2);
    for query in [
        "SELECT count(*) FROM entries",
        "SELECT * FROM directories",
        "SHOW TABLES",
        "DESCRIBE entries",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM information_schema.views",
    ] {
        done(&place, &index, &["sql", query]);
    }
    assert_eq!(done(&place, &index, &["table", "list"]).lines().count(), 3);
    refused(&place, &index, &root(), &["sql", "SELECT * FROM data"], "No such file");
    refused(&place, &index, &root(), &["sql", "SELECT * FROM own"], "No such file");
}
