"""The guards that keep Shoal's promises, each with the change that removes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    name: str
    # What it does, for people.
    what: str
    # File, text that stands there once, and what stands there without the guard.
    changes: tuple


def guard(name, what, *changes):
    return Guard(name, what, changes)


PSERVER = "pserver/src/"
BLOCK = PSERVER + "block/mod.rs"
PRIMARY = PSERVER + "block/primary.rs"
FOLLOWER = PSERVER + "block/follower.rs"
REDUCE = PSERVER + "block/reduce.rs"
POSITIONS = PSERVER + "block/positions.rs"
MASTER = "master/src/"
DOCUMENT = MASTER + "document.rs"
DOCUMENT_FILE = "runtime/src/host/store/file/document.rs"

GUARDS = [
    guard(
        "ledger",
        "what the ledger has is not applied again",
        (POSITIONS, "if published.contains(arriving.position) {", "if false {"),
        (POSITIONS, "if state.ledger().contains(arriving.position) {", "if false {"),
    ),
    guard(
        "published-before-applied",
        "`Applied` is said only of what is published",
        (
            PRIMARY,
            "        if step.replaces() < self.published {\n            return Err(PushOutcome::Late);",
            "        if step.replaces() < version {\n            return Err(PushOutcome::Late);",
        ),
        (
            PRIMARY,
            "let is_published = step.replaces() < self.published;",
            "let is_published = is_applied;",
        ),
    ),
    guard(
        "acknowledged-before-published",
        "nothing is published that a required copy lacks",
        (PRIMARY, "try_fold(version, |lowest, acknowledged| Some(lowest.min(acknowledged?)))", "fold(Some(version), |_, _| Some(version))"),
    ),
    guard(
        "required-before-admitted",
        "a copy is required from before its admission is asked for",
        (PRIMARY, "self.stage >= Stage::CatchingUp", "self.stage >= Stage::InSync"),
    ),
    guard(
        "inherited-counts-as-published",
        "a copy is admitted only with all that the primary inherited",
        (PRIMARY, "self.inherited.map_or(published, |inherited| inherited.version.max(published))", "published"),
    ),
    guard(
        "acknowledgement-of-one-fill",
        "an acknowledgement is for one fill",
        (PRIMARY, "let kept = old.get(&copy.pserver).filter(|old| old.fill == copy.fill);", "let kept = old.get(&copy.pserver);"),
        (PRIMARY, "kept.copied().unwrap_or(Follower::new(copy.fill));", "kept.map_or(Follower::new(copy.fill), |old| Follower { fill: copy.fill, ..*old });"),
    ),
    guard(
        "past-of-another-term",
        "a state is replaced only by one that it is the past of",
        (PRIMARY, "if is_past(ours) || self.inherited.is_some_and(is_past) { Next::State } else { Next::Broken }", "Next::State"),
    ),
    guard(
        "term-of-entries",
        "a follower takes words of the present term and fill only",
        (FOLLOWER, "(fill, term) == (self.placement.fill, self.placement.term)", "(true || (fill, term) == (self.placement.fill, self.placement.term))"),
    ),
    guard(
        "refused-news-break-a-copy",
        "a follower that cannot take what it is given says so, and is filled anew",
        (FOLLOWER, "if taken.is_err() {", "if false {"),
    ),
    guard(
        "term-of-followers",
        "a primary hears followers of its own term only",
        (PRIMARY, "if term != self.placement.term || !primary.knows(follower, fill) {", "if !primary.knows(follower, fill) {"),
    ),
    guard(
        "mapped-before-freed",
        "device memory is freed once its trainer has it mapped no more",
        (PSERVER + "shard/areas.rs", "(!shared.lock.is_held()).then_some(*number)", "Some(*number)"),
    ),
    guard(
        "files-of-their-own-checkpoint",
        "a file is numbered among those of the checkpoint that it is of",
        (PSERVER + "shard/checkpoint.rs", "checkpointing.named.filter(|named| named.checkpoint == checkpoint)?;", "let _ = checkpoint;"),
    ),
    guard(
        "entry-follows",
        "an entry is appended to the state it follows, and no other",
        (FOLLOWER, "self.state.as_mut().filter(|state| state.name() == update.follows)", "self.state.as_mut().filter(|_| true)"),
    ),
    guard(
        "retained-state",
        "the previous state is kept until the next root is reached",
        (PSERVER + "block/state.rs", "let lowest = published.0.min(self.name.version.0.saturating_sub(earlier));", "let lowest = self.name.version.0.max(published.0.min(earlier).min(0));"),
    ),
    guard(
        "covered-node",
        "what is covered by a held node is dropped",
        (REDUCE, "self.root().or_else(|| self.covering(raised))", "self.root()"),
        (REDUCE, "if self.root().is_some() || self.covering(node).is_some() {", "if self.root().is_some() {"),
    ),
    guard(
        "rewind-of-gradients",
        "a gradient from before the last restore is refused",
        (PRIMARY, "(Role::Primary(_), _) if rewind < self.placement.rewind => Err(PushOutcome::Rewound),", ""),
        (PRIMARY, "(Role::Primary(_), _) if rewind > self.placement.rewind => Err(PushOutcome::Busy),", ""),
    ),
    guard(
        "state-of-one-rewind",
        "a rewind forgets the state of before",
        (BLOCK, "if placement.rewind != self.placement.rewind {", "if false {"),
    ),
    guard(
        "acknowledged-once-per-term",
        "a new term begins with nothing held and nothing acknowledged",
        (BLOCK, "(Role::Primary(primary), true) if !is_new_term => primary.place(&self.placement.copies),", "(Role::Primary(primary), true) => primary.place(&self.placement.copies),"),
    ),
    guard(
        "exclusions-of-gradients",
        "a gradient from before an exclusion is refused",
        (PSERVER + "shard/push.rs", "push.exclusions < hosting.assignment.exclusions", "push.exclusions < hosting.assignment.exclusions.min(0)"),
    ),
    guard(
        "judged-before-passed",
        "no update goes beyond an evaluation that is not judged",
        (PRIMARY, "self.placement.heir.is_some() || !self.is_open(step.0);", "self.placement.heir.is_some() && !self.is_open(step.0);"),
        (POSITIONS, "self.placement.heir.is_some() || self.waits_for_rest() || !self.is_open(arriving.position);", "self.placement.heir.is_some() || self.waits_for_rest();"),
    ),
    guard(
        "word-of-the-term",
        "a word about a block counts from its primary under its term only",
        (MASTER + "reports.rs", "if (known.term, known.primary) == (term, pserver) {", "{"),
    ),
    guard(
        "word-forgotten",
        "a change of term makes the master forget and ask again",
        (MASTER + "reports.rs", "if (known.term, known.primary) != (block.term, block.primary) {", "if false {"),
    ),
    guard(
        "admission-is-current",
        "an admission names fill, term and primary, and all are current",
        (MASTER + "decide/copies.rs", "if (block.term, block.primary) != (asked.term, asked.primary) {", "if false {"),
        (MASTER + "decide/copies.rs", "(copy.pserver, copy.fill) == (asked.pserver, asked.fill)", "copy.pserver == asked.pserver"),
    ),
    guard(
        "in-sync-is-promoted",
        "only in-sync copies are promoted",
        (MASTER + "decide/failover.rs", "let live = block.in_sync().filter(", "let live = block.copies.iter().filter("),
    ),
    guard(
        "one-history",
        "a synchronous job restores all blocks together",
        (MASTER + "decide/failover.rs", "if is_sync || homeless.contains(&BlockId(at as u32)) {", "if homeless.contains(&BlockId(at as u32)) {"),
    ),
    guard(
        "exclusion-rewinds",
        "an exclusion takes a synchronous job back to before it acts",
        (MASTER + "decide/exclude.rs", "failover::restore(next, &BTreeSet::new(), seen, version, RewindCause::RecordsExcluded);", "let _ = (seen, BTreeSet::<u64>::new(), RewindCause::RecordsExcluded);"),
    ),
    guard(
        "damaged-is-dropped",
        "a damaged checkpoint is dropped, and the job goes back to an older one",
        (MASTER + "decide/checkpoints.rs", "unreadable.extend(blocks.iter().filter(is_present).map(|(id, _)| *id));", "let _ = blocks.iter().filter(is_present);"),
    ),
    guard(
        "pieces-of-one-cut",
        "a manifest takes pieces of one cut only",
        (MASTER + "machine/checkpoints.rs", "block.is_some_and(|block| block.rewind == piece.rewind) && is_cut", "block.is_some() || is_cut"),
    ),
    guard(
        "checkpoint-of-this-history",
        "a checkpoint counts only in the history that wrote it",
        (MASTER + "decide/checkpoints.rs", "let is_present = !next.job.is_sync() || committed.rewind == next.rewind();", "let is_present = true;"),
        (MASTER + "machine/mod.rs", "        if is_rewound {\n            self.forget_pieces();\n            self.forget_reports();\n        }\n", ""),
    ),
    guard(
        "done-after-the-last-checkpoint",
        "`Done` is said after the last checkpoint is durable",
        (
            MASTER + "machine/verifying.rs",
            "let is_kept = self.document.newest().is_some_and(|kept| kept.version == self.document.last_version());",
            "let front = self.job.as_ref().and_then(|job| job.reports.lowest_version());\n        let is_kept = front.is_some_and(|front| front >= self.document.last_version());",
        ),
    ),
    guard(
        "done-after-the-last-evaluation",
        "`Done` is said after the last evaluation is judged",
        (MASTER + "machine/verifying.rs", "is_kept && self.document.is_judged()", "is_kept"),
    ),
    guard(
        "renewed-by-progress",
        "a lease is renewed by progress, not by words",
        (MASTER + "lease/held.rs", "        if is_renewed {", "        if is_renewed || true {"),
        (MASTER + "runs.rs", "if is_progress {", "if is_progress || true {"),
    ),
    guard(
        "identity-of-who-speaks",
        "the word of a superseded life changes nothing",
        (MASTER + "members.rs", "Some(member) if matches!(member.state, State::Live | State::Lost) => {\n                let last_heard", "Some(member) => {\n                let last_heard"),
    ),
    guard(
        "identity-of-a-life",
        "a late duplicate of an older life's join changes nothing",
        (MASTER + "members.rs", "current.chain(self.finished.iter().rev())", "current.chain(self.finished.iter().take(0))"),
    ),
    guard(
        "identity-of-a-primary",
        "who follows is answered by the incarnation that it follows only",
        (PSERVER + "service.rs", "if self.shard.incarnation().0 != request.primary {", "if false {"),
    ),
    guard(
        "persist-then-tell",
        "a document is persisted before anybody is told",
        (
            MASTER + "keeper.rs",
            "let bytes = document.to_bytes().into();\n                let _swap",
            "let bytes = document.to_bytes().into();\n                service.with(|machine, now| machine.adopt(document.clone(), now));\n                service.changed().notify_waiters();\n                let _swap",
        ),
    ),
    guard(
        "term-of-a-master",
        "an election raises the master's term",
        (MASTER + "document.rs", "        self.master_term += 1;\n", "        self.master_term = self.master_term.max(1);\n"),
    ),
    guard(
        "folder-is-synced",
        "a renamed document is made durable by a sync of its folder",
        (DOCUMENT_FILE, "    disk.rename(NEXT, STATE)?;\n    disk.sync_folder()\n", "    disk.rename(NEXT, STATE)\n"),
    ),
    guard(
        "file-is-synced",
        "a document is durable before it takes the old one's place",
        (DOCUMENT_FILE, "    disk.sync(&file)?;\n", ""),
    ),
    guard(
        "document-is-renamed",
        "a document is written beside the old one, which it replaces whole",
        (DOCUMENT_FILE, "let mut file = disk.create(NEXT)?;", "let mut file = disk.create(STATE)?;"),
        (DOCUMENT_FILE, "    disk.rename(NEXT, STATE)?;\n", ""),
    ),
    guard(
        "swap-compares",
        "a swap compares revisions",
        (DOCUMENT_FILE, "    if found != expected {", "    if false {"),
    ),
    guard(
        "piece-is-verified",
        "a piece is used only if its checksum and its name are those that were written",
        ("runtime/src/host/checkpoints/mod.rs", "    let format = check_header(&header, manifest, file).map_err(damaged)?;\n    check_trailer(&trailer, file).map_err(damaged)?;\n", "    let _ = (check_trailer(&trailer, file), &damaged);\n    let format = check_header(&header, manifest, file).unwrap_or(3);\n"),
        ("runtime/src/wire/pieces.rs", "    if crc32 != crc32fast::hash(&frame) {", "    if false {"),
        ("runtime/src/wire/pieces.rs", "!= (piece.block, piece.rewind, piece.name) {", "!= (piece.block, piece.rewind, piece.name) && false {"),
    ),
    guard(
        "whole-siblings",
        "only whole siblings are added up",
        (REDUCE, "is_some_and(|held| held.node == sibling)", "is_some()"),
    ),
    guard(
        "decided-before-updated",
        "a block waits for what is decided over all blocks",
        (PRIMARY, "let is_decided = !self.shape.is_decided || primary.scalars.decision().is_some();", "let is_decided = true;"),
    ),
    guard(
        "one-update-at-a-time",
        "an update waits until the one before it is published",
        (PRIMARY, "state.version() == self.published && self.placement.heir.is_none() && is_decided;", "self.placement.heir.is_none() && is_decided;"),
    ),
    guard(
        "still-before-handing-over",
        "a block that is handed over makes no updates",
        (PRIMARY, "self.published && self.placement.heir.is_none() && is_decided;", "self.published && is_decided;"),
        (PRIMARY, "self.placement.heir.is_some() || !self.is_open(step.0);", "!self.is_open(step.0);"),
        (POSITIONS, "self.placement.heir.is_some() || self.waits_for_rest()", "self.waits_for_rest()"),
        (PRIMARY, "self.placement.heir.filter(|_| self.published == state.version())?", "self.placement.heir?"),
    ),
    guard(
        "piece-at-rest",
        "a piece of a checkpoint is of what is published",
        (PSERVER + "block/piece.rs", "let is_at_rest = state.version() == self.published;", "let is_at_rest = true;"),
        (PSERVER + "block/piece.rs", "self.published == version", "state.version() >= version"),
    ),
    guard(
        "piece-to-rest-on",
        "a piece of what changed rests on one beside which no other counts",
        (PSERVER + "block/piece.rs", "let is_the_only_one = self.placement.term.0 <= named_at;", "let is_the_only_one = true;"),
    ),
    guard(
        "inherited-before-answered",
        "a new primary answers for what it inherited once its copies have it",
        (POSITIONS, "None if published == state.version() =>", "None =>"),
        (POSITIONS, "            None => {}\n", ""),
    ),
    guard(
        "copy-of-this-history",
        "a follower takes a state of the present history only",
        (FOLLOWER, "News::Copy(copy) if copy.rewind == self.placement.rewind =>", "News::Copy(copy) =>"),
    ),
    guard(
        "front-is-the-lowest",
        "the job is as far as its last block",
        (MASTER + "reports.rs", "let lowest = self.words.iter().next().map", "let lowest = self.words.iter().last().map"),
    ),
    guard(
        "ledger-of-all",
        "a microbatch is done once every block has it",
        (MASTER + "reports.rs", "|all, word| all.intersection(&word.ledger)", "|all, _| all"),
    ),
    guard(
        "term-of-a-promotion",
        "a promotion begins a term",
        (DOCUMENT, "        self.term = Term(version);\n", "        self.term = self.term.max(Term(version.min(0)));\n"),
    ),
    guard(
        "fill-of-a-copy",
        "a copy that begins anew has a fill of its own",
        (DOCUMENT, "PlacedCopy { pserver, fill: Fill(version), mark: Mark::Filling }", "PlacedCopy { pserver, fill: Fill(version.min(1)), mark: Mark::Filling }"),
    ),
    guard(
        "held-under-a-term",
        "what a primary held is pushed again to the next one",
        ("trainer-sdk/src/acks.rs", "Ack::Held(held) => *held != term,", "Ack::Held(held) => *held != term && false,"),
    ),
    guard(
        "leases-end",
        "a lease without progress ends",
        (MASTER + "dispatch.rs", "either!(self, machine => machine.expire(now, reports));", "let _ = (now, reports);"),
    ),
    guard(
        "silence-is-loss",
        "a pserver that falls silent is replaced",
        (MASTER + "machine/mod.rs", "self.is_changed |= !self.pservers.expire(now).is_empty();", ""),
    ),
    guard(
        "heard-before-led",
        "a new master leases nothing before it has heard of every block",
        (MASTER + "machine/suspicions.rs", "filter(|job| job.is_heard && !job.suspects", "filter(|job| !job.suspects"),
    ),
    guard(
        "step-of-this-history",
        "a trainer lets go of what it computed in a history that is no more",
        ("trainer-sdk/src/push.rs", "Origin::Node(of) if of.rewind != routing.rewind() => {", "Origin::Node(of) if of.rewind != routing.rewind() && false => {"),
    ),
    guard(
        "barrier-of-evaluations",
        "an evaluation begins when all training before it is applied",
        (MASTER + "runs.rs", "self.until.min(self.course.barrier(front)).min(", "self.until.min("),
    ),
    guard(
        "claimed-by-identity",
        "of two jobs of one name in one empty place the second is refused",
        (MASTER + "keeper.rs", "checkpoints::claim(self.storage, &fresh.job.job.0, fresh.identity.as_deref())", "checkpoints::claim(self.storage, &fresh.job.job.0, None)"),
    ),
    guard(
        "left-by-this-very-job",
        "what another job of the same name has saved is not removed",
        (MASTER + "keeper/storing.rs", " || manifest.identity != elected.identity", ""),
    ),
    guard(
        "another-place-is-empty",
        "a job in which nothing is trained moves to no place that holds checkpoints",
        (MASTER + "keeper.rs", "if !has_moved {", "if true {"),
    ),
    guard(
        "identity-before-the-claim",
        "a job has one identity, whatever its masters die between",
        (MASTER + "keeper.rs", "found.map_or((None, None), |(revision, found)| (Some(revision), found.identity));", "found.map_or((None, None), |(revision, _)| (Some(revision), None));"),
    ),
    guard(
        "recorded-of-one-history",
        "hashes of an earlier history are not taken for those of this one",
        (MASTER + "recording.rs", "if rewind != self.rewind || at >= blocks {", "if at >= blocks {"),
        (MASTER + "recording.rs", "self.steps.get_mut(&version).filter(|step| step.rewind == rewind)", "self.steps.get_mut(&version)"),
    ),
    guard(
        "recorded-copies-compared",
        "copies of a block that differ at one version and term end the job",
        (MASTER + "recording.rs", "if known.hashes != told.hashes {", "if false {"),
    ),
    guard(
        "passed-with-a-piece",
        "a checkpoint is not abandoned for a block whose piece is written",
        (MASTER + "machine/checkpoints.rs", "passed.iter().any(|block| !under_way.blocks.contains(block))", "!passed.is_empty()"),
    ),
    guard(
        "recorded-copies-compared-late",
        "a copy that differs is found although its step was durable before",
        (MASTER + "recording.rs", "            self.counters.recorded += 1;\n            step.stage = Stage::Settled;", "            self.counters.recorded += 1;\n            step.give_up();"),
    ),
    guard(
        "recorded-is-told-once",
        "what a pserver recorded is told before it is forgotten",
        (PSERVER + "block/recorder.rs", "of.version >= below || *number >= told", "of.version >= below"),
    ),
    guard(
        "recorded-under-the-later-term",
        "a version that was made again under a later term counts as it was made then",
        (MASTER + "recording.rs", "Some(known) if known.term > term => {}", "Some(known) if known.term != term => {}"),
    ),
    guard(
        "recorded-is-durable",
        "pservers forget hashes only once they are durable",
        (MASTER + "recording.rs", "given.for_each(|step| step.stage = Stage::Gathering);", "given.for_each(|step| step.stage = Stage::Settled);"),
    ),
    guard(
        "recorded-before-this-master",
        "a new master waits for no hashes that its predecessor has settled",
        (MASTER + "recording.rs", "if rewind == self.rewind && below > self.below {", "if false {"),
    ),
    guard(
        "recorded-end-is-bounded",
        "the end waits for no write that hangs",
        (MASTER + "recording.rs", "        self.unwritten_since.get_or_insert(now);\n", ""),
    ),
    guard(
        "recorded-queue-of-one-history",
        "what a pserver recorded of an earlier history is not told any more",
        (PSERVER + "block/recorder.rs", "        if Some(of.rewind) > waiting.rewind {\n            waiting.forget();\n", "        if Some(of.rewind) > waiting.rewind {\n"),
    ),
    guard(
        "recorded-is-kept-until-settled",
        "what a pserver recorded is told again until it is settled",
        (PSERVER + "block/recorder.rs", "waiting.hashes.retain(|(number, of)| of.version >= below || *number >= told);", "waiting.hashes.clear();"),
    ),
    guard(
        "verified-in-one-history",
        "computations of two histories are not compared",
        (MASTER + "verification.rs", "if verified.rewind != self.rewind || !is_known {", "if !is_known {"),
    ),
    guard(
        "verified-to-the-end",
        "hashes of a trainer that cannot go on are compared",
        (MASTER + "service.rs", "        machine.hear_verified(trainer, &progress, &verified, now);\n        if ended.is_empty() {", "        if ended.is_empty() {"),
    ),
    guard(
        "recorded-within-the-job",
        "hashes of versions beyond the job's end are refused",
        (MASTER + "machine/pservers.rs", "word.recorded.iter().any(|of| of.version.0 > end)", "false"),
    ),
    guard(
        "verified-by-another-lease",
        "a word that is repeated is no second computation",
        (MASTER + "verification.rs", "                if first.verified.lease == verified.lease\n                    || first.verified.exclusions > verified.exclusions =>", "                if first.verified.exclusions > verified.exclusions =>"),
    ),
    guard(
        "verified-of-the-same-records",
        "computations with other records left out are not compared",
        (MASTER + "verification.rs", "check.first.take_if(|first| first.verified.exclusions < verified.exclusions)", "check.first.take_if(|_| false)"),
    ),
    guard(
        "standstill-named",
        "a front that stands for a time to live has a named cause",
        (MASTER + "standstill.rs", "if is_over || age < ttl {", "if is_over || age < 100 * ttl {"),
    ),
    guard(
        "silent-only-if-silent",
        "a member that speaks is not named as silent",
        (MASTER + "standstill.rs", "!peer.is_live || peer.silence >= self.ttl / 2", "true"),
    ),
    guard(
        "front-moves",
        "a front that has moved does not stand",
        (MASTER + "machine/mod.rs", "(self.front_seen, self.front_since) = (front, now);", "self.front_seen = front;"),
    ),
    guard(
        "calls-are-seen",
        "a call to storage that hangs is seen by who watches the process",
        (
            "runtime/src/host/storage/mod.rs",
            "self.waits.begin(WaitKind::Storage",
            "Waits::default().begin(WaitKind::Storage",
        ),
    ),
]
