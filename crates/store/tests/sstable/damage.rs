//! Files that were damaged are noticed; files that somebody made to do harm are errors at worst.

use super::{file, layout, open, scan};
use canopy_store::sstable::{BlockCache, Sstable, SstableInfo};
use canopy_store::storage::{MemoryStorage, Storage};
use canopy_store::{Error, Key, KeyRange, Layout, Op, Record, Result};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::sync::Arc;

const FOOTER_BYTES: usize = 56;

/// Returns a small table that has something of everything.
fn table() -> (Layout, Vec<Record>, Vec<KeyRange>) {
    let layout = layout(&[(4, None), (8, None), (8, Some(1)), (2, None), (1, None), (8, None)]);
    let record = |at: u64| {
        let name = format!("IMG_{at:04}.jpg");
        let mut value = (at as u32 % 3 * 1_000_003).to_le_bytes().to_vec();
        value.extend((1_700_000_000_000_000_000 + at * at * 1_000_003).to_le_bytes());
        value.extend((1_700_000_000_000_000_500 + at * at * 1_000_003).to_le_bytes());
        value.extend((at as u16 * 7).to_le_bytes());
        value.push(7);
        value.extend((at * 1_000_000_000).to_le_bytes());
        value.extend_from_slice(&name.as_bytes()[..at as usize % 5]);
        let op = [Op::Put, Op::Put, Op::Merge, Op::Put, Op::Delete][at as usize % 5];
        match op {
            Op::Delete => value.clear(),
            // Some blocks have values that are shorter than the columns.
            Op::Merge if at > 50 => value.truncate(5),
            _ => {}
        }
        let mut key = Key::named(at / 12, name.as_bytes());
        if at > 70 {
            key.hash = 1;
        }
        Record { key, op, value }
    };
    let mut records: Vec<Record> = (0..90).map(record).collect();
    records.sort_by(|one, other| one.key.cmp(&other.key));
    let range = KeyRange { start: Key::named(2, b"x"), end: Some(Key::named(9, b"")) };
    (layout, records, vec![KeyRange::directory(3), range])
}

fn small_file() -> (Vec<u8>, SstableInfo, Vec<Record>) {
    let (layout, records, range_deletes) = table();
    let (bytes, info) = file(&layout, 700, &records, &range_deletes);
    (bytes, info, records)
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (bytes, info, records) = small_file();
    let data_bytes = bytes.len() - info.tail_bytes as usize;
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let table = match open(damaged, &info, 0) {
            Ok(table) => table,
            Err(_) if bit / 8 >= data_bytes => continue,
            Err(error) => panic!("bit {bit} of a block: {error}"),
        };
        assert!(bit / 8 < data_bytes, "bit {bit} of the tail is not noticed");
        assert!(table.verify().is_err(), "bit {bit} is not noticed by verify");
        assert!(scan(&table, KeyRange::all()).is_err(), "bit {bit} is not noticed by a scan");
        let mut failed = 0;
        for record in &records {
            match table.get(record.key.as_ref()) {
                Ok(found) => assert_eq!(found, Some((record.op, record.value.clone()))),
                Err(_) => failed += 1,
            }
        }
        assert!(failed > 0 && failed < records.len(), "bit {bit}: {failed} look-ups fail");
    }
}

#[test]
fn every_truncation_is_noticed() {
    let (bytes, info, _) = small_file();
    for length in 0..bytes.len() {
        let cut = bytes[..length].to_vec();
        assert!(open(cut.clone(), &info, 0).is_err());
        let shorter = SstableInfo { size_bytes: length as u64, ..info.clone() };
        assert!(open(cut.clone(), &shorter, 0).is_err());
        let storage = MemoryStorage::default();
        storage.create("sst/1-1", cut.into()).unwrap();
        assert!(SstableInfo::read(&storage, "sst/1-1", length as u64).is_err());
    }
}

#[test]
fn an_unknown_version_is_named() {
    let (mut bytes, info, _) = small_file();
    let at = bytes.len() - 12;
    bytes[at] = 9;
    let error = open(bytes, &info, 0).err().unwrap().to_string();
    assert!(error.contains("version 9"), "{error}");
}

/// Opens what `bytes` are by what they say of themselves, and reads all of it in every way.
fn read_all(bytes: Vec<u8>, keys: &[Key]) -> Result<()> {
    let size_bytes = bytes.len() as u64;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    storage.create("sst/1-1", bytes.into())?;
    let info = SstableInfo::read(&*storage, "sst/1-1", size_bytes)?;
    let cache = Arc::new(BlockCache::new(1 << 16));
    let table = Arc::new(Sstable::open(storage, "sst/1-1".into(), &info, cache)?);
    for key in keys {
        let _ = table.get(key.as_ref());
        let mut cursor = table.cursor(KeyRange { start: key.clone(), end: None });
        let _ = cursor.seek(key.as_ref()).is_ok_and(|_| cursor.retreat().is_ok());
    }
    let mut described = 0;
    let _ = table.describe_blocks(|_| {
        described += 1;
        if described < 100 { Ok(()) } else { Err(()) }
    });
    let mut cursor = table.cursor(KeyRange::all());
    cursor.to_end();
    while cursor.retreat().is_ok_and(|is_there| is_there) {
        assert!(cursor.record().is_some());
    }
    let _ = scan(&table, KeyRange::all());
    table.verify()
}

