//! Which slots of a bucket have changed since its pieces of checkpoints were begun, so that the next piece may be what
//! changed since a durable one. It must never leave a slot out; one too many costs a few bytes.

use super::arena::Slot;
use shoal_runtime::cluster::CheckpointId;
use shoal_runtime::cluster::slot_set::SlotSet;

/// What has changed since the pieces of at most two checkpoints were begun: of the newest, which may never become durable,
/// and of the durable one before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed {
    /// Oldest first: a checkpoint, and the slots that changed from its piece to the next one's, or to now.
    since: Vec<(CheckpointId, SlotSet)>,
}

impl Changed {
    /// A slot changes.
    pub(super) fn note(&mut self, slot: Slot) {
        if let Some((_, slots)) = self.since.last_mut() {
            slots.insert(slot);
        }
    }

    /// A piece is begun now: that of the checkpoint `base`, on which later ones may rest, or one on which none may. Answers the
    /// slots that changed since the piece of `since` was begun; none if that is not known, and the piece has to have everything.
    pub(super) fn begin(
        &mut self,
        base: Option<CheckpointId>,
        since: Option<CheckpointId>,
    ) -> Option<SlotSet> {
        let at = since.and_then(|since| self.since.iter().position(|(known, _)| *known == since));
        let kept = at.and_then(|at| {
            // Checkpoints that were begun after `since` have not become durable, and never will: what changed after them
            // changed since `since`.
            let mut kept = self.since.split_off(at).into_iter();
            let (durable, mut slots) = kept.next()?;
            kept.for_each(|(_, more)| slots.extend(&more));
            Some((durable, slots))
        });
        let changed = kept.as_ref().map(|(_, slots)| slots.clone());
        let begun = base.map(|base| (base, SlotSet::default()));
        self.since = kept.into_iter().chain(begun).collect();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(changed: &mut Changed, checkpoint: u64, since: u64) -> Option<Vec<Slot>> {
        let [base, since] = [checkpoint, since].map(|id| Some(CheckpointId(id)).filter(|id| id.0 > 0));
        Some(changed.begin(base, since)?.from(0).collect())
    }

    #[test]
    fn slots_are_those_that_changed_since_the_durable_one_whatever_was_abandoned() {
        let changed = &mut Changed::default();
        changed.note(1);
        assert_eq!(begun(changed, 1, 0), None, "nothing was written before");
        changed.note(2);
        assert_eq!(begun(changed, 2, 1), Some(vec![2]));
        changed.note(3);
        assert_eq!(begun(changed, 3, 1), Some(vec![2, 3]), "the second was abandoned");
        changed.note(4);
        assert_eq!(begun(changed, 4, 3), Some(vec![4]), "the third is durable");
        changed.note(4);
        assert_eq!(begun(changed, 5, 3), Some(vec![4]));
        assert_eq!(changed.since.len(), 2);
    }

    #[test]
    fn without_a_piece_of_the_durable_one_everything_is_written() {
        let changed = &mut Changed::default();
        assert_eq!(begun(changed, 7, 6), None);
        changed.note(1);
        assert_eq!(begun(changed, 8, 0), None, "a full one is asked for");
        assert_eq!(begun(changed, 9, 7), None, "it is forgotten");
        changed.note(2);
        assert_eq!(begun(changed, 10, 9), Some(vec![2]));
    }

    #[test]
    fn nothing_rests_on_a_piece_beside_which_another_may_count() {
        let changed = &mut Changed::default();
        assert_eq!(begun(changed, 0, 0), None);
        changed.note(1);
        assert_eq!(begun(changed, 2, 1), None, "its own piece of the first may not be the one that counts");
        changed.note(2);
        assert_eq!(begun(changed, 0, 2), Some(vec![2]), "it may rest on another itself");
        changed.note(3);
        assert_eq!(begun(changed, 4, 2), Some(vec![2, 3]), "the third did not become durable");
    }
}
