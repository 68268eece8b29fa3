use super::*;
use crate::fuzzing::lustre::{composite, hsm, layouts, plain, striped};

fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(",")
}

/// Byte by byte as `struct lov_user_md_v3` of lustre_user.h has it.
#[test]
fn a_layout_is_what_the_header_says() {
    #[rustfmt::skip]
    let bytes = [
        0xD0, 0x0B, 0xD3, 0x0B, // lmm_magic = LOV_USER_MAGIC_V3
        0x01, 0x00, 0x00, 0x00, // lmm_pattern = LOV_PATTERN_RAID0
        0x05, 0x04, 0, 0, 0, 0, 0, 0, 0x01, 0, 0, 0, 2, 0, 0, 0, // lmm_oi
        0x00, 0x00, 0x10, 0x00, // lmm_stripe_size = 1 MiB
        0x02, 0x00, 0xFF, 0xFF, // lmm_stripe_count, lmm_stripe_offset
        b'f', b'l', b'a', b's', b'h', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // lmm_pool_name
        0x62, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // lmm_objects[0].l_ost_oi
        0, 0, 0, 0, 0x11, 0, 0, 0, // l_ost_gen, l_ost_idx
        0x63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0x00, 0x01, 0, 0,
    ];
    let layout = Layout::decode(&bytes).unwrap();
    let [component] = &layout.components[..] else { panic!("{layout:?}") };
    assert_eq!((component.pool, component.stripe_size), (&b"flash"[..], 1 << 20));
    assert_eq!(component.osts().collect::<Vec<_>>(), [(0, 17), (1, 256)]);
    assert_eq!(component.stripe_count, Some(2));
    assert_eq!(words(component.pattern_words()), "raid0");
    assert!(!layout.is_composite && component.end.is_none());
    for length in 0..bytes.len() {
        let cut = Layout::decode(&bytes[..length]);
        // Without all objects, that of a file that is released, or a directory's.
        assert_eq!(cut.is_some(), length == 48, "{length}");
    }
}

/// The entry is byte by byte as `struct lov_comp_md_v1` and `lov_comp_md_entry_v1` have it.
#[test]
fn parts_have_layouts_of_their_own() {
    #[rustfmt::skip]
    let mut bytes = vec![
        0xD0, 0x0B, 0xD6, 0x0B, // lcm_magic = LOV_USER_MAGIC_COMP_V1
        136, 0, 0, 0, 3, 0, 0, 0, // lcm_size, lcm_layout_gen
        0, 0, 1, 0, // lcm_flags, lcm_entry_count
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // lcm_mirror_count and padding
        0x02, 0x00, 0x01, 0x00, // lcme_id: mirror 1, part 2
        0x11, 0x00, 0x00, 0x00, // lcme_flags: LCME_FL_INIT, LCME_FL_STALE
        0, 0, 0x10, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, // lcme_extent
        80, 0, 0, 0, 56, 0, 0, 0, // lcme_offset, lcme_size
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // generation, time, stripes of codes
    ];
    bytes.extend(plain(1, 1 << 20, 1, "", &[9]));
    let layout = Layout::decode(&bytes).unwrap();
    let [component] = &layout.components[..] else { panic!("{layout:?}") };
    assert!(layout.is_composite && component.mirror() == 1);
    assert_eq!((component.start, component.end), (1 << 20, None));
    assert_eq!(words(component.flag_words()), "stale,init");
    assert_eq!(component.osts().collect::<Vec<_>>(), [(0, 9)]);
    assert!((0..bytes.len()).all(|length| Layout::decode(&bytes[..length]).is_none()));
}

#[test]
fn files_without_storage_are_on_no_ost() {
    let all = layouts();
    let osts = |at: usize| -> Vec<u32> {
        let layout = Layout::decode(&all[at]).unwrap();
        layout.components.iter().flat_map(|part| part.osts().map(|(_, ost)| ost)).collect()
    };
    assert_eq!([0, 1, 2, 3, 4].map(osts), [&[5][..], &[5, 6, 5], &[], &[], &[3, 17]]);
    let composite = Layout::decode(&all[4]).unwrap();
    let main = composite.main().unwrap();
    assert_eq!((main.id, main.pool, main.stripe_count), (2, &b"flash"[..], Some(2)));
    assert_eq!(composite.components[2].stripe_size, 64 << 20, "by which it grows");
    assert_eq!(composite.components[3].stripe_count, None, "as many as there are OSTs");
    assert_eq!(words(composite.components[0].pattern_words()), "mdt");
    let released = Layout::decode(&all[2]).unwrap();
    assert_eq!(words(released.components[0].pattern_words()), "raid0,released");
    assert!(Layout::decode(&all[3]).unwrap().components[0].is_foreign());
    // Not instantiated: what is told of objects does not count.
    let planned = composite_of(0, plain(1, 1 << 20, 2, "", &[u32::MAX, 4]));
    assert_eq!(Layout::decode(&planned).unwrap().components[0].osts().count(), 0);
    let broken = composite_of(0x10, plain(1, 1 << 20, 2, "", &[u32::MAX, 4]));
    let layout = Layout::decode(&broken).unwrap();
    assert_eq!(layout.components[0].osts().collect::<Vec<_>>(), [(1, 4)]);
}

