//! Changed copies of a seed, for an ordinary test: the same ones every time. It must never draw from outside.

/// Numbers where decoders break.
const EDGES: [u64; 8] = [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];

/// The `number`-th change of `seed`; `others` lend it their parts.
pub(crate) fn mutate(seed: &[u8], others: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.len() as u64);
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(3) {
        change(&mut bytes, others, &mut random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let to = at + random.below(bytes.len() + 1 - at);
    let edge = EDGES[random.below(EDGES.len())];
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..to)),
        4 => {
            let part = bytes[at..to].to_vec();
            bytes.splice(at..at, part);
        }
        5 => {
            let width = [1, 2, 4, 8][random.below(4)];
            let end = (at + width).min(bytes.len());
            bytes.splice(at..end, edge.to_le_bytes()[..width].iter().copied());
        }
        6 => {
            // A varint of ten bytes is the largest there is.
            bytes.splice(at..at, [&[0xFF; 9][..], &[1]].concat());
        }
        _ => {
            if let Some(other) = others.get(random.below(others.len().max(1))) {
                let from = random.below(other.len() + 1);
                bytes.splice(at..to, other[from..].iter().copied());
            }
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

/// Runs `body` over the seeds in a folder and over `changes` changed copies of each.
#[allow(dead_code, reason = "who counts memory goes over the seeds by itself")]
pub(crate) fn are_survived(folder: &std::path::Path, changes: u64, body: fn(&[u8])) {
    let read = |path: std::path::PathBuf| (path.clone(), std::fs::read(path).unwrap());
    let entries = std::fs::read_dir(folder).unwrap();
    let mut seeds: Vec<_> = entries.map(|entry| read(entry.unwrap().path())).collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    let others: Vec<Vec<u8>> = seeds.iter().map(|(_, bytes)| bytes.clone()).collect();
    for (path, bytes) in &seeds {
        let changed = (0..changes).map(|number| mutate(bytes, &others, number));
        for input in [bytes.clone()].into_iter().chain(changed) {
            let survived = std::panic::catch_unwind(|| body(&input));
            assert!(survived.is_ok(), "{}: {input:02x?}", path.display());
        }
    }
}