/// Makes all checksums of a damaged file right, so that the decoders get to see the damage.
/// `blocks` are where its blocks were.
fn repair(bytes: &mut [u8], blocks: &[std::ops::Range<usize>]) {
    let footer = bytes.len() - FOOTER_BYTES;
    let number = |at: usize| u64::from_le_bytes(*bytes[footer + at..].first_chunk().unwrap());
    let index = number(0).saturating_add(number(8)).saturating_add(1);
    for (at, block) in blocks.iter().enumerate() {
        let crc = crc32fast::hash(&bytes[block.clone()]);
        let place = (index as usize).saturating_add(at * 4);
        if let Some(stored) = bytes.get_mut(place..place.saturating_add(4)) {
            stored.copy_from_slice(&crc.to_le_bytes());
        }
    }
    let data_bytes = blocks.last().map_or(0, |block| block.end);
    let crc = crc32fast::hash(&bytes[data_bytes..bytes.len() - 16]);
    let place = bytes.len() - 16;
    bytes[place..place + 4].copy_from_slice(&crc.to_le_bytes());
}

fn mutate(bytes: &mut [u8], random: &mut StdRng) {
    // Most numbers that decide about sizes are at the beginning of blocks and in the tail.
    let length = bytes.len();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..length);
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
            3 => bytes[at..length.min(at + 9)].fill(0xff),
            4 => bytes[at] = bytes[at].wrapping_add(1),
            _ => {
                let (from, count) = (random.random_range(0..length), random.random_range(1..16));
                let count = count.min(length - at.max(from));
                bytes.copy_within(from..from + count, at);
            }
        }
    }
}

#[test]
fn files_made_to_do_harm_are_errors_at_worst() {
    let (bytes, info, records) = small_file();
    let table = open(bytes.clone(), &info, 0).unwrap();
    let mut blocks = Vec::new();
    let described = table.describe_blocks(|block| {
        let range = block?.range;
        blocks.push(range.start as usize..range.end as usize);
        Ok::<_, Error>(())
    });
    described.unwrap();
    let keys: Vec<Key> = records.iter().step_by(20).map(|record| record.key.clone()).collect();
    read_all(bytes.clone(), &keys).unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let mut sound = 0;
    for _ in 0..60_000 {
        let mut damaged = bytes.clone();
        let target = match random.random_range(0..4) {
            0 => {
                let tail = bytes.len() - info.tail_bytes as usize;
                &mut damaged[tail..]
            }
            1 => {
                let block = blocks[random.random_range(0..blocks.len())].clone();
                &mut damaged[block.start..block.end.min(block.start + 90)]
            }
            2 => {
                let footer = bytes.len() - FOOTER_BYTES;
                &mut damaged[footer..]
            }
            _ => &mut damaged[..],
        };
        mutate(target, &mut random);
        repair(&mut damaged, &blocks);
        sound += u32::from(read_all(damaged, &keys).is_ok());
    }
    // Other numbers in columns: nobody can tell. It shows that decoders get to see the damage.
    assert!((1_000..30_000).contains(&sound), "{sound} of 60000 damaged files are sound");
}

#[test]
fn garbage_is_no_sstable() {
    let mut random = StdRng::seed_from_u64(2);
    let (good, ..) = small_file();
    for _ in 0..20_000 {
        let mut bytes = vec![0; random.random_range(0..300)];
        random.fill_bytes(&mut bytes);
        // Half of it has a magic, a version and the right checksum.
        if random.random() && bytes.len() >= FOOTER_BYTES {
            let end = bytes.len() - 12;
            bytes[end..].copy_from_slice(&good[good.len() - 12..]);
            let mut rest = (bytes.len() - FOOTER_BYTES) as u64;
            for at in 0..5 {
                let size = if at == 4 { rest } else { random.random_range(0..=rest) };
                rest -= size;
                let place = bytes.len() - FOOTER_BYTES + at * 8;
                bytes[place..place + 8].copy_from_slice(&size.to_le_bytes());
            }
            let data_bytes = bytes[bytes.len() - FOOTER_BYTES] as usize;
            repair(&mut bytes, &[0..data_bytes]);
        }
        assert!(read_all(bytes, &[Key::named(1, b"x")]).is_err());
    }
}
