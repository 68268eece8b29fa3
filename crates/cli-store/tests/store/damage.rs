//! Damaged objects: `verify` finds what is wrong, and nothing panics or takes all memory.

use crate::place::{Fixture, command, options, put, with_flipped};
use canopy_store::{Base, KeyRange, TableId, checkpoint, clone, inspect};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// A table with each kind of object: SSTables, segments of a log that has not ended, a fence,
/// manifests, a checkpoint.
fn table(place: &Fixture) -> TableId {
    let id = place.table(3000);
    let table = place.open(id, &options());
    put(&table, 0..10);
    checkpoint(&place.environment, id, None).unwrap();
    table.flush().unwrap();
    for part in 0..4 {
        put(&table, part * 10..part * 10 + 10);
    }
    drop(table);
    place.assert_sound();
    id
}

/// Places to damage: all of a small file, and some all over a larger one.
fn places(path: &Path) -> impl Iterator<Item = usize> + use<> {
    let length = fs::metadata(path).unwrap().len() as usize;
    (0..length).step_by((length / 60).max(1)).chain(length.saturating_sub(60)..length)
}

#[test]
fn every_flipped_byte_of_a_manifest_is_found() {
    let place = Fixture::new();
    let id = table(&place);
    for path in place.objects(id, "manifest/") {
        for at in places(&path) {
            with_flipped(&path, at, || place.assert_fault(&path, ""));
        }
    }
    place.assert_sound();
}

#[test]
fn every_flipped_byte_of_an_sstable_is_found() {
    let place = Fixture::new();
    let id = table(&place);
    for path in [place.objects(id, "sst/").remove(0), place.objects(id, "sst/").pop().unwrap()] {
        for at in places(&path) {
            with_flipped(&path, at, || place.assert_fault(&path, ""));
        }
    }
    place.assert_sound();
    // Each damaged block is told, and what is not damaged is printed.
    let path = place.objects(id, "sst/").remove(0);
    let blocks = fs::metadata(&path).unwrap().len() as usize / 2;
    with_flipped(&path, 10, || {
        with_flipped(&path, blocks, || {
            let (_, text) = place.verify();
            assert_eq!(text.matches("has a wrong checksum in block").count(), 2, "{text}");
        });
        let output = place.run(&["dump", path.to_str().unwrap(), "--prefix", "1", "--reverse"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) || said.is_empty(), "{said}");
    });
}

#[test]
fn every_flipped_byte_of_a_log_is_found() {
    let place = Fixture::new();
    let id = table(&place);
    let segments = place.objects(id, "log/");
    let path = segments.last().unwrap();
    let bytes = fs::read(path).unwrap();
    let group = u32::from_le_bytes(bytes[24..28].try_into().unwrap()) as usize + 8;
    let last = bytes.len() - group;
    for at in places(path) {
        with_flipped(path, at, || match at {
            // The nonce: nothing knows what it was.
            16..24 => {}
            // In the last group it looks as if a crash had torn it, as it may.
            at if at >= last => {
                let (code, text) = place.verify();
                assert!(code == 0 && text.contains("note: ") && text.contains("torn"), "{text}");
            }
            // A length may reach the end of the file.
            24..28 => assert!(place.verify().1.contains("torn") || place.verify().0 == 1),
            _ => place.assert_fault(path, ""),
        });
    }
    let fence = segments.iter().find(|path| fs::metadata(path).unwrap().len() == 24).unwrap();
    for at in 0..15 {
        with_flipped(fence, at, || place.assert_fault(fence, ""));
    }
    fs::write(fence, [fs::read(fence).unwrap(), vec![1]].concat()).unwrap();
    place.assert_fault(fence, "a fence with something behind it");
}

#[test]
fn missing_objects_are_found() {
    let place = Fixture::new();
    let id = table(&place);
    let base = Base { table: id, checkpoint: None };
    let cloned = clone(&place.environment, &[base], &KeyRange::all()).unwrap();
    let away = place.dir.path().join("away");
    let without = |path: &Path, check: &dyn Fn()| {
        fs::rename(path, &away).unwrap();
        check();
        fs::rename(&away, path).unwrap();
    };
    for path in place.objects(id, "sst/") {
        without(&path, &|| place.assert_fault(&path, "no such object"));
        // The clone needs it, too.
        without(&path, &|| {
            let output = place.run(&["verify", "@", &cloned.to_string()]);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.code() == Some(1) && text.contains("no such object"), "{text}");
        });
    }
    let state = inspect(&place.environment, id).unwrap().state;
    for checkpoint in &state.checkpoints {
        let manifests = place.objects(id, "manifest/");
        let number = format!("{:020}", checkpoint.version.number);
        let path = manifests.iter().find(|path| path.ends_with(&number)).unwrap();
        without(path, &|| place.assert_fault(path, "of checkpoint"));
    }
    let segment = place.objects(id, "log/").pop().unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    let later = segment.with_file_name(format!("{:020}", name.parse::<u64>().unwrap() + 1));
    fs::rename(&segment, &later).unwrap();
    place.assert_fault(&segment, "is missing, and there are later ones");
    fs::rename(&later, &segment).unwrap();
    // A parent that has gone altogether.
    let parent = place.dir.path().join("storage").join(id.to_string());
    without(&parent, &|| {
        let (code, text) = place.verify();
        assert!(code == 1 && text.contains(&format!("a parent of table {cloned}")), "{text}");
    });
    place.assert_sound();
    // An unknown file is not a fault.
    fs::write(parent.join("sst/strange"), "").unwrap();
    let (code, text) = place.verify();
    assert!(code == 0 && text.contains("note: ") && text.contains("sst/strange"), "{text}");
    let stat = place.text(&["stat", "@", &id.to_string()]);
    assert!(stat.contains("stranger     ") && stat.contains("sst/strange: 0 bytes"), "{stat}");
}

