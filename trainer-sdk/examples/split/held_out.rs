//! Which rows are held out: those whose text has a hash that five divides. It must never draw at random.
//!
//! Included by path: `#[path = "../split/held_out.rs"] mod held_out;`.

/// One in so many rows is held out.
const ONE_IN: u64 = 5;

/// Whether a row is held out. Rows of the same text are on the same side, in whatever order they come.
pub(crate) fn is_held_out(text: &str) -> bool {
    fnv1a(text.as_bytes()).is_multiple_of(ONE_IN)
}

/// The 64-bit hash of Fowler, Noll and Vo, variant 1a: the same on every machine for ever.
fn fnv1a(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // From the test vectors of Fowler, Noll and Vo.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn about_a_fifth_is_held_out() {
        let held_out = (0..1000).filter(|row| is_held_out(&row.to_string())).count();
        assert!((170..230).contains(&held_out), "{held_out}");
    }
}
