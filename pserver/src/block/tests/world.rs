//! Copies of one block on a few pservers, a master that places them, and a net that loses, repeats and keeps back
//! whatever it likes: all by hand, so that a property can try every interleaving. It moves things; `witness` judges.

use super::witness::Witness;
use super::*;
use crate::block::primary::PlacedCopy;
use std::collections::BTreeMap;

pub(super) const PSERVERS: usize = 4;

/// What is on its way.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// A follower's word to the primary that it means.
    Cursor { from: Incarnation, to: Incarnation, fill: Fill, term: Term, cursor: Option<Cursor>, room: bool },
    /// The primary's news.
    News { to: Incarnation, fill: Fill, term: Term, published: Version, news: News },
    /// The master's word to a pserver: its copy, at a routing version.
    Placed { to: Incarnation, version: u64, placement: Option<Placement> },
    /// A primary asks for a copy to be admitted, or to take over.
    Ask { from: Incarnation, term: Term, copy: Incarnation, fill: Fill, is_heir: bool },
}

/// One pserver and its copy.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) me: Incarnation,
    pub(super) known: u64,
    pub(super) block: Option<Block>,
}

/// The master's document.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) version: u64,
    pub(super) term: Term,
    pub(super) rewind: Rewind,
    pub(super) primary: Incarnation,
    pub(super) heir: Option<Incarnation>,
    /// Fill, and whether it is in-sync.
    pub(super) copies: BTreeMap<Incarnation, (Fill, bool)>,
}

pub(super) struct World {
    pub(super) job: JobSettings,
    terms: Arc<BlockSettings>,
    pub(super) shape: Arc<BlockShape>,
    pub(super) hosts: Vec<Host>,
    pub(super) document: Document,
    pub(super) net: Vec<Message>,
    pub(super) witness: Witness,
    lives: u64,
    /// Makes every gradient another, so that histories that part have other bits.
    pub(super) pushes: u32,
}

impl World {
    /// One primary, placed and restored, on the first pserver.
    pub(super) fn new(job: JobSettings) -> World {
        let me = |at: usize| Incarnation(at as u64 + 1);
        let hosts = (0..PSERVERS).map(|at| Host { me: me(at), known: 0, block: None }).collect();
        let copies = BTreeMap::from([(me(0), (Fill(1), true))]);
        let (term, rewind, primary) = (Term(1), Rewind(1), me(0));
        let document = Document { version: 1, term, rewind, primary, heir: None, copies };
        let shape = shape_in(&decaying(), BlockId(0), job.gradients);
        let mut world = World {
            terms: Arc::new(BlockSettings::new(&job, 16)),
            witness: Witness::new(&job),
            job,
            hosts,
            document,
            net: Vec::new(),
            shape,
            lives: PSERVERS as u64,
            pushes: 0,
        };
        world.tell(0);
        world
    }

    pub(super) fn host(&mut self, me: Incarnation) -> Option<&mut Host> {
        self.hosts.iter_mut().find(|host| host.me == me)
    }

    /// Compares everything that can be seen with everything that was seen before.
    pub(super) fn look(&mut self) {
        let blocks = self.hosts.iter().filter_map(|host| Some((host.me, host.block.as_ref()?)));
        self.witness.look(blocks, &self.document);
    }

    // ---- the master -----------------------------------------------------------------------------------------

    /// The next routing version, with `change` made. Nobody is told.
    pub(super) fn decide(&mut self, change: impl FnOnce(&mut Document)) {
        self.document.version += 1;
        change(&mut self.document);
    }

    /// Whether a copy may be promoted: it is in-sync and another than the primary.
    pub(super) fn is_heir(&self, at: usize) -> bool {
        let me = self.hosts[at].me;
        me != self.document.primary
            && self.document.copies.get(&me).is_some_and(|(_, is_in_sync)| *is_in_sync)
    }

    pub(super) fn promote(&mut self, at: usize) {
        let heir = self.hosts[at].me;
        self.decide(|document| {
            (document.term, document.primary, document.heir) = (Term(document.version), heir, None);
        });
    }

    /// The primary is to hand over to this copy, or to nobody.
    pub(super) fn choose_heir(&mut self, at: Option<usize>) {
        let heir = at.map(|at| self.hosts[at].me);
        self.decide(|document| document.heir = heir);
    }

