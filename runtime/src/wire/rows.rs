//! Sums over rows and wanted keys as bytes, all little-endian: `rows (u32) | keys (u64 each) | counts (u32 each) | sums (f32,
//! row by row)`, and nothing at all for no rows; keys alone: `keys (u64 each)`; and what a pull of keys is answered with.
//!
//! It must never trust a number that a message states, nor allocate by one.

use crate::cluster::rows::Rows;

/// Bytes of the rows of one bucket that one step may touch, as [`encoded_bytes`] reckons them: a message has room for 20 MiB, and
/// some of them may be born or evicted in the same update.
pub const STEP_BYTES_MAX: usize = 12 << 20;
/// Bytes of a key and its count.
const HEAD_BYTES: usize = 12;

/// Bytes that so many rows of `dimension` elements have.
pub fn encoded_bytes(rows: usize, dimension: usize) -> usize {
    if rows == 0 { 0 } else { 4 + rows * (HEAD_BYTES + 4 * dimension) }
}

/// Why one step may not touch so many rows of one bucket, and the way out; none if it may.
pub fn too_many(rows: usize, dimension: usize) -> Option<String> {
    let bytes = encoded_bytes(rows, dimension);
    (bytes > STEP_BYTES_MAX).then(|| {
        format!(
            "{rows} of its rows in one step have {bytes} bytes, at most {STEP_BYTES_MAX} are taken: declare more buckets, \
             or fewer microbatches a step"
        )
    })
}

/// Writes a sum at the end of `bytes`.
pub fn encode(rows: &Rows, bytes: &mut Vec<u8>) {
    if rows.is_empty() {
        return;
    }
    bytes.reserve_exact(4 + rows.len() * HEAD_BYTES + 4 * rows.values().len());
    bytes.extend_from_slice(&(rows.len() as u32).to_le_bytes());
    encode_keys(rows.keys(), bytes);
    // Copied whole: memory is taken to be little-endian, as wherever parameters become bytes.
    bytes.extend_from_slice(bytemuck::cast_slice(rows.counts()));
    bytes.extend_from_slice(bytemuck::cast_slice(rows.values()));
}

/// Writes the part of a sum whose keys are at these places, which ascend, at the end of `bytes`.
pub fn encode_places(rows: &Rows, places: &[u32], bytes: &mut Vec<u8>) {
    if places.is_empty() {
        return;
    }
    let dimension = rows.dimension();
    bytes.reserve_exact(encoded_bytes(places.len(), dimension));
    let at = || places.iter().map(|place| *place as usize);
    bytes.extend_from_slice(&(places.len() as u32).to_le_bytes());
    encode_keys_at(rows.keys(), places, bytes);
    at().for_each(|at| bytes.extend_from_slice(&rows.counts()[at].to_le_bytes()));
    for at in at() {
        bytes.extend_from_slice(bytemuck::cast_slice(&rows.values()[at * dimension..][..dimension]));
    }
}

/// Reads a sum over rows of `dimension` elements.
///
/// # Errors
/// What is wrong with the bytes.
pub fn decode(bytes: &[u8], dimension: usize) -> Result<Rows, String> {
    let Some((rows, rest)) = bytes.split_first_chunk() else {
        return if bytes.is_empty() { Ok(Rows::default()) } else { Err(format!("{} bytes", bytes.len())) };
    };
    let rows = u32::from_le_bytes(*rows) as usize;
    let expected = (HEAD_BYTES + 4 * dimension).checked_mul(rows);
    if rows == 0 || expected != Some(rest.len()) {
        let came = rest.len();
        return Err(format!("{rows} rows of {dimension} elements are stated, {came} bytes came"));
    }
    let (keys, rest) = rest.split_at(8 * rows);
    let (counts, values) = rest.split_at(4 * rows);
    let keys = decode_keys(keys)?;
    let counts = counts.as_chunks().0.iter().map(|count| u32::from_le_bytes(*count)).collect();
    let values = values.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
    Rows::new(dimension, keys, counts, values).ok_or_else(|| "a key that never occurred".to_owned())
}

/// Writes keys at the end of `bytes`.
pub fn encode_keys(keys: &[u64], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(bytemuck::cast_slice(keys));
}

/// Writes the keys at these places at the end of `bytes`.
pub fn encode_keys_at(keys: &[u64], places: &[u32], bytes: &mut Vec<u8>) {
    bytes.reserve_exact(8 * places.len());
    places.iter().for_each(|place| bytes.extend_from_slice(&keys[*place as usize].to_le_bytes()));
}

/// Reads keys, which must ascend.
///
/// # Errors
/// What is wrong with the bytes.
pub fn decode_keys(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let (keys, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(format!("{} bytes of keys that have 8 each", bytes.len()));
    }
    let keys: Vec<u64> = keys.iter().map(|key| u64::from_le_bytes(*key)).collect();
    match keys.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(format!("key {} comes after {}: keys must ascend", pair[1], pair[0])),
        None => Ok(keys),
    }
}

