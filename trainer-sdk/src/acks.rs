//! The acknowledgements of one gradient by blocks, and which blocks must be given it (again). Pure.

use shoal_runtime::cluster::{BlockId, Routing, Term};
use std::collections::BTreeSet;

/// The acknowledgements of one gradient, block by block.
#[derive(Clone, Debug)]
pub(crate) struct Acks {
    blocks: Vec<Ack>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    Lacks,
    /// Acknowledged by the primary of this term, and lost with it.
    Held(Term),
    /// Part of a published version: whoever becomes primary has it, unless the block is restored.
    Applied,
}

impl Acks {
    /// The acknowledgements of a gradient that no block has been given.
    pub(crate) fn by_none(blocks: usize) -> Acks {
        Acks { blocks: vec![Ack::Lacks; blocks] }
    }

    pub(crate) fn held(&mut self, block: BlockId, term: Term) {
        self.stand(block, Ack::Held(term));
    }

    pub(crate) fn applied(&mut self, block: BlockId) {
        self.stand(block, Ack::Applied);
    }

    fn stand(&mut self, block: BlockId, standing: Ack) {
        if let Some(block) = self.blocks.get_mut(block.0 as usize) {
            *block = standing;
        }
    }

    /// The blocks that must be given the gradient: all that have not acknowledged it under their present term.
    pub(crate) fn lacking(&self, routing: &Routing) -> BTreeSet<BlockId> {
        let lacks = |(standing, term): (&Ack, Term)| match standing {
            Ack::Lacks => true,
            Ack::Held(held) => *held != term,
            Ack::Applied => false,
        };
        let terms = routing.blocks.iter().map(|route| route.term);
        let blocks = self.blocks.iter().zip(terms).zip(0..);
        blocks.filter(|(block, _)| lacks(*block)).map(|(_, id)| BlockId(id)).collect()
    }

    /// Whether every block has applied the gradient: none can lose it any more.
    pub(crate) fn is_applied(&self) -> bool {
        self.blocks.iter().all(|standing| *standing == Ack::Applied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::tests::routing;

    #[test]
    fn what_is_held_is_lacking_under_another_term_and_what_is_applied_never() {
        let mut acks = Acks::by_none(3);
        acks.held(BlockId(0), Term(1));
        acks.applied(BlockId(1));
        let lacking = |acks: &Acks, terms: &[u64]| {
            let routing = routing(9, &terms.iter().map(|term| (0, *term, 0)).collect::<Vec<_>>());
            acks.lacking(&routing).into_iter().map(|block| block.0).collect::<Vec<_>>()
        };
        assert_eq!(lacking(&acks, &[1, 1, 1]), [2]);
        assert_eq!(lacking(&acks, &[4, 4, 4]), [0, 2]);
        acks.applied(BlockId(2));
        assert!(!acks.is_applied());
        acks.applied(BlockId(0));
        assert!(acks.is_applied() && lacking(&acks, &[4, 4, 4]).is_empty());
    }
}
