//! What pservers have said of their blocks: the truth about progress. Pure.
//!
//! Invariant: an answer counts only while its pserver hosts the blocks of the present routing, and every block is
//! asked for by name: a pserver that has not reported all of its blocks has published nothing.

use crate::lease::Lacking;
use shoal_runtime::cluster::plan::EpochShape;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{BlockId, Incarnation, Node, Step, Version};
use std::collections::BTreeMap;

/// Blocks of one pserver that stand at the same version with the same held nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockProgress {
    /// The blocks.
    pub blocks: Vec<BlockId>,
    /// Updates applied.
    pub version: Version,
    /// Nodes held of the step that reads this version, disjoint.
    pub held: Vec<Node>,
}

/// The newest word of every pserver of the present routing.
#[derive(Debug)]
pub struct Reports {
    shape: EpochShape,
    hosted: BTreeMap<Incarnation, usize>,
    said: BTreeMap<Incarnation, Vec<BlockProgress>>,
}

impl Reports {
    /// Nothing heard yet; `hosted` says how many blocks each pserver of the routing hosts.
    pub fn new(shape: EpochShape, hosted: BTreeMap<Incarnation, usize>) -> Reports {
        Reports { shape, hosted, said: BTreeMap::new() }
    }

    /// Takes a pserver's word. A word that is behind an earlier one (overtaken on the way) changes nothing.
    pub fn hear(&mut self, pserver: Incarnation, progress: Vec<BlockProgress>) {
        if !self.hosted.contains_key(&pserver) {
            return;
        }
        let is_behind =
            self.said.get(&pserver).is_some_and(|said| sum_of_versions(said) > sum_of_versions(&progress));
        if !is_behind {
            self.said.insert(pserver, progress);
        }
    }

    /// The lowest version over all blocks; 0 while some block is unheard of.
    pub fn lowest_version(&self) -> Version {
        self.hosted
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(pserver, count)| self.lowest_of(*pserver, *count))
            .min()
            .unwrap_or(Version(0))
    }

    fn lowest_of(&self, pserver: Incarnation, hosted: usize) -> Version {
        let Some(said) = self.said.get(&pserver) else { return Version(0) };
        if said.iter().map(|group| group.blocks.len()).sum::<usize>() < hosted {
            return Version(0);
        }
        said.iter().map(|group| group.version).min().unwrap_or(Version(0))
    }

    /// Whether every pserver of the routing has reported all its blocks.
    pub fn is_complete(&self) -> bool {
        self.hosted.iter().all(|(pserver, count)| {
            *count == 0
                || self
                    .said
                    .get(pserver)
                    .is_some_and(|said| said.iter().map(|group| group.blocks.len()).sum::<usize>() >= *count)
        })
    }
}

fn sum_of_versions(progress: &[BlockProgress]) -> (u128, usize) {
    let versions =
        progress.iter().map(|group| u128::from(group.version.0) * group.blocks.len() as u128).sum();
    let held =
        progress.iter().map(|group| group.held.iter().map(|node| node.width() as usize).sum::<usize>());
    (versions, held.sum())
}

impl Lacking for Reports {
    fn lacking(&self, step: Step, node: Node) -> Vec<Node> {
        let tree = self.shape.tree(step);
        let (first, end) = (node.first(), node.end().min(tree.present()));
        let mut lacks = vec![false; end.saturating_sub(first) as usize];
        for (pserver, hosted) in &self.hosted {
            let said = self.said.get(pserver).map_or(&[][..], Vec::as_slice);
            if said.iter().map(|group| group.blocks.len()).sum::<usize>() < *hosted {
                lacks.fill(true);
            }
            for group in said.iter().filter(|group| group.version <= step.reads()) {
                let held = if group.version == step.reads() { group.held.as_slice() } else { &[] };
                for missing in tree.missing(held.iter().copied()) {
                    let from = missing.first().clamp(first, end.max(first));
                    let to = missing.end().clamp(first, end.max(first));
                    lacks[(from - first) as usize..(to - first) as usize].fill(true);
                }
            }
        }
        stretches(&lacks, first)
    }
}

/// The true stretches of `lacks` as aligned nodes, `first` being the slot of its first element.
fn stretches(lacks: &[bool], first: u32) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut at = 0;
    while at < lacks.len() {
        let length = lacks[at..].iter().take_while(|lacking| **lacking).count();
        aligned(first + at as u32, first + (at + length) as u32, &mut nodes);
        at += length.max(1);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(blocks: &[u32], version: u64, held: &[(u8, u32)]) -> BlockProgress {
        BlockProgress {
            blocks: blocks.iter().map(|b| BlockId(*b)).collect(),
            version: Version(version),
            held: held.iter().map(|(level, index)| Node { level: *level, index: *index }).collect(),
        }
    }
    fn reports() -> Reports {
        let hosted = BTreeMap::from([(Incarnation(1), 2), (Incarnation(2), 1)]);
        Reports::new(EpochShape::new(64, 1, 8), hosted)
    }

    #[test]
    fn a_pserver_that_has_not_reported_all_its_blocks_has_published_nothing() {
        let mut reports = reports();
        reports.hear(Incarnation(1), vec![group(&[0], 3, &[])]);
        reports.hear(Incarnation(2), vec![group(&[2], 3, &[])]);
        assert_eq!((reports.lowest_version(), reports.is_complete()), (Version(0), false));
        reports.hear(Incarnation(1), vec![group(&[0], 3, &[]), group(&[1], 4, &[])]);
        assert_eq!((reports.lowest_version(), reports.is_complete()), (Version(3), true));
    }

    #[test]
    fn what_any_block_lacks_is_lacking() {
        let mut reports = reports();
        reports.hear(Incarnation(1), vec![group(&[0, 1], 3, &[(2, 0), (0, 5)])]);
        reports.hear(Incarnation(2), vec![group(&[2], 4, &[])]);
        let node = Node { level: 3, index: 0 };
        let lacking: Vec<(u8, u32)> =
            reports.lacking(Step(3), node).iter().map(|n| (n.level, n.index)).collect();
        assert_eq!(lacking, [(0, 4), (1, 3)]);
        assert_eq!(reports.lacking(Step(3), Node { level: 2, index: 0 }), []);
        assert_eq!(reports.lacking(Step(4), node), [node]);
    }

    #[test]
    fn an_overtaken_report_changes_nothing() {
        let mut reports = reports();
        reports.hear(Incarnation(2), vec![group(&[2], 4, &[])]);
        reports.hear(Incarnation(2), vec![group(&[2], 3, &[(2, 0)])]);
        reports.hear(Incarnation(9), vec![group(&[2], 9, &[])]);
        assert_eq!(reports.said[&Incarnation(2)][0].version, Version(4));
        assert_eq!(reports.said.len(), 1);
    }
}
