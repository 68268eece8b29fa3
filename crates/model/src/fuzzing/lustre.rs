//! Values of Lustre's attributes, put together from the structures of its headers.

/// Returns the value of `lustre.lov` of a file without components: `pattern` as in `lov_pattern`,
/// the bytes and the number of its stripes, its pool and the OSTs of its objects.
pub fn plain(pattern: u32, stripe_size: u32, count: u16, pool: &str, osts: &[u32]) -> Vec<u8> {
    let magic: u32 = if pool.is_empty() { 0x0BD1_0BD0 } else { 0x0BD3_0BD0 };
    let mut bytes = [magic.to_le_bytes(), pattern.to_le_bytes()].concat();
    bytes.extend(*b"id of the inode ");
    bytes.extend(stripe_size.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    // Clients tell no generation.
    bytes.extend([0xFF; 2]);
    if !pool.is_empty() {
        bytes.extend(pool.bytes().chain(std::iter::repeat(0)).take(16));
    }
    for ost in osts {
        bytes.extend(*b"id of the objectgen ");
        bytes.extend(ost.to_le_bytes());
    }
    bytes
}

/// Returns the value of a file with components: the id, the flags, the first byte, the byte behind
/// the last one, and the layout of each.
pub fn composite(components: &[(u32, u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
    let size: usize = components.iter().map(|(.., layout)| 48 + layout.len()).sum();
    let mut bytes = [0x0BD6_0BD0_u32.to_le_bytes(), (32 + size as u32).to_le_bytes()].concat();
    bytes.extend([7, 0, 0, 0, 0, 0]);
    bytes.extend((components.len() as u16).to_le_bytes());
    bytes.resize(32, 0);
    let mut place = 32 + 48 * components.len();
    for (id, flags, start, end, layout) in components {
        bytes.extend([id.to_le_bytes(), flags.to_le_bytes()].concat());
        bytes.extend([start.to_le_bytes(), end.to_le_bytes()].concat());
        bytes.extend([place as u32, layout.len() as u32].map(u32::to_le_bytes).concat());
        bytes.extend([0; 16]);
        place += layout.len();
    }
    bytes.extend(components.iter().flat_map(|(.., layout)| layout.iter().copied()));
    bytes
}

/// Returns the value of `trusted.lmv` of a directory with stripes on these MDTs.
pub fn striped(mdts: &[u32], hash: u32) -> Vec<u8> {
    let first = mdts.first().copied().unwrap_or_default();
    let mut bytes =
        [0x0CD2_0CD0, mdts.len() as u32, first, hash].map(|word: u32| word.to_le_bytes()).concat();
    bytes.resize(56, 0);
    mdts.iter().for_each(|_| bytes.extend(*b"FID of a stripe."));
    bytes
}

/// Returns the value of `trusted.hsm`.
pub fn hsm(flags: u32, archive: u64) -> Vec<u8> {
    let mut bytes = [[0; 4], flags.to_le_bytes()].concat();
    bytes.extend([archive.to_le_bytes(), 5_u64.to_le_bytes()].concat());
    bytes
}

/// Returns layouts of most kinds.
pub fn layouts() -> Vec<Vec<u8>> {
    let foreign = [&0x0BD7_0BD0_u32.to_le_bytes()[..], &[3, 0, 0, 0], &[0; 8], b"any"].concat();
    let parts = [
        (1, 0x10, 0, 1 << 20, plain(0x100, 1 << 20, 0, "", &[])),
        (2, 0x10, 1 << 20, 1 << 30, plain(1, 1 << 20, 2, "flash", &[3, 17])),
        (3, 0x40, 1 << 30, 1 << 32, plain(1, 1 << 16, 0, "flash", &[])),
        (4, 0, 1 << 32, u64::MAX, plain(1, 4 << 20, 0xFFFF, "disk", &[])),
    ];
    vec![
        plain(1, 1 << 20, 1, "", &[5]),
        plain(0x201, 1 << 22, 3, "flash", &[5, 6, 5]),
        plain(0x8000_0001, 1 << 20, 2, "", &[]),
        foreign,
        composite(&parts),
    ]
}
