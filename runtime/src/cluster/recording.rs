//! Hashes of a model's values after a step: what a run records, and a replay of it compares. What roles must agree on.

use super::layout::{BlockLayout, Layout};
use super::{BlockId, Course, Declaration, Rewind, Term, Version};

/// The most hashes of one block: where more pieces of parameters lie in it, neighbours share one.
pub const HASHES_MAX: usize = 64;

/// The hashes of one block after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockHashes {
    /// The block.
    pub block: BlockId,
    /// The version whose values they are of.
    pub version: Version,
    /// The history that the version belongs to.
    pub rewind: Rewind,
    /// The term under which it was made: under a later one it may have been made again.
    pub term: Term,
    /// XXH3 in 64 bits of the little-endian values of each piece, or of several neighbours, in their order; of a bucket one.
    pub hashes: Vec<u64>,
}

/// The hashes of all blocks after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepHashes {
    /// The version whose values they are of. It counts the units of evaluations, too.
    pub version: Version,
    /// The step that made it, counted from 1; 0 is the model as the job begins.
    pub step: u64,
    /// The history that the version belongs to.
    pub rewind: Rewind,
    /// Of each block, by its number, what [`BlockHashes::hashes`] are.
    pub blocks: Vec<Vec<u64>>,
}

/// Where two models differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashDifference {
    /// The first block that differs.
    pub block: BlockId,
    /// The parameters that the first hash that differs is of.
    pub parameters: Vec<String>,
    /// How many hashes differ, of how many.
    pub hashes: (usize, usize),
}

/// The step that made a version, if its hashes are recorded in a job of that course where every so many steps are: of the units of an
/// evaluation none is. `every` 0 records nothing.
pub fn recorded_step(course: &Course, every: u64, version: Version) -> Option<u64> {
    let step = course.trained(version.0);
    let is_made_by_it = version.0 == 0 || course.trained(version.0 - 1) < step;
    (every > 0 && is_made_by_it && step.is_multiple_of(every)).then_some(step)
}

/// How many pieces of a block, one after the other, share a hash.
pub fn pieces_of_hash(pieces: usize) -> usize {
    pieces.div_ceil(HASHES_MAX).max(1)
}

/// How many hashes a block has.
pub fn hashes_of(block: &BlockLayout) -> usize {
    let pieces = block.pieces.len().max(1);
    pieces.div_ceil(pieces_of_hash(pieces))
}

/// The first difference between the hashes of two models of one declaration; none where they are equal.
pub fn difference(declaration: &Declaration, one: &StepHashes, other: &StepHashes) -> Option<HashDifference> {
    let layout = Layout::new(declaration);
    let pairs = || {
        let blocks = layout.iter().zip(one.blocks.iter().zip(&other.blocks));
        blocks.flat_map(|((id, block), (one, other))| {
            let pairs = one.iter().zip(other).enumerate();
            pairs.map(move |(at, (one, other))| (id, block, at, one != other))
        })
    };
    let (id, block, at, _) = pairs().find(|(.., differs)| *differs)?;
    let name = |parameter: usize| declaration.parameters[parameter].name.clone();
    let each = pieces_of_hash(block.pieces.len());
    let pieces = block.pieces.iter().skip(at * each).take(each).map(|piece| name(piece.parameter));
    let parameters = block.bucket.map(|bucket| name(bucket.parameter)).into_iter().chain(pieces).collect();
    let hashes = (pairs().filter(|(.., differs)| *differs).count(), pairs().count());
    Some(HashDifference { block: id, parameters, hashes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::initial::Initial;
    use crate::cluster::{Parameter, Rule, Schedule};

    fn declaration(parameters: usize) -> Declaration {
        let parameter = |at: usize| {
            let name = format!("p{at}");
            Parameter::new(&name, &[2], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros)
        };
        Declaration { parameters: (0..parameters).map(parameter).collect(), block_elements: 400 }
    }

    #[test]
    fn of_a_job_that_evaluates_versions_that_steps_made_are_recorded_and_no_other() {
        // t t e e e t t e e e t e e e
        let course = Course::new(5, 2, 3);
        let recorded = |every| -> Vec<(u64, u64)> {
            let versions = 0..=course.units();
            versions.filter_map(|at| Some((at, recorded_step(&course, every, Version(at))?))).collect()
        };
        assert_eq!(recorded(1), [(0, 0), (1, 1), (2, 2), (6, 3), (7, 4), (11, 5)]);
        assert_eq!(recorded(2), [(0, 0), (2, 2), (7, 4)]);
        assert!(recorded(0).is_empty());
    }

    #[test]
    fn the_first_difference_is_named_by_its_block_and_parameters() {
        let declaration = declaration(300);
        let layout = Layout::new(&declaration);
        let counts: Vec<usize> = layout.iter().map(|(_, block)| hashes_of(block)).collect();
        assert_eq!(counts, [50, 50], "of 200 pieces four share one, of 100 two do");
        let blocks: Vec<Vec<u64>> = counts.iter().map(|count| vec![7; *count]).collect();
        let one = StepHashes { version: Version(1), step: 1, rewind: Rewind(1), blocks };
        assert_eq!(difference(&declaration, &one, &one), None);
        let mut other = one.clone();
        (other.blocks[1][3], other.blocks[1][4]) = (8, 9);
        let found = difference(&declaration, &one, &other).unwrap();
        assert_eq!((found.block, found.hashes), (BlockId(1), (2, 100)));
        assert_eq!(found.parameters, ["p206", "p207"]);
    }
}