/// The rows of an answer to a pull of so many keys, key by key; none for a key that has no row. None at all if the bytes
/// are not such an answer: `a bit for each key, lowest first, of whether it has a row | the rows of those that have`.
pub fn pulled(
    bytes: &[u8],
    keys: usize,
    dimension: usize,
) -> Option<impl Iterator<Item = Option<&[[u8; 4]]>>> {
    let (has_row, rows) = bytes.split_at_checked(keys.div_ceil(8))?;
    let is_born = move |at: usize| has_row[at / 8] >> (at % 8) & 1 == 1;
    let (mut words, rest) = rows.as_chunks();
    let born = (0..keys).filter(|at| is_born(*at)).count();
    if !rest.is_empty() || words.len() != born.checked_mul(dimension)? {
        return None;
    }
    Some((0..keys).map(move |at| {
        is_born(at).then(|| {
            let (row, others) = words.split_at(dimension);
            words = others;
            row
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(rows: &Rows) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(rows, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_sum_that_was_written_is_read_again(
            keys in proptest::collection::vec(any::<u64>(), 0..20), dimension in 1usize..6
        ) {
            let rows = Rows::zeros(dimension, keys.iter().chain(&keys).copied());
            let bytes = encoded(&rows);
            prop_assert_eq!(bytes.len(), encoded_bytes(rows.len(), dimension));
            prop_assert_eq!(decode(&bytes, dimension), Ok(rows));
        }

        #[test]
        fn parts_of_a_sum_are_the_sum(
            keys in proptest::collection::vec(0u64..40, 0..60), dimension in 1usize..6, parts in 1u32..4
        ) {
            let mut rows = Rows::zeros(dimension, keys);
            rows.values_mut().iter_mut().zip(1u8..).for_each(|(value, number)| *value = number.into());
            let mut sum = Rows::default();
            for part in 0..parts {
                let places: Vec<u32> = (0..rows.len() as u32).filter(|place| place % parts == part).collect();
                let mut bytes = Vec::new();
                encode_places(&rows, &places, &mut bytes);
                prop_assert_eq!(bytes.len(), encoded_bytes(places.len(), dimension));
                sum = sum.merge(decode(&bytes, dimension).unwrap());
            }
            prop_assert_eq!(sum, rows);
        }

        #[test]
        fn bytes_of_anybody_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), dimension in 0usize..6) {
            if let Ok(rows) = decode(&bytes, dimension) {
                prop_assert_eq!(encoded_bytes(rows.len(), dimension), bytes.len());
            }
        }
    }

    #[test]
    fn an_answer_to_a_pull_is_read_key_by_key_or_refused_whole() {
        let words = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let of = |bytes: &[u8], keys: usize| -> Option<Vec<Option<Vec<f32>>>> {
            let row = |row: &[[u8; 4]]| row.iter().map(|word| f32::from_le_bytes(*word)).collect();
            Some(pulled(bytes, keys, 2)?.map(|words| words.map(row)).collect())
        };
        let answer = [vec![0b101], words(&[1.0, 2.0, 3.0, 4.0])].concat();
        let expected = vec![Some(vec![1.0, 2.0]), None, Some(vec![3.0, 4.0])];
        assert_eq!(of(&answer, 3), Some(expected));
        assert_eq!((of(&[], 0), of(&[], 1)), (Some(vec![]), None));
        assert_eq!(of(&answer[..answer.len() - 1], 3), None, "half a value");
        assert_eq!(of(&answer[..answer.len() - 8], 3), None, "a row too few");
        assert_eq!(of(&answer, 2), None, "a row of nobody's");
        assert_eq!(of(&[0], 3), Some(vec![None, None, None]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let sound = encoded(&Rows::zeros(1, [4, 7]));
        let broken = |at: usize, byte: u8| {
            let mut bytes = sound.clone();
            bytes[at] = byte;
            decode(&bytes, 1).unwrap_err()
        };
        assert!(broken(0, 3).contains("3 rows of 1 elements are stated, 32 bytes came"));
        assert!(broken(3, 0xff).contains("are stated"), "a length that nothing may be allocated by");
        assert!(broken(4, 9).contains("key 7 comes after 9"));
        assert!(broken(4 + 16, 0).contains("never occurred"));
        assert!(decode(&sound[..3], 1).unwrap_err().contains("3 bytes"));
        assert!(decode(&[0; 4], 1).unwrap_err().contains("0 rows"), "of no rows nothing is said");
        assert!(decode_keys(&[0; 9]).unwrap_err().contains("9 bytes"));
    }
}
