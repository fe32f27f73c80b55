//! A trainer that has joined: who it is, whom it talks to, where the blocks are. It never holds a gradient: what to do
//! with the verbs (join, lease, pull, push, leave) is [`crate::trainer`]'s.

use crate::device::areas::Areas;
use crate::device::{Device, OnDevice};
use crate::error::TrainError;
use crate::known::KnownExclusions;
use crate::master::{LeaseAnswer, Master};
use crate::meter::Meter;
use crate::names::Names;
use crate::outputs::Outputs;
use crate::push_log::PushLog;
use crate::routes::Routes;
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{Declaration, Incarnation, Routing};
use shoal_runtime::host::backoff::Backoff;
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::rpc::Dial;
use shoal_runtime::host::waits::Waits;
use shoal_runtime::wire::proto;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a trainer that leaves tries to say so.
const GOODBYE: Duration = Duration::from_secs(3);

/// A trainer that has joined.
pub(crate) struct Session {
    pub(crate) master: Master,
    pub(crate) names: Arc<Names>,
    pub(crate) routes: Routes,
    /// The records that the master has excluded, as far as this trainer knows.
    pub(crate) exclusions: KnownExclusions,
    pub(crate) push_log: PushLog,
    pub(crate) meter: Arc<Meter>,
    /// Waits of this trainer, for the master.
    pub(crate) waits: Waits,
    /// Where outputs go; `None`: the job does not predict.
    pub(crate) outputs: Option<Outputs>,
    /// Whether some pserver has yet to find room for the gradient that is pushed.
    pub(crate) is_waiting_for_room: AtomicBool,
    /// Where gradients of a device are put, in the memory of pservers of this machine.
    pub(crate) areas: Option<Arc<Areas>>,
    /// Where the program's functions run, and whatever goes over the whole model.
    pub(crate) processors: Processors,
    incarnation: AtomicU64,
}

impl Session {
    /// **Join**: declares the parameters and waits until blocks are placed.
    pub(crate) async fn join(
        master: Master,
        declaration: Declaration,
        on_device: Option<OnDevice>,
        dial: Arc<dyn Dial>,
        push_log: PushLog,
        meter: Arc<Meter>,
        processors: Processors,
    ) -> Result<Session, TrainError> {
        declaration.check().map_err(|fault| TrainError::Settings(fault.to_string()))?;
        let device = on_device.map(|wanted| Device::open(&wanted, &declaration)).transpose()?;
        let areas = device.as_ref().map(Areas::new);
        let (incarnation, routing) = master.join(&declaration).await?;
        meter.join(master.leaders.clone(), master.ttl());
        let outputs = Outputs::open(&master.job, master.patience()).await?;
        let names = Names::new(declaration, master.job.seed, master.job.gradients).with_device(device);
        let names = Arc::new(names);
        let routes = Routes::new(routing, names.layout.len(), dial)?;
        let (exclusions, incarnation) = (KnownExclusions::default(), AtomicU64::new(incarnation.0));
        let is_waiting_for_room = AtomicBool::new(false);
        Ok(Session {
            master,
            names,
            routes,
            exclusions,
            push_log,
            meter,
            waits: Waits::default(),
            outputs,
            is_waiting_for_room,
            areas,
            processors,
            incarnation,
        })
    }

    /// The incarnation under which the last master knew this trainer.
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Relaxed))
    }

    /// **Lease**: says how far the trainer is and asks for tasks.
    pub(crate) async fn lease(&self, mut request: proto::LeaseRequest) -> Result<LeaseAnswer, TrainError> {
        request.job = self.master.job.job.0.clone();
        request.incarnation = self.incarnation().0;
        let (leased, exclusions) = self.master.lease(request).await?;
        if let Some(exclusions) = exclusions {
            self.exclusions.learn(exclusions);
        }
        Ok(leased)
    }

    /// **Join** once more, under the same name and nonce: the same life, known to a master of a later term. Gives the
    /// routing if there is one.
    pub(crate) async fn rejoin(&self) -> Result<Option<Routing>, TrainError> {
        let previous = self.incarnation();
        let joined = self.master.rejoin(&self.names.declaration, previous).await?;
        self.incarnation.store(joined.incarnation.0, Relaxed);
        tracing::info!(%previous, incarnation = %joined.incarnation, "joined again");
        Ok(joined.routing)
    }

    /// **Leave**: hands back what is not finished. Tried for a short while only: a master that does not hear of it
    /// takes the trainer for lost, which costs time and nothing else.
    pub(crate) async fn leave(&self, request: proto::LeaveRequest) {
        if tokio::time::timeout(GOODBYE, self.say_goodbye(request)).await.is_err() {
            tracing::warn!("the master did not hear the goodbye: it will take this trainer for lost");
        }
    }

    async fn say_goodbye(&self, mut request: proto::LeaveRequest) {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            request.job = self.master.job.job.0.clone();
            request.incarnation = self.incarnation().0;
            let Err(fault) = self.master.leave(request.clone()).await else { return };
            match fault.next_move() {
                NextMove::Retry => {}
                // Its leases are the new master's to hand on, once it knows whose they are.
                NextMove::Rejoin if self.rejoin().await.is_ok() => {}
                _ => return tracing::warn!(%fault, "the master did not take the goodbye"),
            }
            tokio::time::sleep(self.master.leaders.caller.pause(&mut backoff)).await;
        }
    }
}
