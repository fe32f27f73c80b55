//! Giving versions out. Changes nothing.

use super::{Kind, Listener, Shard, Since};
use crate::block::reading::Readiness;
use crate::block::shape::BlockShape;
use crate::block::{Block, Reading};
use crate::device::{Area, Given};
use bytes::Bytes;
use shoal_runtime::cluster::{BlockId, Refusal, RefusalKind, Rewind, Step, Version};
use shoal_runtime::wire::{proto, rows};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Parameter bytes after which a pull is answered with what it has.
const PULL_BYTES: usize = 4 << 20;

/// What a pull finds at one moment.
#[derive(Clone, Debug, Default)]
pub struct Pulled {
    /// Blocks that have published the step.
    pub blocks: Vec<proto::PulledBlock>,
    /// Blocks whose primary is elsewhere, or that have gone back.
    pub moved: Vec<u32>,
    /// Whether the caller should be answered now: all is said, or the message is full, or its routing is old.
    pub is_final: bool,
    /// What the device has to have given before that.
    pub given: Given,
}

/// What is wanted of one block.
#[derive(Clone, Copy, Debug)]
enum Wanted<'a> {
    Everything,
    /// From this byte of an area on.
    In(&'a Area, u64),
    Rows(&'a [u8]),
    Nothing,
}

/// What a message wants of each block, where its area is known.
fn wanted<'a>(
    pull: &'a proto::PullRequest,
    area: Option<&'a Area>,
) -> impl Iterator<Item = (BlockId, Wanted<'a>)> {
    let places = area.into_iter().flat_map(|area| pull.places.iter().map(move |to| Wanted::In(area, *to)));
    let everything = pull.blocks.iter().copied().zip(places.chain(std::iter::repeat(Wanted::Everything)));
    let rows = pull.rows.iter().map(|rows| (rows.block, Wanted::Rows(&rows.keys)));
    let nothing = pull.without_data.iter().map(|id| (*id, Wanted::Nothing));
    everything.chain(rows).chain(nothing).map(|(id, wanted)| (BlockId(id), wanted))
}

/// The keys whose rows are wanted. Refuses to read a table whole, and keys of what is none or of another bucket.
fn keys_of(shape: &BlockShape, wanted: Wanted<'_>) -> Result<Vec<u64>, Refusal> {
    let malformed = |detail: String| Err(Refusal::new(RefusalKind::Malformed, shape, detail));
    let bytes = match (wanted, &shape.bucket) {
        (Wanted::Nothing, _) | (Wanted::Everything | Wanted::In(..), None) => return Ok(Vec::new()),
        (Wanted::Everything | Wanted::In(..), Some(_)) => {
            return malformed("of a table rows are pulled, by their keys".to_owned());
        }
        (Wanted::Rows(_), None) => return malformed("it is dense: it has no keys".to_owned()),
        (Wanted::Rows(bytes), Some(_)) => bytes,
    };
    let keys = match rows::decode_keys(bytes) {
        Ok(keys) => keys,
        Err(what) => return malformed(what),
    };
    match shape.bucket.as_ref().and_then(|bucket| keys.iter().find(|key| !bucket.has(**key))) {
        Some(key) => {
            malformed(format!("key {key} does not belong here: build all roles from the same version"))
        }
        None => shape.check_rows_bytes(keys.len()).map(|()| keys),
    }
}

/// What a block has of what is wanted of it. Of what stays on a device nothing is brought here to say that it is published.
fn read(
    block: &Block,
    step: Option<(Step, Rewind)>,
    wanted: Wanted<'_>,
    gives: bool,
    keys: &[u64],
    given: &mut Given,
) -> (Reading, Rewind) {
    let Some((step, rewind)) = step else { return block.read_newest(keys) };
    let there = match wanted {
        Wanted::In(area, to) if gives => block.give(rewind, step, area, to, given),
        Wanted::In(..) | Wanted::Nothing => block.may_give(rewind, step),
        Wanted::Everything | Wanted::Rows(_) => None,
    };
    (there.map_or_else(|| block.read(rewind, step, keys), Reading::InArea), rewind)
}

/// A pull that waits until all that is wanted may be read. Each time that something is published it looks at what it still waits
/// for of that, and at nothing else.
#[derive(Debug)]
pub struct Waiting<'a> {
    shard: &'a Shard,
    pull: &'a proto::PullRequest,
    published: Listener,
    /// What is not there yet, and whether it stays on a device.
    missing: BTreeMap<BlockId, bool>,
    /// Bytes of parameters that are there.
    bytes: usize,
    /// Some block is elsewhere: the caller is to hear of that at once.
    has_moved: bool,
}

impl Waiting<'_> {
    /// Whether the caller is to be answered now: all is there, or the message is full, or its routing is old.
    pub fn is_over(&self) -> bool {
        self.missing.is_empty() || self.has_moved || self.bytes >= PULL_BYTES
    }

    /// Waits until something is published, and looks at it.
    pub async fn changed(&mut self) -> Result<(), Refusal> {
        self.published.changed().await;
        let (Some((first, _)), Some((last, _))) =
            (self.missing.first_key_value(), self.missing.last_key_value())
        else {
            return Ok(());
        };
        match self.published.take_within(&self.shard.changes, &(*first..=*last)) {
            Since::Any => self.look(self.missing.keys().copied().collect()),
            Since::Blocks(blocks) => self.look(blocks),
        }
    }

    fn look(&mut self, blocks: BTreeSet<BlockId>) -> Result<(), Refusal> {
        let Some(hosting) = self.shard.hosting() else {
            self.has_moved = true;
            return Ok(());
        };
        let of = self.shard.pulled_step(self.pull).map(|(step, rewind)| (rewind, step));
        for id in blocks {
            let Some(is_in_area) = self.missing.get(&id).copied() else { continue };
            let Some(hosted) = hosting.block(id) else {
                self.has_moved = true;
                continue;
            };
            match hosted.read(|block| block.readiness(of, is_in_area))? {
                Readiness::NotYet => continue,
                Readiness::Elsewhere => self.has_moved = true,
                Readiness::Ready if is_in_area || hosted.shape.bucket.is_some() => {}
                Readiness::Ready => self.bytes += 4 * hosted.shape.elements,
            }
            self.missing.remove(&id);
        }
        Ok(())
    }
}