fn composite_of(flags: u32, layout: Vec<u8>) -> Vec<u8> {
    composite(&[(1, flags, 0, u64::MAX, layout)])
}

#[test]
fn layouts_without_ids_are_alike() {
    for value in layouts() {
        let mut other = value.clone();
        for id in [&b"id of the inode "[..], b"id of the object"] {
            while let Some(at) = other.windows(16).position(|bytes| bytes == id) {
                other[at..at + 16].fill(7);
            }
        }
        let mut plain = value.clone();
        forget_ids(&mut plain);
        forget_ids(&mut other);
        assert_eq!(plain, other);
        let (before, after) = (Layout::decode(&value).unwrap(), Layout::decode(&plain).unwrap());
        let osts = |layout: &Layout<'_>| -> Vec<(u32, Vec<(usize, u32)>)> {
            layout.components.iter().map(|part| (part.id, part.osts().collect())).collect()
        };
        assert_eq!(osts(&before), osts(&after));
    }
    // OSTs that files in a directory shall be on are not objects of it.
    let mut directory = plain(1, 1 << 20, 1, "flash", &[3]);
    directory[2] = 0xD5;
    assert_eq!(Layout::decode(&directory).unwrap().components[0].osts().count(), 0);
}

#[test]
fn bytes_are_where_stripes_are() {
    let stripes = |value: &[u8], size: u64| {
        let mut all = Vec::new();
        Layout::decode(value).unwrap().each_stripe(size, |_, stripe| {
            all.push((stripe.ost, stripe.bytes));
        });
        all
    };
    let three = plain(1, 100, 3, "", &[7, 8, 9]);
    assert_eq!(stripes(&three, 0), [(7, 0), (8, 0), (9, 0)]);
    assert_eq!(stripes(&three, 750), [(7, 300), (8, 250), (9, 200)]);
    let part = |end, osts: &[u32]| plain(1, end, osts.len() as u16, "", osts);
    let parts = composite(&[
        (1, 0x10, 0, 150, part(100, &[1])),
        (2, 0x10, 150, 1000, part(100, &[2, 3])),
        (3, 0, 1000, u64::MAX, part(100, &[])),
    ]);
    // The second part has 150 to 200 on its second stripe, and 200 to 300 on its first.
    assert_eq!(stripes(&parts, 420), [(1, 150), (2, 120), (3, 150)]);
    assert_eq!(stripes(&parts, 10), [(1, 10), (2, 0), (3, 0)]);
    let odd = plain(1, 0, 1, "", &[4]);
    assert_eq!(stripes(&odd, u64::MAX), [(4, 0)]);
}

#[test]
fn layouts_in_each_other_are_none() {
    let layout = plain(1, 1 << 20, 9, "", &[9; 9]);
    let mut bytes = composite(&[(1, 0x10, 0, 1, layout.clone()), (2, 0x10, 1, 2, layout)]);
    assert!(Layout::decode(&bytes).is_some());
    let size = bytes.len() as u32;
    bytes[32 + 24..32 + 32].copy_from_slice(&[128_u32, size - 128].map(u32::to_le_bytes).concat());
    bytes[80 + 24..80 + 32].copy_from_slice(&[128_u32, size - 128].map(u32::to_le_bytes).concat());
    assert_eq!(Layout::decode(&bytes).map(|layout| layout.components.len()), None);
}

#[test]
fn directories_and_archives_are_told() {
    let bytes = striped(&[2, 0, 1], 0x0200_0003);
    let stripes = Stripes::decode(&bytes).unwrap();
    assert_eq!((stripes.mdt, stripes.count, stripes.hash_word()), (Some(2), Some(3), "crush"));
    let any = [&0x0CD3_0CD0_u32.to_le_bytes()[..], &[0xFF; 8], &[0; 40]].concat();
    let any = Stripes::decode(&any).unwrap();
    assert_eq!((any.mdt, any.count), (None, None));
    let foreign = 0x0CD5_0CD0_u32.to_le_bytes();
    let foreign = Stripes::decode(&foreign).unwrap();
    assert_eq!((foreign.mdt, foreign.count), (None, None));
    assert!(stripes.pool.is_empty() && Stripes::decode(&bytes[..55]).is_none());
    let state = HsmState::decode(&hsm(0xD, 3)).unwrap();
    assert_eq!((words(state.words()).as_str(), state.archive), ("exists,released,archived", 3));
    assert_eq!((HsmState::bit("lost"), HsmState::bit("gone")), (Some(0x40), None));
    assert!(HsmState::decode(&hsm(1, 1)[..23]).is_none());
    assert_eq!([&b"1000"[..], b"7\0", b"x", b""].map(project), [Some(1000), Some(7), None, None]);
    assert!(Layout::decode(&bytes).is_none() && Stripes::decode(&hsm(1, 1)).is_none());
}
