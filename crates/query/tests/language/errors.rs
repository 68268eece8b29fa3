//! Errors in queries, and their messages.

use super::component;
use canopy_query::{QUERY_BYTES_MAX, shown};

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn errors_say_what_would_be_right() {
    for (query, said) in [
        ("[]", "an empty query"),
        ("[ ]", "an empty query"),
        ("[foo]", "unknown attribute 'foo'"),
        ("[foo=1]", "unknown attribute 'foo'"),
        ("[usr.foo=1]", "extended attributes begin with 'user.'"),
        ("[user.]", "extended attributes begin with 'user.'"),
        ("[\"foo\"=1]", "unknown attribute 'foo'"),
        ("[type=f,d]", "several types are written as in type=fd"),
        ("[type=f|d]", "several types are written as in type=fd"),
        ("[type=f or d]", "several types are written as in type=fd"),
        ("[type=f and sise>1]", "unknown attribute 'sise'; there are size, "),
        ("[type=f, sise>1]", "unknown attribute 'sise'; there are size, "),
        ("[name=x and sise>1]", "unknown attribute 'sise'; there are size, "),
        ("[name=x|sise>1]", "unknown attribute 'sise'; there are size, "),
        ("[type=x]", "one or more of the letters"),
        ("[type>f]", "type takes = and !="),
        ("[size]", "size needs an operator and a value, as in size>1M"),
        ("[size>]", "a value is missing"),
        ("[size=]", "a value is missing"),
        ("[size>-1]", "not a size"),
        ("[size>1b]", "write 1B for bytes"),
        ("[size>010]", "write '10' without a 0 in front"),
        ("[size>0010.5K]", "write '10.5K' without a 0 in front"),
        ("[uid=00]", "write '0' without a 0 in front"),
        ("[size~1*]", "size takes =, !=, <, <=, > and >="),
        ("[size=<1]", "unknown operator '=<'"),
        ("[size>1M<2M]", "quote a value that has <"),
        ("[size>1M uid=5]", "'and' or 'or' is missing before 'uid=5'"),
        ("[size>{1,2}]", "a set goes with = or ~"),
        ("[uid={1]", "a set ends with '}'"),
        ("[uid={}]", "a value is missing"),
        ("[uid=ada]", "user=NAME"),
        ("[blocks>1M]", "allocated>1M"),
        ("[user=bob]", "unknown user 'bob'"),
        ("[user=-1]", "unknown user '-1'"),
        ("[group=ada]", "unknown group 'ada'"),
        ("[user=+5]", "unknown user '+5'"),
        ("[name~a,b]", "goes into quotes"),
        ("[user~a*]", "user takes = and !="),
        ("[perm=999]", "octal"),
        ("[perm=u+x]", "octal"),
        ("[perm-any=0]", "needs a bit"),
        ("[perm-all=-22]", "octal"),
        ("[mtime>30d]", "write -30d, or age>30d"),
        ("[mtime=-1d]", "a moment"),
        ("[mtime=now]", "a moment"),
        ("[mtime>-1m]", "write min or mon"),
        ("[mtime>1700000000]", "@1700000000"),
        ("[mtime~2023*]", "mtime takes =, !=, <, <=, > and >="),
        ("[age>-30d]", "not an age"),
        ("[age=30d]", "age takes <, <=, > and >="),
        ("[age>30]", "needs a unit"),
        ("[name=*.c]", "give ~*.c for a pattern"),
        ("[name>a]", "name takes =, !=, ~, !~, =~ and !=~"),
        ("[name=it's]", "quote a value that has '"),
        ("[name=a b]", "'and' or 'or' is missing before 'b'"),
        ("[name=~a(b]", "quote a value that has ("),
        ("[name=~'a(b']", "no regular expression: unmatched ("),
        ("[name=~*.c]", "no regular expression"),
        ("[name=~'((a{99}){99}){99}']", "too big"),
        ("[ext=.c]", "without the dot: c"),
        ("[ext=tar.gz]", "name~*.tar.gz"),
        ("[ext=\"\"]", "not ext~*"),
        ("[user.a>b]", "quote it to compare texts"),
        ("[user.a>inf]", "quote it to compare texts"),
        ("[has]", "'has' takes"),
        ("[has(size)]", "'has' takes"),
        ("[has(user.a]", "'has' takes"),
        ("[(size>1]", "a ')' is missing"),
        ("[size>1)]", "a ')' without a '('"),
        ("[and size>1]", "a test is missing before 'and size>1'"),
        ("[size>1 and]", "a test is missing"),
        ("[size>1,]", "a test is missing"),
        ("[not]", "a test is missing"),
        ("[!=5]", "a test is missing before '=5'"),
        ("[size>1, uid=5 or gid=6]", "two ways"),
        ("[size>1 or uid=5, gid=6]", "two ways"),
        ("[empty=1]", "'and' or 'or' is missing"),
        ("[@]", "a value is missing"),
        ("[@\"\"]", "a snapshot has a name"),
        ("[@a b]", "nest queries"),
        ("[recent 1d, size>1]", "nest queries"),
        ("[recent, size>1]", "a value is missing"),
        ("[recent 1]", "-1d"),
        ("[duplicates size>1]", "nest queries"),
    ] {
        match component(query.as_bytes()) {
            Ok(read) => panic!("{query} is read as {read:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(said), "{query}: {message}");
                let plain = !message.ends_with('.') && !message.starts_with(char::is_uppercase);
                assert!(plain, "{query}: {message}");
                assert!(error.at <= query.len(), "{query}: {}", error.at);
            }
        }
    }
}

/// Messages had each byte of a character beyond ASCII as an escape of its own.
#[test]
fn messages_show_what_can_be_printed() {
    for (query, expected) in [
        ("[name=\"日本\"]".as_bytes(), "[name=\"日本\"]"),
        (b"[\x1b\n\\]", "[\\x1b\\n\\\\]"),
        ("[\u{202e}\u{9b}]".as_bytes(), "[\\u{202e}\\u{9b}]"),
        (b"[\xff]", "[\\xff]"),
    ] {
        assert_eq!(shown(query), expected);
    }
}

#[test]
fn places_are_those_of_the_component() {
    for (query, at) in [("[foo]", 1), ("[size>1 and foo=2]", 12), ("[size>x]", 6), ("[uid=1 x", 0)]
    {
        let found = component(query.as_bytes()).err().map_or(0, |error| error.at);
        assert_eq!(found, at, "{query}");
    }
}

#[test]
fn queries_beyond_the_limits_are_refused() {
    let depth = |count: usize| format!("[{}true{}]", "(".repeat(count), ")".repeat(count));
    assert!(component(depth(30).as_bytes()).is_ok());
    for (query, said) in [
        (depth(1000), "levels"),
        (format!("[{}true]", "!".repeat(1000)), "levels"),
        (format!("[{}true]", "not ".repeat(1000)), "levels"),
        (format!("[{}", "(".repeat(100) + "]"), "levels"),
        (format!("[true{}]", ",true".repeat(500)), "tests"),
        (format!("[uid={{1{}}}]", ",1".repeat(500)), "tests"),
        (format!("[name=~a{}]", ",name=~a".repeat(20)), "regular expressions"),
        (format!("[name={}]", "a".repeat(QUERY_BYTES_MAX)), "bytes"),
    ] {
        let error = component(query.as_bytes()).unwrap_err();
        assert!(error.message.contains(said), "{}", error.message);
    }
}
