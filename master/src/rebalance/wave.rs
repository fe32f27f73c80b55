//! Waves: which of the pending moves begin now, so that no host is overrun. It must never leave all hosts idle while
//! something is pending. Pure.

use shoal_runtime::cluster::{BlockId, Incarnation};
use std::collections::{BTreeMap, BTreeSet};

/// A copy of a block on its way from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// What moves.
    pub block: BlockId,
    /// Who sends it: the block's primary.
    pub from: Incarnation,
    /// Who receives it; another than the sender.
    pub to: Incarnation,
    /// What travels.
    pub bytes: u64,
}

/// The moves of `pending` to begin now, in their order there. Together with those in flight no host takes part, as
/// source or as target, in more than `bytes_max` bytes, unless it takes part in one move only: a block larger than that
/// goes alone.
///
/// Earlier moves have the first choice; a later one may overtake a move that has no room yet. What is in flight
/// already (the same block to the same target) is not begun again. While nothing is in flight something begins; so
/// all pending moves begin in the end, if those in flight end. Costs a pass over `pending`: to be asked now and then,
/// not at every move's end.
pub fn wave(pending: &[Move], in_flight: &[Move], bytes_max: u64) -> Vec<Move> {
    let mut on_the_way: BTreeMap<Incarnation, u64> = BTreeMap::new();
    let mut begun: BTreeSet<(BlockId, Incarnation)> = BTreeSet::new();
    for moving in in_flight {
        begin(moving, &mut on_the_way, &mut begun);
    }
    let mut wave = Vec::new();
    for moving in pending {
        let has_room = |host| match on_the_way.get(&host) {
            None => true,
            Some(bytes) => bytes.saturating_add(moving.bytes) <= bytes_max,
        };
        let is_new = !begun.contains(&(moving.block, moving.to));
        if is_new && has_room(moving.from) && has_room(moving.to) {
            begin(moving, &mut on_the_way, &mut begun);
            wave.push(*moving);
        }
    }
    wave
}

fn begin(
    moving: &Move,
    on_the_way: &mut BTreeMap<Incarnation, u64>,
    begun: &mut BTreeSet<(BlockId, Incarnation)>,
) {
    for host in [moving.from, moving.to] {
        let bytes = on_the_way.entry(host).or_default();
        *bytes = bytes.saturating_add(moving.bytes);
    }
    begun.insert((moving.block, moving.to));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    fn moving(block: u32, from: u64, to: u64, bytes: u64) -> Move {
        Move { block: BlockId(block), from: Incarnation(from), to: Incarnation(to), bytes }
    }

    #[test]
    fn a_host_is_filled_to_the_limit_as_source_and_target_together() {
        let pending = [moving(0, 1, 2, 4), moving(1, 3, 1, 4), moving(2, 1, 4, 3), moving(3, 1, 5, 2)];
        assert_eq!(wave(&pending, &[], 10), [pending[0], pending[1], pending[3]]);
        assert_eq!(wave(&pending, &[moving(9, 6, 1, 6)], 10), [pending[0]]);
    }

    #[test]
    fn a_block_larger_than_the_limit_goes_alone() {
        let pending = [moving(0, 1, 2, 50), moving(1, 1, 3, 1), moving(2, 4, 2, 1), moving(3, 4, 5, 1)];
        assert_eq!(wave(&pending, &[], 10), [pending[0], pending[3]]);
        assert_eq!(wave(&pending, &[moving(9, 2, 6, 1)], 10), pending[1..]);
        assert_eq!(wave(&pending[..1], &[moving(9, 1, 6, 1)], 10), []);
    }

    #[test]
    fn what_is_in_flight_is_not_begun_again_but_a_second_copy_of_the_block_is() {
        let pending = [moving(0, 1, 2, 1), moving(0, 1, 3, 1), moving(0, 1, 3, 1)];
        assert_eq!(wave(&pending, &pending[..1], 10), [pending[1]]);
    }

    fn moves(count: usize) -> impl Strategy<Value = Vec<Move>> {
        let one = (0u64..6, 1u64..6, prop_oneof![1u64..30, Just(10u64), 90u64..300]);
        vec(one, 0..count).prop_map(|moves| {
            let named = moves.into_iter().zip(0..);
            named.map(|((from, by, bytes), block)| moving(block, from, (from + by) % 6, bytes)).collect()
        })
    }

    /// Whether no host takes part in more than `bytes_max` bytes, or in one move only.
    fn is_bounded(in_flight: &[Move], bytes_max: u64) -> bool {
        (0..6).map(Incarnation).all(|host| {
            let at_host = in_flight.iter().filter(|moving| moving.from == host || moving.to == host);
            at_host.clone().count() <= 1 || at_host.map(|moving| moving.bytes).sum::<u64>() <= bytes_max
        })
    }

    proptest! {
        #[test]
        fn wave_after_wave_every_move_is_made_once_and_no_host_is_overrun(
            all in moves(60), bytes_max in 1u64..120, ends in vec(any::<Index>(), 200)
        ) {
            let (mut pending, mut in_flight, mut made) = (all.clone(), Vec::new(), 0);
            for end in ends {
                let wave = wave(&pending, &in_flight, bytes_max);
                prop_assert_eq!(&wave, &super::wave(&pending, &in_flight, bytes_max));
                pending.retain(|moving| !wave.contains(moving));
                in_flight.extend(wave);
                prop_assert!(is_bounded(&in_flight, bytes_max));
                prop_assert!(!in_flight.is_empty() || pending.is_empty());
                if !in_flight.is_empty() {
                    in_flight.remove(end.index(in_flight.len()));
                    made += 1;
                }
            }
            prop_assert_eq!((made, pending.len()), (all.len(), 0));
        }

        #[test]
        fn nothing_waits_that_has_room(all in moves(40), split in any::<Index>(), bytes_max in 1u64..120) {
            let (in_flight, pending) = all.split_at(split.index(all.len() + 1));
            let in_flight = wave(in_flight, &[], bytes_max);
            let wave = wave(pending, &in_flight, bytes_max);
            let together: Vec<Move> = in_flight.iter().chain(&wave).copied().collect();
            for waiting in pending.iter().filter(|moving| !wave.contains(moving)) {
                let with_it: Vec<Move> = together.iter().chain([waiting]).copied().collect();
                prop_assert!(!is_bounded(&with_it, bytes_max), "{:?} has room", waiting);
            }
        }
    }
}
