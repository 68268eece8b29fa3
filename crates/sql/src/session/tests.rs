use super::*;
use arrow::datatypes::DataType;
use canopy_index::{NewSource, Writer, WriterOptions};
use canopy_model::{Approach, Attributes, Device};
use datafusion::logical_expr::{Volatility, create_udf};
use std::path::Path;

/// The limit that a session is given.
#[derive(PartialEq)]
enum Limit {
    Time,
    Memory,
}

/// A session over an index of an empty directory, with a function that panics.
fn session(directory: &Path, limit: Limit) -> Session {
    let mut writer = Writer::open(directory, WriterOptions::default()).unwrap();
    let source = NewSource {
        name: None,
        root: "/empty".to_owned(),
        dev: Device(1),
        scanned_ns: 0,
        attributes: Attributes { mode: 0o040_755, ..Attributes::default() },
        approach: Approach::EVERYONE,
        xattrs: Vec::new(),
        scan: None,
    };
    writer.add_source(source).unwrap();
    writer.publish().unwrap();
    let options = SessionOptions {
        threads: 2,
        gufi: false,
        time: (limit == Limit::Time).then_some(Duration::from_secs(1)),
        memory_bytes: (limit == Limit::Memory).then_some(16 << 20),
        spill_directory: None,
        table: TableStyle::default(),
    };
    let session = Session::open(Index::open(directory).unwrap(), options).unwrap();
    let boom = Arc::new(|_: &[_]| panic!("this one is for the test"));
    let (takes, gives) = (vec![DataType::Int64], DataType::Int64);
    session.context.register_udf(create_udf("boom", takes, gives, Volatility::Volatile, boom));
    session
}

fn answer(session: &Session, statement: &str) -> (Result<Answered>, String) {
    let mut output = Vec::new();
    let done = session.run(statement, AnswerFormat::Csv, false, &mut output);
    (done, String::from_utf8(output).unwrap())
}

#[test]
fn an_answer_is_not_whole_where_a_worker_panics() {
    let place = tempfile::tempdir().unwrap();
    let session = session(&place.path().join("index"), Limit::Memory);
    for statement in [
        "SELECT boom(1)",
        "SELECT boom(column1) FROM (VALUES (1), (2))",
        "SELECT column1, sum(boom(column1)) FROM (VALUES (1), (2), (3)) GROUP BY column1",
        "SELECT a.column1 FROM (VALUES (1), (2)) a JOIN (VALUES (2)) b ON boom(a.column1) = b.column1",
        "SELECT column1 FROM (VALUES (1), (2)) ORDER BY boom(column1)",
        "SELECT 1 UNION ALL SELECT boom(1)",
    ] {
        let (done, output) = answer(&session, statement);
        assert!(
            matches!(done, Err(Error::Broken(_) | Error::Sql { .. })),
            "{statement}: {done:?}, {output}"
        );
        // The next one is answered.
        assert_eq!(answer(&session, "SELECT 1 + 1 AS two").1, "two\n2\n");
    }
}

/// Three thousand numbers.
const NUMBERS: &str = "(SELECT unnest(range(0, 3000)) AS x)";

#[test]
fn a_statement_takes_no_more_memory_than_it_may() {
    let place = tempfile::tempdir().unwrap();
    let session = session(&place.path().join("index"), Limit::Memory);
    let statement =
        format!("SELECT array_length(array_agg(a.x + b.x)) FROM {NUMBERS} a, {NUMBERS} b");
    let (done, _) = answer(&session, &statement);
    assert!(matches!(done, Err(Error::Memory { limit_bytes: 16_777_216, .. })), "{done:?}");
}

#[test]
fn a_statement_takes_no_more_time_than_it_may() {
    let place = tempfile::tempdir().unwrap();
    let session = session(&place.path().join("index"), Limit::Time);
    // The engine does not look up from it, and has nothing to hand over.
    let statement = format!(
        "SELECT count(*) FROM {NUMBERS} a JOIN (SELECT a.x FROM {NUMBERS} a, {NUMBERS} b) b \
         ON a.x > b.x + 3000"
    );
    let begun = Instant::now();
    let done = answer(&session, &statement).0;
    assert!(matches!(done, Err(Error::Time(_))), "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}