    /// A copy is added, or added again, under a new fill.
    pub(super) fn add(&mut self, at: usize) {
        let me = self.hosts[at].me;
        if me != self.document.primary {
            self.decide(|document| {
                document.heir = document.heir.filter(|heir| *heir != me);
                document.copies.insert(me, (Fill(document.version), false));
            });
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        let me = self.hosts[at].me;
        if me != self.document.primary && self.document.copies.contains_key(&me) {
            self.decide(|document| {
                document.heir = document.heir.filter(|heir| *heir != me);
                document.copies.remove(&me);
            });
        }
    }

    /// The block goes back to its initial values, on this pserver alone.
    pub(super) fn rewind(&mut self, at: usize) {
        let me = self.hosts[at].me;
        self.decide(|document| {
            let version = document.version;
            (document.term, document.rewind, document.primary) = (Term(version), Rewind(version), me);
            (document.heir, document.copies) = (None, BTreeMap::from([(me, (Fill(version), true))]));
        });
    }

    /// A pserver dies and another life begins in its place; the master notices at once.
    pub(super) fn crash(&mut self, at: usize) {
        self.lives += 1;
        let me = Incarnation(self.lives);
        let dead = std::mem::replace(&mut self.hosts[at], Host { me, known: 0, block: None }).me;
        if self.document.copies.contains_key(&dead) {
            self.decide(|document| {
                document.heir = document.heir.filter(|heir| *heir != dead);
                document.copies.remove(&dead);
            });
            if self.document.primary == dead {
                match (0..PSERVERS).rev().find(|at| self.is_heir(*at)) {
                    Some(heir) => self.promote(heir),
                    None => self.rewind(at),
                }
            }
        }
    }

    /// What the master says to a pserver of the newest routing version.
    pub(super) fn word_to(&self, at: usize) -> Message {
        let Document { version, term, rewind, primary, heir, ref copies } = self.document;
        let me = self.hosts[at].me;
        let others = copies.iter().filter(|(pserver, _)| me == primary && **pserver != me);
        let others = others.map(|(pserver, (fill, is_in_sync))| PlacedCopy {
            pserver: *pserver,
            fill: *fill,
            is_in_sync: *is_in_sync,
        });
        let others: Vec<PlacedCopy> = others.collect();
        let placed = copies.get(&me).map(|(fill, _)| Placement {
            fill: *fill,
            term,
            rewind,
            primary,
            copies: others,
            heir,
            origin: None,
        });
        Message::Placed { to: me, version, placement: placed }
    }

    /// A pserver hears the newest routing version, and restores what it is told to restore.
    pub(super) fn tell(&mut self, at: usize) {
        let word = self.word_to(at);
        self.deliver(word);
    }

    // ---- the pservers ---------------------------------------------------------------------------------------

    /// A follower's word, as it stands now.
    pub(super) fn cursor(&self, at: usize, room: bool) -> Option<Message> {
        let host = &self.hosts[at];
        let block = host.block.as_ref()?;
        let (fill, term, cursor) = block.cursor()?;
        Some(Message::Cursor { from: host.me, to: block.placement().primary, fill, term, cursor, room })
    }

    /// What a pserver that takes itself for the primary asks of the master. It must be what was told of its followers.
    pub(super) fn ask(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let (me, Some(block)) = (host.me, host.block.as_mut()) else { return };
        let expected = self.witness.level(me, block);
        let was_due = block.is_admission_due();
        let asked = block.ask_for();
        assert_eq!(asked, expected, "asked for is exactly who has all that is published");
        let is_handed_over = block.hand_over().is_some();
        assert_eq!(block.is_admission_due(), is_handed_over, "what was asked for is not due");
        assert!(!was_due || !asked.is_empty() || is_handed_over);
        let term = block.placement().term;
        let heir = block.hand_over();
        assert_eq!(heir, self.witness.heir(block), "handed over is when the heir has all that there is");
        let ask = |((copy, fill), is_heir)| Message::Ask { from: me, term, copy, fill, is_heir };
        let asked = asked.into_iter().map(|copy| (copy, false));
        self.net.extend(asked.chain(heir.map(|copy| (copy, true))).map(ask));
    }

    /// A message arrives; whoever it was for may be gone.
    pub(super) fn deliver(&mut self, message: Message) {
        self.take_in(message);
        self.look();
    }

    fn take_in(&mut self, message: Message) {
        match message {
            Message::Cursor { from, to, fill, term, cursor, room } => {
                let Some(Host { block: Some(block), .. }) = self.host(to) else { return };
                let Placement { term: ours, copies, .. } = block.placement();
                let is_known = copies.iter().any(|copy| (copy.pserver, copy.fill) == (from, fill));
                let is_for_it = *ours == term && is_known && block.state.is_some();
                let before = (!is_for_it).then(|| format!("{block:?}"));
                let news = block.follow(from, fill, term, cursor, if room { usize::MAX } else { 0 });
                let published = block.published();
                assert_eq!(news != News::NotHere, is_for_it);
                if let Some(before) = before {
                    assert_eq!(format!("{block:?}"), before, "what is not for it changes nothing");
                } else if news != News::Broken {
                    self.witness.acknowledged(to, term, from, fill, cursor.map(|cursor| cursor.name));
                }
                if !matches!(news, News::Nothing | News::Later | News::NotHere) {
                    self.net.push(Message::News { to: from, fill, term, published, news });
                }
            }
            Message::News { to, fill, term, published, news } => {
                let Some(Host { block: Some(block), .. }) = self.host(to) else { return };
                let is_for_it = (block.placement().fill, block.placement().term) == (fill, term);
                let before = (!is_for_it).then(|| format!("{block:?}"));
                block.hear(fill, term, published, news).unwrap();
                assert!(
                    before.is_none_or(|before| format!("{block:?}") == before),
                    "late words change nothing"
                );
            }
            Message::Placed { to, version, placement } => self.place(to, version, placement),
            Message::Ask { from, term, copy, fill, is_heir } => {
                let is_current = (term, from) == (self.document.term, self.document.primary)
                    && self.document.copies.get(&copy) == Some(&(fill, is_heir));
                if is_current && is_heir && self.document.heir == Some(copy) {
                    let at = self.hosts.iter().position(|host| host.me == copy);
                    at.into_iter().for_each(|at| self.promote(at));
                } else if is_current && !is_heir {
                    self.decide(|document| {
                        document.copies.insert(copy, (fill, true));
                    });
                }
            }
        }
    }

    /// What the shard does with an assignment.
    fn place(&mut self, to: Incarnation, version: u64, placement: Option<Placement>) {
        let (terms, shape) = (Arc::clone(&self.terms), Arc::clone(&self.shape));
        let Some(host) = self.host(to).filter(|host| host.known < version) else { return };
        host.known = version;
        let old = host.block.take();
        let Some(placement) = placement else { return };
        let block = match old {
            Some(mut kept) if kept.placement().fill == placement.fill => {
                kept.place(placement, to);
                kept
            }
            _ => Block::new(shape, terms, placement, to),
        };
        let block = host.block.insert(block);
        if let Some((term, _)) = block.wants_state() {
            block.restore_initial(term);
        }
    }

    /// A push that makes the root of the step that the copy is at, or of one `back` steps before, with a gradient that
    /// no other push has.
    pub(super) fn push_root(&mut self, at: usize, back: u64) -> Option<PushOutcome> {
        self.pushes += 1;
        let value = self.pushes as f32 * 0.37;
        let epoch = self.job.shape().training();
        let block = self.hosts[at].block.as_mut()?;
        let version = block.state.as_ref().map_or(0, |state| state.version().0);
        let step = version.saturating_sub(back);
        let root = epoch.tree(Step(step)).root();
        // Some of weight 0: the rule does not run.
        let weight = u64::from(!self.pushes.is_multiple_of(7));
        let outcome = push(block, step, root, weight, &[value; 6]).unwrap();
        self.look();
        Some(outcome)
    }

    /// A push of a node of the last step that the copy takes nodes of, or of one `back` steps before, with the gradient
    /// that this node always has.
    pub(super) fn push_node(&mut self, at: usize, back: u64, level: u8, slot: u32) -> Option<PushOutcome> {
        let epoch = self.job.shape().training();
        let block = self.hosts[at].block.as_mut()?;
        let version = block.state.as_ref().map_or(0, |state| state.version().0);
        let last = version + self.job.mode.delay();
        let step = last.min(self.job.steps() - 1).saturating_sub(back);
        let tree = epoch.tree(Step(step));
        let level = level.min(tree.root_level());
        let node = Node { level, index: (slot % tree.present()) >> level };
        let (weight, gradient) = node_gradient(&self.job, step, node)?;
        let outcome = push(block, step, node, weight, &gradient).unwrap();
        self.look();
        Some(outcome)
    }
}
