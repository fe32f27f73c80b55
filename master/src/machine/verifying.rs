//! What the machine does of verification: what [`crate::verification`] is told and asks for, and the words for what differs.

use super::suspicions::unit;
use super::{Machine, Placed};
use crate::dispatch::{self, Dispatch, Grant};
use crate::document::{Document, End};
use crate::lease::{self, Leases, Progress};
use crate::reports::Reports;
use crate::suspects::Suspects;
use crate::verification::{Difference, Verification, When};
use shoal_runtime::cluster::verification::{hashes_bytes, parameters_of_hash};
use shoal_runtime::cluster::{Environment, EnvironmentRule, Incarnation, JobShape, Node, Step, Verified};
use std::ops::Range;
use std::time::Duration;

/// A trainer that asks for tasks.
pub(super) struct Asked {
    pub(super) trainer: Incarnation,
    /// How many trainers live.
    pub(super) live: u32,
    pub(super) want: u32,
    pub(super) now: Duration,
}

/// The verification of a job, if anything of it is verified.
pub(super) fn begin(document: &Document, now: Duration) -> Option<Verification> {
    let (job, millionths) = (&document.job, document.checks.verify_millionths);
    let ttl = Duration::from_millis(job.lease_ttl_millis);
    let is_verified = job.is_sync() && millionths > 0;
    is_verified.then(|| Verification::new(job.seed, millionths, ttl, document.rewind(), now))
}

impl Placed {
    /// Verifies the share that the document names. What was chosen before is compared still, unless nothing is to be.
    pub(super) fn verify_as_said(&mut self, document: &Document, now: Duration) {
        let millionths = document.checks.verify_millionths;
        match &mut self.verification {
            Some(verification) if millionths > 0 => verification.choose(millionths),
            Some(_) => self.verification = None,
            None => {
                self.verification = begin(document, now);
                self.verify_up_to_front(now);
            }
        }
    }

    /// The job has gone back, as the document says.
    pub(super) fn verify_from_here(&mut self, document: &Document, now: Duration) {
        let front = Step(document.restored_version().0);
        self.verification
            .iter_mut()
            .for_each(|verification| verification.go_back(front, document.rewind(), now));
    }

    /// Pservers have reported.
    pub(super) fn verify_up_to_front(&mut self, now: Duration) {
        let front = Step(self.dispatch.front());
        self.verification.iter_mut().for_each(|verification| verification.advance(front, now));
    }
}

impl Machine {
    /// What the first trainer's bits depend on.
    pub fn environment(&self) -> Option<&Environment> {
        self.document.environment.as_ref().or(self.wishes.environment.as_ref())
    }

    /// A trainer that was heard tells hashes. The job fails if any of them is another than was told before.
    pub fn hear_verified(
        &mut self,
        trainer: Incarnation,
        progress: &[Progress],
        told: &[Verified],
        now: Duration,
    ) {
        let bytes = self.declaration().map_or(0, |declaration| hashes_bytes(declaration.parameters.len()));
        let end = self.document.job.course().units();
        let is_of_the_job = |told: &&Verified| told.hashes.len() == bytes && told.step.0 < end;
        let told: Vec<Verified> = told.iter().filter(is_of_the_job).cloned().collect();
        let has_computed = self.heard_trainers.get(&trainer).is_some_and(|heard| heard.computed == now);
        let name = self.trainers.get(trainer).map_or_else(String::new, |member| member.name.clone());
        let Some(verification) = self.job.as_mut().and_then(|job| job.verification.as_mut()) else { return };
        let has_lease = |lease| progress.iter().any(|word| word.lease == lease);
        let who = (trainer, name.as_str());
        if let Some(difference) = verification.hear(who, &has_lease, has_computed, &told, now) {
            let why = self.words_of(&difference);
            tracing::error!(why, "two computations differ");
            self.fail(why);
        }
    }

    /// The job is done, once it is complete and neither second computations nor hashes are waited for.
    pub(super) fn end_if_complete(&mut self, now: Duration) {
        if self.wishes.end.is_none()
            && self.is_complete()
            && !self.is_verifying(now)
            && !self.is_recording(now)
        {
            (self.wishes.end, self.is_changed) = (Some(End::Done), true);
            self.recording.end();
        }
    }

    /// The job is done when a durable checkpoint has every block at its last version, and its last evaluation is judged:
    /// a master that has just taken over may know of the checkpoint before it hears the sums again.
    pub(crate) fn is_complete(&self) -> bool {
        let is_kept = self.document.newest().is_some_and(|kept| kept.version == self.document.last_version());
        is_kept && self.document.is_judged()
    }

    /// Whether the job's end waits for second computations.
    fn is_verifying(&self, now: Duration) -> bool {
        let verification = self.job.as_ref().and_then(|job| job.verification.as_ref());
        verification.is_some_and(|verification| verification.is_worth_waiting(now))
    }

