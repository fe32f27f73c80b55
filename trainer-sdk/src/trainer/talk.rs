//! The two loops that talk with the master: one tells it how far the trainer is and asks for tasks, one asks for newer
//! routings. The first alone decides when a trainer ends.

use super::{Ended, Trainer};
use crate::desk::{Announcement, Desk};
use crate::error::TrainError;
use crate::master::LeaseAnswer;
use shoal_runtime::cluster::waits::{Wait, WaitKind};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::wire::proto;
use std::time::Duration;
use tokio::time::Instant;

impl Trainer {
    /// Keeps the master informed and the desk filled. Ends when the job does, or when no master has led for longer
    /// than the trainer's patience.
    pub(super) async fn lease_loop(&self) -> Result<Ended, TrainError> {
        let ttl = self.session.master.ttl();
        let mut silent_since = None;
        let mut backoff = Backoff::new(Duration::from_millis(20), ttl / 4);
        for call in 1.. {
            // With nothing to ask for, a heartbeat every quarter of a TTL is enough.
            let speaks = |desk: &Desk| desk.room() > 0 || desk.announcing.is_some();
            let _ = tokio::time::timeout(ttl / 4, self.wait_for(|desk| speaks(desk).then_some(()))).await;
            let (request, announced) = self.words(call);
            let (told, complaints) = (request.progress.clone(), request.complaints.clone());
            let verified = request.verified.clone();
            let has_more = |desk: &Desk| desk.has_pushed(&told) || desk.announces_beside(announced);
            let leased = tokio::select! {
                biased;
                leased = self.session.lease(request) => leased?,
                // A sum that waited for room and is pushed now lets this trainer help others, and an announcement holds up a
                // task: neither waits for the answer to an earlier call.
                () = self.wait_for(|desk| has_more(desk).then_some(())) => continue,
            };
            match leased {
                LeaseAnswer::Done => return Ok(Ended::JobDone),
                LeaseAnswer::Tasks(tasks) => {
                    (silent_since, backoff) = (None, Backoff::new(Duration::from_millis(20), ttl / 4));
                    self.change(|desk| {
                        desk.heard(&told);
                        desk.heard_complaints(&complaints);
                        desk.heard_verified(&verified);
                        desk.heard_announcement(announced);
                        desk.add(tasks);
                    });
                    continue;
                }
                LeaseAnswer::Unknown => {
                    // Until there is an answer: to ask for tasks in between would be refused again.
                    let routing = self.session.rejoin().await?;
                    silent_since = None;
                    self.change(|desk| desk.forget_leases());
                    routing.map_or(Ok(()), |routing| self.learn(routing))?;
                }
                LeaseAnswer::Silence(last) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.settings.patience {
                        return Err(self.session.master.leaders.silent(since.elapsed(), last));
                    }
                }
            }
            tokio::time::sleep(self.session.master.leaders.caller.pause(&mut backoff)).await;
        }
        Ok(Ended::JobDone)
    }

    /// The next call for tasks, and the announcement that it carries; `None`: none. With one no tasks are asked for, so that
    /// the answer comes at once.
    fn words(&self, call: u64) -> (proto::LeaseRequest, Option<Announcement>) {
        let (room, progress, complaints, verified, announcing) = {
            let desk = self.desk();
            (desk.room(), desk.progress(), desk.complaints(), desk.verified(), desk.announcing)
        };
        let want = if announcing.is_some() { 0 } else { room };
        let request = proto::LeaseRequest {
            progress,
            complaints,
            verified,
            careful: announcing.map_or(0, |announcing| announcing.lease.0),
            record: announcing.and_then(|announcing| announcing.record),
            exclusions: self.session.exclusions.present().number,
            want,
            counters: Some(self.session.meter.counters().into()),
            waits: self.waits(),
            wait_millis: if want > 0 { self.session.master.wait().as_millis() as u32 } else { 0 },
            call,
            ..Default::default()
        };
        (request, announcing)
    }

    /// Returns this trainer's waits: its calls, and the program while that computes.
    fn waits(&self) -> Vec<proto::Wait> {
        let computing = self.session.meter.computing().map(|age| Wait {
            kind: WaitKind::Program,
            subject: "the program's function".to_owned(),
            age,
            error: String::new(),
        });
        self.session.waits.report().iter().chain(&computing).map(Into::into).collect()
    }

    /// Asks for newer routings for ever. Refusals are left to the lease loop, which hears them as well.
    pub(super) async fn route_loop(&self) -> TrainError {
        let ttl = self.session.master.ttl();
        let mut backoff = Backoff::new(Duration::from_millis(20), ttl / 4);
        loop {
            let asked = Instant::now();
            let known = self.session.routes.present().version;
            match self.session.master.route(known).await {
                Ok(Some(routing)) => {
                    backoff.succeed();
                    if let Err(error) = self.learn(routing) {
                        return error;
                    }
                }
                // The master has kept the call open for as long as it was asked to.
                Ok(None) if asked.elapsed() >= self.session.master.wait() => {
                    backoff.succeed();
                    continue;
                }
                Ok(None) => {}
                Err(fault) => tracing::debug!(%fault, "no routing"),
            }
            tokio::time::sleep(self.session.master.leaders.caller.pause(&mut backoff)).await;
        }
    }
}
