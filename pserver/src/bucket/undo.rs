//! What the rows that one update changed were before it, so that earlier versions can be read: as few bytes as were
//! changed. Embeddings only; slots of earlier versions are nobody's to ask for.

use super::arena::Slot;
use std::ops::Range;

/// One update, undone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undo {
    /// Strictly ascending.
    keys: Vec<u64>,
    /// Where each row is, or was.
    slots: Vec<Slot>,
    /// Which of `values` each row had; [`UNBORN`] where it had none.
    rows: Vec<u32>,
    values: Vec<f32>,
}

const UNBORN: u32 = u32::MAX;

impl Undo {
    /// Of nothing yet, with room for so many rows and values.
    pub fn with_room(rows: usize, values: usize) -> Undo {
        Undo {
            keys: Vec::with_capacity(rows),
            slots: Vec::with_capacity(rows),
            rows: Vec::with_capacity(rows),
            values: Vec::with_capacity(values),
        }
    }

    /// Notes a row. Keys come in ascending order.
    pub fn push(&mut self, key: u64, slot: Slot, before: Option<&[f32]>) {
        debug_assert!(self.keys.last().is_none_or(|last| *last < key));
        self.keys.push(key);
        self.slots.push(slot);
        self.rows.push(match before {
            None => UNBORN,
            Some(row) => {
                self.values.extend_from_slice(row);
                (self.values.len() / row.len().max(1)) as u32 - 1
            }
        });
    }

    /// What a key's row was before this update. `None`: the update did not change it. `Some(None)`: it did not exist.
    pub fn find(&self, key: u64, dimension: usize) -> Option<Option<&[f32]>> {
        let at = self.keys.binary_search(&key).ok()?;
        Some(self.before(at, dimension))
    }

    fn before(&self, at: usize, dimension: usize) -> Option<&[f32]> {
        let row = self.rows[at];
        (row != UNBORN).then(|| &self.values[row as usize * dimension..][..dimension])
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    /// Whether the update changed none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of what is noted of some slots: `rows (u32) | (key, slot, whether it was there, its embedding if so)*`.
    pub fn encode(&self, slots: &Range<Slot>, dimension: usize) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        let mut rows = 0u32;
        for at in (0..self.len()).filter(|at| slots.contains(&self.slots[*at])) {
            rows += 1;
            bytes.extend_from_slice(&self.keys[at].to_le_bytes());
            bytes.extend_from_slice(&self.slots[at].to_le_bytes());
            let before = self.before(at, dimension);
            bytes.push(u8::from(before.is_some()));
            before.into_iter().flatten().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        }
        bytes[..4].copy_from_slice(&rows.to_le_bytes());
        bytes
    }

    /// What [`encode`](Self::encode) wrote of some slots; none of other bytes.
    pub fn decode(mut bytes: &[u8], slots: &Range<Slot>, dimension: usize) -> Option<Undo> {
        let mut undo = Undo::default();
        let rows = u32::from_le_bytes(*take(&mut bytes)?);
        for _ in 0..rows {
            let key = u64::from_le_bytes(*take(&mut bytes)?);
            let slot = u32::from_le_bytes(*take(&mut bytes)?);
            let before = match take::<1>(&mut bytes)? {
                [0] => None,
                [1] => {
                    let (row, rest) = bytes.split_at_checked(4 * dimension)?;
                    bytes = rest;
                    Some(bytemuck::pod_collect_to_vec::<u8, f32>(row))
                }
                _ => return None,
            };
            if undo.keys.last().is_some_and(|last| *last >= key) || !slots.contains(&slot) {
                return None;
            }
            undo.push(key, slot, before.as_deref());
        }
        bytes.is_empty().then_some(undo)
    }

    /// Both: of slots that the two do not share.
    pub fn join(&self, other: &Undo, dimension: usize) -> Undo {
        let mut joined = Undo::default();
        let (mut ours, mut theirs) = ((0..self.len()).peekable(), (0..other.len()).peekable());
        loop {
            let of_ours = match (ours.peek(), theirs.peek()) {
                (Some(our), Some(their)) => self.keys[*our] <= other.keys[*their],
                (our, _) => our.is_some(),
            };
            let (undo, at) = if of_ours { (self, ours.next()) } else { (other, theirs.next()) };
            let Some(at) = at else { return joined };
            joined.push(undo.keys[at], undo.slots[at], undo.before(at, dimension));
        }
    }
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn undo(rows: &[(u64, Slot, bool)]) -> Undo {
        let mut undo = Undo::default();
        for (key, slot, was_there) in rows {
            let row = [*key as f32, *slot as f32];
            undo.push(*key, *slot, was_there.then_some(&row[..]));
        }
        undo
    }

    proptest! {
        #[test]
        fn pieces_of_an_undo_make_the_whole_again(
            keys in proptest::collection::btree_map(any::<u64>(), (0u32..100, any::<bool>()), 0..30), cut in 0u32..100
        ) {
            let rows: Vec<_> = keys.into_iter().map(|(key, (slot, was_there))| (key, slot, was_there)).collect();
            let whole = undo(&rows);
            let [low, high] = [0..cut, cut..100].map(|slots| {
                Undo::decode(&whole.encode(&slots, 2), &slots, 2).unwrap()
            });
            prop_assert_eq!(low.len() + high.len(), whole.len());
            for joined in [low.join(&high, 2), high.join(&low, 2)] {
                prop_assert_eq!(joined.keys.clone(), whole.keys.clone());
                for (key, slot, was_there) in &rows {
                    let row = [*key as f32, *slot as f32];
                    prop_assert_eq!(joined.find(*key, 2), Some(was_there.then_some(&row[..])));
                }
            }
            prop_assert_eq!(whole.find(7, 2).is_some(), rows.iter().any(|(key, ..)| *key == 7));
        }

        #[test]
        fn bytes_of_anybody_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(undo) = Undo::decode(&bytes, &(0..u32::MAX), 1) {
                prop_assert_eq!(undo.encode(&(0..u32::MAX), 1), bytes);
            }
        }
    }

    #[test]
    fn what_is_no_undo_is_refused() {
        let (slots, sound) = (0..9, undo(&[(3, 1, true), (5, 2, false)]).encode(&(0..9), 2));
        assert!(Undo::decode(&sound, &slots, 2).is_some());
        assert_eq!(Undo::decode(&sound, &(0..2), 2), None, "of another slot");
        assert_eq!(Undo::decode(&sound[..sound.len() - 1], &slots, 2), None);
        assert_eq!(Undo::decode(&[&sound[..], &[0]].concat(), &slots, 2), None);
        let falling = undo(&[(3, 1, false)]).encode(&slots, 2);
        let mut twice = [&falling[..], &falling[4..]].concat();
        twice[0] = 2;
        assert_eq!(Undo::decode(&twice, &slots, 2), None, "keys must ascend");
    }
}