/// Runs all that reads a table, and expects that `verify` finds faults.
#[track_caller]
fn survive(place: &Fixture, id: TableId, object: &Path, what: &str) {
    assert_eq!(run_all(place, id, object, what), Some(1), "{what}");
}

/// Runs all that reads a table in little memory; expects no panic and returns the exit code of
/// `verify`.
#[track_caller]
fn run_all(place: &Fixture, id: TableId, object: &Path, what: &str) -> Option<i32> {
    let mut verified = None;
    let (storage, id) = (place.storage(), id.to_string());
    let object = object.to_str().unwrap();
    for line in [
        vec!["list", &storage],
        vec!["stat", &storage, &id],
        vec!["stat", object],
        vec!["verify", &storage],
        vec!["dump", &storage, &id, "--log"],
        vec!["dump", object],
    ] {
        let mut limited = Command::new("sh");
        let program = command().get_program().to_owned();
        limited.args(["-c", "ulimit -v 1000000; exec timeout 60 \"$@\"", "sh"]);
        let output = limited.arg(program).arg("store").args(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        let is_well = matches!(code, Some(0..=2)) && !said.contains("panicked");
        assert!(is_well, "{what}: {line:?}: {code:?}: {said}");
        if line[0] == "verify" {
            verified = code;
        }
    }
    verified
}

/// Writes a damaged file whose checksum, at `crc` and of the bytes in `of`, is right again.
fn write_forged(path: &Path, mut bytes: Vec<u8>, crc: usize, of: std::ops::Range<usize>) {
    let right = crc32fast::hash(&bytes[of]);
    bytes[crc..crc + 4].copy_from_slice(&right.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn hostile_objects_are_survived() {
    let place = Fixture::new();
    let id = table(&place);
    let manifest = place.objects(id, "manifest/").pop().unwrap();
    let bytes = fs::read(&manifest).unwrap();
    for (at, mask) in (12..bytes.len()).step_by(7).zip([1, 0x80, 0xff].into_iter().cycle()) {
        let mut forged = bytes.clone();
        forged[at] ^= mask;
        write_forged(&manifest, forged, 8, 12..bytes.len());
        run_all(&place, id, &manifest, &format!("byte {at} of a manifest"));
    }
    fs::write(&manifest, &bytes).unwrap();
    let sstable = place.objects(id, "sst/").pop().unwrap();
    let bytes = fs::read(&sstable).unwrap();
    let end = bytes.len() - 16;
    let data = u64::from_le_bytes(bytes[end - 40..end - 32].try_into().unwrap()) as usize;
    for (at, mask) in (data..end).step_by(3).zip([1, 0x80, 0xff].into_iter().cycle()) {
        let mut forged = bytes.clone();
        forged[at] ^= mask;
        write_forged(&sstable, forged, end, data..end);
        run_all(&place, id, &sstable, &format!("byte {at} of an SSTable"));
    }
    fs::write(&sstable, &bytes).unwrap();
    place.assert_sound();
}

#[test]
fn no_object_takes_the_memory_or_hangs() {
    let place = Fixture::new();
    let id = table(&place);
    for part in ["manifest/", "sst/", "log/"] {
        let path = place.objects(id, part).pop().unwrap();
        let bytes = fs::read(&path).unwrap();
        // What grows in front is behind the beginning of a segment or a manifest, and before the
        // end of an SSTable.
        let huge = |end: &[u8]| {
            let file = File::create(&path).unwrap();
            file.set_len(1 << 40).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes[..8], 0).unwrap();
            let at = (1 << 40) - end.len() as u64;
            std::os::unix::fs::FileExt::write_all_at(&file, end, at).unwrap();
        };
        if part == "log/" {
            // A terabyte of zeros takes long to look through, in whatever memory.
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(1 << 30).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[0, 0, 0, 63], 24).unwrap();
        } else {
            huge(&bytes[bytes.len() / 2..]);
        }
        survive(&place, id, &path, &format!("{part} that is huge"));
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        survive(&place, id, &path, &format!("{part} that is a pipe"));
        fs::remove_file(&path).unwrap();
        if part != "log/" {
            for length in [0, 7, 8, 20, bytes.len() / 2, bytes.len() - 1] {
                fs::write(&path, &bytes[..length]).unwrap();
                survive(&place, id, &path, &format!("{length} bytes of {part}"));
            }
        }
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.join("below")).unwrap();
        fs::write(path.join("below/file"), "").unwrap();
        let (code, text) = place.verify();
        assert!(code <= 1 && text.contains("read: "), "{text}");
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        place.assert_sound();
    }
}