    fn words_of(&self, difference: &Difference) -> String {
        let Difference { step, slot, hash, trainers: [one, other] } = difference;
        let place = dispatch::Refused { step: *step, slot: *slot, position: 0 };
        let (_, microbatch) = unit(true, &self.document.job.shape(), &place);
        let by = match one == other {
            true => format!("by trainer {one:?} both times"),
            false => format!("by trainers {one:?} and {other:?}"),
        };
        format!(
            "{microbatch} was computed twice, {by}{}, and {} has other bits: the step function is no function of its batch and its \
             parameters alone, or the trainers are not alike in something that Model::environment does not name (docs/bits.md, \
             verification)",
            self.of_environment(),
            self.summed(*hash)
        )
    }

    /// What the trainers have said of their processors, libraries and programs.
    fn of_environment(&self) -> String {
        let Some(Environment(entries)) = self.environment() else { return String::new() };
        let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{name} {value}")).collect();
        match (entries.is_empty(), self.document.checks.environment) {
            (true, _) => String::new(),
            (false, EnvironmentRule::Same) => format!(" with the same environment ({})", entries.join(", ")),
            (false, _) => {
                format!(" with environments that may differ (the first trainer's is {})", entries.join(", "))
            }
        }
    }

    /// What a hash is of.
    fn summed(&self, hash: usize) -> String {
        let parameters = self.declaration().map_or(&[][..], |declaration| &declaration.parameters);
        let each = parameters_of_hash(parameters.len());
        match parameters.get(hash * each..parameters.len().min((hash + 1) * each)) {
            None | Some([]) => "the weight".to_owned(),
            Some([one]) => format!("the sum for parameter {:?}", one.name),
            Some([first, .., last]) => {
                format!("a sum for one of the parameters {:?} to {:?}", first.name, last.name)
            }
        }
    }
}

/// A lease just given, the slots whose hashes are to be told, and whether it is a second one.
pub(super) type Given = (Grant, Vec<u32>, bool);

/// Leases to a trainer: what of a step that is done is to be computed once more, before its parameters are gone; what is free of
/// the front; what is to be computed once more of that; what else there is.
pub(super) fn lease(
    dispatch: &mut Dispatch,
    verification: &mut Verification,
    shape: &JobShape,
    suspects: &Suspects,
    asked: &Asked,
    reports: &Reports,
) -> Vec<Given> {
    let Asked { trainer, live, want, now } = *asked;
    let mut grants: Vec<Given> = Vec::new();
    let Dispatch::Steps(leases) = &mut *dispatch else { return grants };
    second(leases, verification, When::Late, shape, suspects, asked, &mut grants);
    let left = want.saturating_sub(grants.len() as u32);
    for grant in leases.lease_front(trainer, live, left, now) {
        grants.push(given(verification, Grant::Node(grant), shape, asked));
    }
    second(leases, verification, When::Present, shape, suspects, asked, &mut grants);
    let left = want.saturating_sub(grants.len() as u32);
    let rest = if left > 0 { dispatch.lease(trainer, live, left, now, reports) } else { Vec::new() };
    grants.extend(rest.into_iter().map(|grant| given(verification, grant, shape, asked)));
    grants
}

/// Second leases, as many as are wanted and still asked for.
fn second(
    leases: &mut Leases,
    verification: &mut Verification,
    when: When,
    shape: &JobShape,
    suspects: &Suspects,
    asked: &Asked,
    grants: &mut Vec<Given>,
) {
    let (suspect, slots) = (suspects.places(1), u64::from(shape.training().slots()));
    let may = |step: Step, slot: u32| {
        let place = step.0 * slots + u64::from(slot);
        !suspect.iter().any(|places: &Range<u64>| places.contains(&place))
    };
    while (grants.len() as u32) < asked.want
        && let Some((step, slot)) = verification.wanted(asked.trainer, asked.live <= 1, when, &may)
    {
        let grant = lease::Grant { lease: leases.number(), step, node: Node::leaf(slot) };
        verification.given(asked.trainer, grant.lease, step, &[slot], asked.now);
        grants.push((Grant::Node(grant), vec![slot], true));
    }
}

/// A lease just given, with the slots of it that are chosen.
pub(super) fn given(verification: &mut Verification, grant: Grant, shape: &JobShape, asked: &Asked) -> Given {
    let Grant::Node(lease::Grant { lease, step, node }) = grant else { return (grant, Vec::new(), false) };
    let slots = verification.chosen(step, node.first()..node.end().min(shape.tree(step).present()));
    verification.given(asked.trainer, lease, step, &slots, asked.now);
    (grant, slots, false)
}
