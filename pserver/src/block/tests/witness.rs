//! What has ever been seen of the copies of one block, and what may never be seen after it: the invariants 15 to 20
//! of ARCHITECTURE.md, judged from outside.

use super::world::Document;
use super::*;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Witness {
    is_async: bool,
    /// Every state that ever was, with the state it follows.
    states: BTreeMap<StateName, (BlockCopy, Option<StateName>)>,
    /// What a copy held when it was last seen.
    last: BTreeMap<(Incarnation, Fill), (StateName, Version)>,
    /// Every version that anybody could ever read of a history.
    served: BTreeMap<(Rewind, Version), StateName>,
    /// How far followers have told a primary that they are, under a term.
    acknowledged: BTreeMap<(Incarnation, Term, Incarnation, Fill), Version>,
}

impl Witness {
    pub(super) fn new(job: &JobSettings) -> Witness {
        let (states, last, served, acknowledged) = Default::default();
        Witness { is_async: !job.is_sync(), states, last, served, acknowledged }
    }

    pub(super) fn look<'a>(
        &mut self,
        blocks: impl Iterator<Item = (Incarnation, &'a Block)>,
        document: &Document,
    ) {
        for (me, block) in blocks {
            let is_primary = matches!(block.role, Role::Primary(_));
            assert_eq!(is_primary, block.placement.primary == me, "{me} is what it was told to be");
            assert!(is_primary || read(block, 0) == Reading::Elsewhere, "{me} follows and answers");
            if block.state.is_some() {
                self.look_at_state(me, block);
                self.look_at_published(me, block);
            }
            self.look_at_safety(me, block, document);
        }
    }

    /// A state has the bits that it always had, and was made by its primary from the one before.
    fn look_at_state(&mut self, me: Incarnation, block: &Block) {
        let copy = state(block);
        let (name, earlier) = (copy.name, copy.earlier.clone());
        let bits = BlockCopy { earlier: Vec::new(), published: Version(0), ..copy };
        let is_primary = matches!(block.role, Role::Primary(_));
        let before = self.last.get(&(me, block.placement.fill)).map(|(name, _)| *name);
        match self.states.get_mut(&name) {
            // Of one that was passed at once only the parameters were seen.
            Some((known, _)) if known.slots.is_empty() => {
                assert_eq!(known.parameters, bits.parameters, "{name} has other bits on {me}");
                *known = bits;
            }
            Some((known, _)) => assert_eq!(*known, bits, "{name} has other bits on {me}"),
            None => {
                assert!(is_primary, "{me} follows, and holds {name}, which no primary made");
                assert_eq!(name.term, block.placement.term, "made under another term than its own");
                let mut parent = before.filter(|_| name.version > Version(0));
                // Where there is a delay the root of the next step may have waited for this one.
                while let Some(passed) = parent.filter(|parent| parent.version.0 + 1 < name.version.0) {
                    let version = Version(passed.version.0 + 1);
                    let passed_name = StateName { term: name.term, version };
                    let back = (name.version.0 - version.0) as usize;
                    let parameters = earlier[earlier.len() - back].clone();
                    let copy = BlockCopy { name: passed_name, parameters, slots: Vec::new(), ..bits.clone() };
                    self.states.insert(passed_name, (copy, parent));
                    parent = Some(passed_name);
                }
                self.states.insert(name, (bits, parent));
            }
        }
        let parent = |name: StateName| self.states[&name].1;
        let past = std::iter::successors(parent(name), |name| parent(*name));
        let past = past.take(block.job.mode.earlier_states() as usize);
        let mut kept: Vec<Bytes> = past.map(|name| self.states[&name].0.parameters.clone()).collect();
        kept.reverse();
        assert_eq!(earlier, kept, "{me} at {name} keeps the versions before");
        let ledger = &self.states[&name].0.ledger;
        let positions = ledger.low() + ledger.ranges().map(|range| range.end - range.start).sum::<u64>();
        assert_eq!(
            positions,
            if self.is_async { name.version.0 } else { 0 },
            "every update is another position"
        );
    }

    /// What is published never goes back or aside, and can be read where it should be.
    fn look_at_published(&mut self, me: Incarnation, block: &Block) {
        let (name, rewind) = (state(block).name, block.placement.rewind);
        let published = block.published();
        assert!(published <= name.version);
        let old = self.last.insert((me, block.placement.fill), (name, published));
        assert!(old.is_none_or(|(_, before)| before <= published), "{me} publishes less than it did");
        let ours = self.ancestor(name, published);
        let before = self.served.range((rewind, Version(0))..=(rewind, published)).next_back();
        if let Some(((_, version), served)) = before {
            assert_eq!(self.ancestor(ours, *version), *served, "{me} takes for published what never was");
        }
        if matches!(block.role, Role::Primary(_)) {
            let first = *self.served.entry((rewind, published)).or_insert(ours);
            assert_eq!(first, ours, "two histories were published");
            let after = self.served.range((rewind, published)..=(rewind, Version(u64::MAX))).nth(1);
            assert!(
                after.is_none_or(|(_, after)| self.ancestor(*after, published) == ours),
                "published beside"
            );
            self.look_at_reading(block, ours);
        }
    }

