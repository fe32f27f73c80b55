//! What is measured: the shapes of the jobs of each part. Pure.

use super::Arguments;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Of the model whose blocks become smaller.
const COUNT_MIB: u64 = 512;
/// After how many steps hashes are recorded: the first is what the others are held against.
const RECORDED: [u64; 3] = [0, 10, 1];
/// Elements of 1 MiB.
const MIB_ELEMENTS: u64 = 1 << 18;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// A model of 512 MiB in more and more blocks
    Count,
    /// Larger and larger models in blocks of one size
    Size,
    /// A shard's updates that wait for a decision over all blocks
    Decided,
    /// A follower's updates once it has been left behind
    Followed,
    /// Models of the sizes of `size` whose hashes are recorded after no step, after one in ten, after each
    Recorded,
}

/// A job of one trainer with one parameter, plain descent, one microbatch a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Of the parameter, in MiB.
    pub(crate) mib: u64,
    /// That it is cut into.
    pub(crate) blocks: u64,
    /// Copies of each block beside its primary.
    pub(crate) followers: u32,
    /// Whether the norm over all blocks is decided on before any block is updated.
    pub(crate) clips: bool,
    /// After every so many steps hashes of all blocks are recorded; 0 for none.
    pub(crate) records: u64,
    /// That are counted.
    pub(crate) steps: u64,
}

impl Part {
    /// Its jobs: those that are compared stand one after another, the fewest blocks first.
    pub(crate) fn shapes(self, arguments: &Arguments) -> Vec<Shape> {
        let Arguments { steps, block_kib, ref blocks, ref mib, ref followers, .. } = *arguments;
        let of_count = |followers, clips| {
            let shape = move |blocks| Shape { mib: COUNT_MIB, blocks, followers, clips, records: 0, steps };
            blocks.iter().copied().map(shape).collect::<Vec<Shape>>()
        };
        let of_size = |followers| {
            let shape = move |mib: u64| {
                // As many bytes go over the wire as in a job of 512 MiB: what a tick of the clock makes wrong is as little.
                let steps = steps * (COUNT_MIB / mib).max(1);
                let blocks = (mib << 10).div_ceil(block_kib);
                Shape { mib, blocks, followers, clips: false, records: 0, steps }
            };
            mib.iter().copied().map(shape).collect::<Vec<Shape>>()
        };
        let of_recorded = |shape: Shape| RECORDED.map(|records| Shape { records, ..shape });
        let followers = followers.iter().copied();
        match self {
            Part::Count => followers
                .flat_map(|followers| [false, true].map(|clips| of_count(followers, clips)).concat())
                .collect(),
            Part::Size => followers.flat_map(of_size).collect(),
            Part::Recorded => followers.flat_map(of_size).flat_map(of_recorded).collect(),
            Part::Decided | Part::Followed => Vec::new(),
        }
    }

    /// Whether it is of updates that fall due at once.
    pub(crate) fn is_at_once(self) -> bool {
        matches!(self, Part::Decided | Part::Followed)
    }
}

impl Shape {
    pub(crate) fn elements(&self) -> u64 {
        self.mib * MIB_ELEMENTS
    }

    /// Of a block.
    pub(crate) fn block_elements(&self) -> u64 {
        self.elements().div_ceil(self.blocks)
    }

    /// A pserver for each copy, as no pserver has two of one block.
    pub(crate) fn pservers(&self) -> u32 {
        self.followers + 1
    }

    pub(crate) fn gib(&self) -> f64 {
        self.mib as f64 / 1024.0
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Count => "count",
            Part::Size => "size",
            Part::Decided => "decided",
            Part::Followed => "followed",
            Part::Recorded => "recorded",
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { mib, blocks, followers, clips, records, .. } = self;
        let clips = if *clips { ", clipped" } else { "" };
        write!(f, "{mib} MiB in {blocks} blocks, {followers} followers{clips}, recorded {records}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn shapes(part: Part, flags: &[&str]) -> Vec<Shape> {
        let flags = std::iter::once("blocks").chain(flags.iter().copied());
        part.shapes(&Arguments::try_parse_from(flags).unwrap())
    }

    #[test]
    fn jobs_that_are_compared_follow_one_another_and_only_blocks_differ() {
        let shapes = shapes(Part::Count, &["--blocks", "512,4096"]);
        let told: Vec<(u64, u32, bool)> =
            shapes.iter().map(|shape| (shape.blocks, shape.followers, shape.clips)).collect();
        let expected = [
            [(512, 0, false), (4096, 0, false), (512, 0, true), (4096, 0, true)],
            [(512, 1, false), (4096, 1, false), (512, 1, true), (4096, 1, true)],
        ];
        assert_eq!(told, expected.concat());
        assert!(shapes.iter().all(|shape| shape.mib == 512 && shape.steps == 8));
        assert_eq!(shapes[1].block_elements(), 1 << 15);
    }

    #[test]
    fn what_is_recorded_stands_beside_the_same_job_that_records_nothing() {
        let shapes = shapes(Part::Recorded, &["--mib", "64", "--followers", "0,1"]);
        let told: Vec<(u32, u64)> = shapes.iter().map(|shape| (shape.followers, shape.records)).collect();
        assert_eq!(told, [(0, 0), (0, 10), (0, 1), (1, 0), (1, 10), (1, 1)]);
    }

    #[test]
    fn small_models_are_trained_for_more_steps_and_all_blocks_have_one_size() {
        let shapes = shapes(Part::Size, &["--mib", "64,4096", "--followers", "0", "--steps", "2"]);
        assert_eq!(
            shapes.iter().map(|shape| (shape.blocks, shape.steps)).collect::<Vec<_>>(),
            [(64, 16), (4096, 2)]
        );
        assert!(shapes.iter().all(|shape| shape.block_elements() == MIB_ELEMENTS));
        let small = self::shapes(Part::Size, &["--mib", "64", "--followers", "0", "--block-kib", "16"]);
        assert_eq!((small[0].blocks, small[0].block_elements()), (4096, MIB_ELEMENTS / 64));
    }
}