impl Shard {
    /// The step whose parameters are pulled and the caller's history; none for the newest, in asynchronous jobs.
    fn pulled_step(&self, pull: &proto::PullRequest) -> Option<(Step, Rewind)> {
        self.job.is_sync().then_some((Step(pull.step), Rewind(pull.rewind)))
    }

    /// The caller's area, if it has one that is here.
    fn pulled_area(&self, pull: &proto::PullRequest) -> Option<Arc<Area>> {
        if pull.area > 0 { self.area(pull.area) } else { None }
    }

    /// Begins to wait for what is pulled.
    pub fn waiting<'a>(&'a self, pull: &'a proto::PullRequest) -> Result<Waiting<'a>, Refusal> {
        let published = self.changes.listen(Kind::Published);
        let area = self.pulled_area(pull);
        let stays = |wanted| matches!(wanted, Wanted::In(..) | Wanted::Nothing);
        let missing: BTreeMap<_, _> =
            wanted(pull, area.as_deref()).map(|(id, wanted)| (id, stays(wanted))).collect();
        let blocks = missing.keys().copied().collect();
        let mut waiting = Waiting { shard: self, pull, published, missing, bytes: 0, has_moved: false };
        waiting.look(blocks)?;
        Ok(waiting)
    }

    /// The parameters of those blocks that have published the step. Nothing is put into an area unless the caller is answered now:
    /// because all is said, or because it `waits` no longer.
    pub fn pull(&self, pull: &proto::PullRequest, waits: bool) -> Result<Pulled, Refusal> {
        let area = self.pulled_area(pull);
        let pulled = self.pull_to(pull, area.as_deref(), false)?;
        if area.is_some() && (pulled.is_final || !waits) {
            // Whatever is put there, the caller is to hear of it: it waits for no more.
            let pulled = self.pull_to(pull, area.as_deref(), true)?;
            return Ok(Pulled { is_final: true, ..pulled });
        }
        Ok(pulled)
    }

    fn pull_to(
        &self,
        pull: &proto::PullRequest,
        area: Option<&Area>,
        gives: bool,
    ) -> Result<Pulled, Refusal> {
        let step = self.pulled_step(pull);
        if let Some((step, _)) = step.filter(|(step, _)| step.0 > self.job.steps()) {
            return Err(self.beyond(step));
        }
        let mut pulled = Pulled::default();
        let Some(hosting) = self.hosting() else {
            pulled.moved = wanted(pull, None).map(|(id, _)| id.0).collect();
            pulled.is_final = true;
            return Ok(pulled);
        };
        let (mut missing, mut bytes) = (0, 0);
        for (id, wanted) in wanted(pull, area) {
            hosting.check(id)?;
            let Some(hosted) = hosting.block(id) else {
                pulled.moved.push(id.0);
                continue;
            };
            let (keys, with_data) = (keys_of(&hosted.shape, wanted)?, !matches!(wanted, Wanted::Nothing));
            if bytes >= PULL_BYTES && with_data {
                pulled.is_final = true;
                continue;
            }
            let given = &mut pulled.given;
            let (reading, rewind) = hosted.read(|block| read(block, step, wanted, gives, &keys, given))?;
            match reading {
                Reading::NotYet => missing += 1,
                Reading::Elsewhere => pulled.moved.push(id.0),
                Reading::Gone(version) => {
                    let step = step.map_or(0, |(step, _)| step.0);
                    let detail = format!("the block is at version {version}, step {step} is done");
                    return Err(Refusal::new(RefusalKind::StepGone, &hosted.shape, detail));
                }
                Reading::Parameters(parameters, version) => {
                    let parameters = if with_data { parameters } else { Bytes::new() };
                    bytes += parameters.len();
                    pulled.blocks.push(pulled_block(id, parameters, false, version, rewind));
                }
                Reading::InArea(version) => {
                    pulled.blocks.push(pulled_block(id, Bytes::new(), with_data, version, rewind));
                }
            }
        }
        pulled.is_final |= missing == 0 || !pulled.moved.is_empty() || bytes >= PULL_BYTES;
        Ok(pulled)
    }

    /// Counts parameters that are given out.
    pub fn count_out(&self, pulled: &Pulled) {
        let bytes: u64 = pulled.blocks.iter().map(|block| block.parameters.len() as u64).sum();
        self.count(|counters| counters.bytes_out += bytes);
    }
}

fn pulled_block(
    block: BlockId,
    parameters: Bytes,
    is_in_area: bool,
    version: Version,
    rewind: Rewind,
) -> proto::PulledBlock {
    proto::PulledBlock { block: block.0, parameters, version: version.0, rewind: rewind.0, is_in_area }
}