    fn look_at_reading(&self, block: &Block, published: StateName) {
        let bits = &self.states[&published].0;
        if self.is_async {
            let (reading, _) = block.read_newest(&[]);
            let found = Reading::Parameters(bits.parameters.clone(), published.version);
            // A copy that came whole has two versions; what is published may lie before them.
            let is_kept = published.version.0 + 1 >= state(block).name.version.0;
            assert!(reading == found || (reading == Reading::NotYet && !is_kept), "{reading:?}");
            if let Standing::Primary { ledger, .. } = block.standing() {
                assert_eq!(ledger, bits.ledger, "what is reported is what is published");
            }
        } else {
            let delay = block.job.mode.delay();
            let step = published.version.0 + delay;
            assert_eq!(read(block, step), Reading::Parameters(bits.parameters.clone(), published.version));
            assert_eq!(read(block, step + 1), Reading::NotYet);
        }
    }

    /// Whoever may be promoted now has all that was ever published in this history.
    fn look_at_safety(&self, me: Incarnation, block: &Block, document: &Document) {
        let is_heir = document.copies.get(&me) == Some(&(block.placement.fill, true));
        let history = (document.rewind, Version(0))..=(document.rewind, Version(u64::MAX));
        let Some(((_, version), served)) = self.served.range(history).next_back() else { return };
        if is_heir && block.placement.rewind == document.rewind {
            let name = block.state.as_ref().map(State::name);
            let name = name.unwrap_or_else(|| panic!("{me} is in-sync and empty"));
            assert!(name.version >= *version, "{me} is in-sync at {name}, {served} is published");
            assert_eq!(self.ancestor(name, *version), *served, "{me} is in-sync in another history");
        }
    }

    /// The state of `version` in the past of `name`.
    pub(super) fn ancestor(&self, mut name: StateName, version: Version) -> StateName {
        while name.version > version {
            name = self.states[&name].1.unwrap_or_else(|| panic!("{name} has no past"));
        }
        name
    }

    /// Every state that ever was.
    pub(super) fn ever(&self) -> impl Iterator<Item = (StateName, &BlockCopy)> {
        self.states.iter().map(|(name, (copy, _))| (*name, copy))
    }

    /// The content of a state that was.
    pub(super) fn content(&self, name: StateName) -> &BlockCopy {
        &self.states[&name].0
    }

    pub(super) fn acknowledged(
        &mut self,
        primary: Incarnation,
        term: Term,
        follower: Incarnation,
        fill: Fill,
        name: Option<StateName>,
    ) {
        if let Some(name) = name {
            let told = self.acknowledged.entry((primary, term, follower, fill)).or_insert(name.version);
            *told = (*told).max(name.version);
        }
    }

    /// The filling copies that have told this primary that they have all that it has published.
    pub(super) fn level(&self, me: Incarnation, block: &Block) -> Vec<(Incarnation, Fill)> {
        let Placement { term, copies, .. } = block.placement();
        let (Role::Primary(Primary { inherited, .. }), Some(_)) = (&block.role, &block.state) else {
            return Vec::new();
        };
        let filling = copies.iter().filter(|copy| !copy.is_in_sync);
        // A predecessor that nobody hears any more may have published all that was inherited.
        let needed = inherited.map_or(block.published, |inherited| inherited.version.max(block.published));
        let is_level = |copy: &&PlacedCopy| {
            let told = self.acknowledged.get(&(me, *term, copy.pserver, copy.fill));
            told.is_some_and(|told| *told >= needed)
        };
        filling.filter(is_level).map(|copy| (copy.pserver, copy.fill)).collect()
    }

    /// Whom a primary that is to hand over may name: all that there is is published, so no copy is ahead of another.
    pub(super) fn heir(&self, block: &Block) -> Option<(Incarnation, Fill)> {
        let heir = block.placement.heir.filter(|_| matches!(block.role, Role::Primary(_)))?;
        let copy = block.placement.copies.iter().find(|copy| copy.pserver == heir && copy.is_in_sync)?;
        let is_done = block.state.as_ref()?.version() == block.published;
        is_done.then_some((heir, copy.fill))
    }
}
