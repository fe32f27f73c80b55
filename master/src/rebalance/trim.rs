//! Trimming: brings hosts into the band with few bytes, one block after another from the fullest to the emptiest.
//! It must never move a block twice, so that it ends; what it leaves undone the settling finds. Pure.

use super::band::Band;
use super::spread::Spread;
use std::collections::{BTreeMap, BTreeSet};

/// How far from its goal a host gives blocks in order instead of by size: while a block is at most this part of what is
/// still to go. Runs stay together that way: 1,000 unequal blocks on 20 hosts instead of 10 are 80 ranges, not 811.
const FAR: u64 = 4;

/// First only what leaves both hosts inside the band, then whatever makes the two more level, light blocks first.
pub(super) fn trim(spread: &mut Spread<'_>, band: Band) {
    let mut residents = vec![Residents::default(); spread.by_load().len()];
    for (block, size, host) in spread.residents() {
        residents[host as usize].insert((size, block as u32));
    }
    round(spread, band, &mut residents, Residents::fitting);
    round(spread, band, &mut residents, Residents::lightest);
}

/// Moves until the fullest host and the emptiest one are in the band, or no host has a block to give.
///
/// Both loads only come nearer to one another, so a host that has nothing to give will not have it later.
fn round(
    spread: &mut Spread<'_>,
    band: Band,
    residents: &mut [Residents],
    choose: fn(&Residents, &Wish) -> Option<Weighed>,
) {
    let mut givers = spread.by_load().clone();
    while let Some((load, from)) = givers.pop_last() {
        let (least, to) = spread.least();
        if band.holds(load, least) {
            return;
        }
        let wish = Wish::new(band, load, least);
        let Some(chosen) = choose(&residents[from as usize], &wish) else { continue };
        residents[from as usize].remove(chosen);
        spread.shift(chosen.1 as usize, to);
        givers.insert((spread.load(from), from));
        if givers.remove(&(least, to)) {
            givers.insert((spread.load(to), to));
        }
    }
}

/// What a block should weigh that goes from one host to another.
#[derive(Debug)]
struct Wish {
    /// As much would do: the giver comes under the ceiling or, if it is there, the taker up to the floor.
    enough: u64,
    /// More than this would take the giver below the floor or the taker above the ceiling. It is less than the gap:
    /// the giver is above the ceiling or the taker below the floor.
    room: u64,
    /// As much and more betters nothing.
    gap: u64,
}

impl Wish {
    fn new(band: Band, load: u64, least: u64) -> Wish {
        let above = load.saturating_sub(band.ceiling);
        let enough = if above > 0 { above } else { band.floor - least };
        let room = band.ceiling.saturating_sub(least).min(load.saturating_sub(band.floor));
        Wish { enough, room, gap: load - least }
    }
}

/// A block with its size first, so that it sorts by it.
type Weighed = (u64, u32);

/// The blocks of a host that have not moved.
#[derive(Clone, Debug, Default)]
struct Residents {
    by_size: BTreeSet<Weighed>,
    in_order: BTreeMap<u32, u64>,
}

impl Residents {
    fn insert(&mut self, block: Weighed) {
        self.by_size.insert(block);
        self.in_order.insert(block.1, block.0);
    }

    fn remove(&mut self, block: Weighed) {
        self.by_size.remove(&block);
        self.in_order.remove(&block.1);
    }

    /// The last block while far from the goal; then one that reaches it, unless wasteful; else the largest below.
    fn fitting(&self, wish: &Wish) -> Option<Weighed> {
        let last = self.in_order.last_key_value().map(|(block, size)| (*size, *block));
        if let Some(last) = last.filter(|(size, _)| *size <= wish.room && *size <= wish.enough / FAR) {
            return Some(last);
        }
        let reaches = self.by_size.range((wish.enough, 0)..).next().map(|(size, _)| *size);
        let below = self.at_most(wish.room.min(wish.enough.saturating_sub(1)));
        match reaches.filter(|size| *size <= wish.room) {
            Some(size) if below.is_none() || size / 2 <= wish.enough => self.at_most(size),
            _ => below,
        }
    }

    /// The lightest block, if it betters anything.
    fn lightest(&self, wish: &Wish) -> Option<Weighed> {
        let (size, _) = self.by_size.first().filter(|(size, _)| *size < wish.gap)?;
        self.at_most(*size)
    }

    /// The largest block of at most `size` bytes; the last of several, where a run ends.
    fn at_most(&self, size: u64) -> Option<Weighed> {
        self.by_size.range(..=(size, u32::MAX)).next_back().copied()
    }
}
