//! The life of one trainer: loops over one desk (lease, route, read, work, push), joined in one future.
//!
//! Nothing is spawned, so that a simulation can pause or end a whole trainer at any await. The loops stop when the
//! job is done, when the trainer is asked to leave, or when one of them fails; then it leaves with a word to the
//! master.

mod attempt;
mod blame;
mod care;
mod compute;
mod function;
mod inspecting;
mod node;
mod probing;
mod pushing;
mod reading;
mod run;
mod talk;
#[cfg(test)]
mod tests;

use crate::activities::Activity;
use crate::chunks::{ChunkSource, Reader, WatchedSource};
use crate::complaint::Complaint;
use crate::desk::{Desk, Ready};
use crate::device::OnDevice;
use crate::environment;
use crate::error::{Leave, TrainError, Unfit};
use crate::flat::Flat;
use crate::inspection::Inspection;
use crate::master::Master;
use crate::meter::Meter;
use crate::model::{Job, Model};
use crate::parameters::Parameters;
use crate::program::{Program, caught};
use crate::push_log::PushLog;
use crate::session::Session;
use crate::settings::TrainerSettings;
use crate::share::InAreas;
use crate::tables::TableRows;
use compute::Outcome;
use shoal_runtime::cluster::{Declaration, Routing, Task};
use shoal_runtime::host::http;
use shoal_runtime::host::random::Random;
use shoal_runtime::host::rpc::Dial;
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::host::telemetry;
use shoal_runtime::wire::proto;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How a trainer ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every step of the job is applied.
    JobDone,
    /// It was asked to leave, and handed back what it had not finished.
    Left,
}

/// The doors of one trainer.
pub struct World {
    /// How roles are reached.
    pub dial: Arc<dyn Dial>,
    /// Where chunks come from.
    pub source: Arc<dyn ChunkSource>,
    /// For jitter and the trainer's identity.
    pub random: Random,
    /// When to leave.
    pub shutdown: Shutdown,
}

/// Trains a program until the job is done or `world.shutdown` is due.
///
/// # Errors
/// See [`TrainError`]; the master is told of it where that helps.
pub async fn train_in(
    program: Program,
    settings: TrainerSettings,
    world: World,
) -> Result<Ended, TrainError> {
    let pages = http::listen(settings.http)
        .await
        .map_err(|error| TrainError::Settings(format!("SHOAL_HTTP: {error}")))?;
    let meter = Arc::new(Meter::new());
    tokio::select! {
        biased;
        outcome = train_beside(program, settings, world, &meter) => outcome,
        never = http::serve(pages, meter.as_ref()) => match never {},
    }
}

/// Trains; whoever looks at the meter sees how far it is.
async fn train_beside(
    program: Program,
    settings: TrainerSettings,
    world: World,
    meter: &Arc<Meter>,
) -> Result<Ended, TrainError> {
    let World { dial, source, random, mut shutdown } = world;
    let push_log = PushLog::open(settings.push_log.as_deref())?;
    let inspects = settings.inspection.as_ref();
    let inspection = inspects.map(|inspects| Inspection::begin(inspects, &settings.name)).transpose()?;
    let joined = async {
        let master = Master::find(&settings, &*dial, random).await?;
        telemetry::identify(&master.job.job.0, &settings.name);
        let job = master.job();
        let Declared { declaration, environment, on_device } =
            program.call(move |model| declared(model, &job)).await?;
        let master = master.in_environment(environment::of(environment)?);
        let (dial, meter) = (dial.clone(), meter.clone());
        let processors = settings.processors.clone();
        let joined = Session::join(master, declaration, on_device, dial, push_log, meter, processors).await?;
        Ok::<Session, Stop>(joined)
    };
    let session = tokio::select! {
        biased;
        () = shutdown.wait() => return Ok(Ended::Left),
        session = joined => match session {
            Ok(session) => session,
            Err(stop) => return stop.ended(),
        },
    };
    tracing::info!(incarnation = %session.incarnation(), "joined");
    let source = Arc::new(WatchedSource { source, waits: session.waits.clone() });
    let reader = Reader::new(source, session.master.job.clone(), settings.processors.clone());
    let trainer = Trainer {
        desk: Mutex::new(Desk::new(&session.routes.present(), session.master.job.mode.delay())),
        changed: Notify::new(),
        settings,
        inspection: inspection.map(Arc::new),
        session,
        program,
    };
    let outcome = trainer.run(reader, shutdown).await;
    trainer.leave(&outcome).await;
    outcome
}

/// What a program declares before it joins.
struct Declared {
    declaration: Declaration,
    environment: BTreeMap<String, String>,
    on_device: Option<OnDevice>,
}

fn declared(model: &mut dyn Model, job: &Job) -> Result<Declared, Stop> {
    let declared = caught(|| {
        let (declaration, environment) = (model.declare(job)?, model.environment()?);
        Ok(Declared { declaration, environment, on_device: model.on_device() })
    });
    declared.map_err(|error| match error {
        error if Leave::is_said_by(&error) => Stop::Left,
        error if Unfit::is_said_by(&error) => TrainError::Unfit(format!("{error:#}")).into(),
        error => TrainError::Declare(format!("{error:#}")).into(),
    })
}

/// Why a trainer computes nothing more.
enum Stop {
    /// The program was asked to stop.
    Left,
    Failed(TrainError),
}

impl Stop {
    fn ended(self) -> Result<Ended, TrainError> {
        match self {
            Stop::Left => Ok(Ended::Left),
            Stop::Failed(error) => Err(error),
        }
    }
}

impl From<TrainError> for Stop {
    fn from(error: TrainError) -> Stop {
        Stop::Failed(error)
    }
}

struct Trainer {
    program: Program,
    session: Session,
    settings: TrainerSettings,
    inspection: Option<Arc<Inspection>>,
    desk: Mutex<Desk>,
    changed: Notify,
}

impl Trainer {
    async fn run(&self, reader: Reader, mut shutdown: Shutdown) -> Result<Ended, TrainError> {
        tokio::select! {
            biased;
            () = shutdown.wait() => Ok(Ended::Left),
            ended = self.lease_loop() => ended,
            failed = self.route_loop() => Err(failed),
            never = self.read_loop(reader) => match never {},
            failed = self.push_loop() => Err(failed),
            Err(stop) = self.work_loop() => stop.ended(),
        }
    }

    /// Pulls, computes, pushes: the lowest first.
    async fn work_loop(&self) -> Result<Infallible, Stop> {
        if self.session.master.job.is_sync() { self.node_loop().await } else { self.run_loop().await }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the desk and wakes the loops that wait for it.
    fn change<T>(&self, change: impl FnOnce(&mut Desk) -> T) -> T {
        let changed = change(&mut self.desk());
        self.changed.notify_waiters();
        changed
    }

    /// Waits until `find` finds something on the desk.
    async fn wait_for<T>(&self, find: impl Fn(&Desk) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = find(&self.desk()) {
                return found;
            }
            changed.await;
        }
    }

    /// The task to be done next. Until there is one, time goes to pushing what is due, to reading if a task lacks nothing else,
    /// or to waiting.
    async fn next_ready(&self) -> Ready {
        loop {
            let changed = self.changed.notified();
            let (ready, activity) = {
                let desk = self.desk();
                let activity = match desk.kept.due() {
                    Some(_) => Activity::Push,
                    None if desk.is_reading() => Activity::Read,
                    None => Activity::Wait,
                };
                (desk.ready(), activity)
            };
            if let Some(ready) = ready {
                return ready;
            }
            self.session.meter.enter(activity);
            changed.await;
        }
    }

    /// Takes in a routing. Desk and routing change at one moment: no loop sees one without the other.
    fn learn(&self, routing: Routing) -> Result<(), TrainError> {
        if self.session.routes.learn(routing)? {
            let present = self.session.routes.present();
            self.change(|desk| desk.follow(&present));
        }
        Ok(())
    }

    /// Takes a task that cannot be done here off the desk: the master hears of it with the next call.
    fn complain(&self, task: &Task, complaint: &Complaint) {
        tracing::error!(task = %task.work, records = ?complaint.records, why = complaint.why, "this cannot be done here");
        self.change(|desk| desk.complain(task, complaint));
    }

    /// Makes parameters of values and rows that were pulled, some of them on the device. Hands back the areas that they were
    /// in.
    async fn pulled(
        &self,
        values: Flat,
        rows: Vec<TableRows>,
        areas: InAreas,
    ) -> Result<(Parameters, InAreas), TrainError> {
        let names = self.session.names.clone();
        let bytes = names.device.as_ref().map_or(0, |device| device.bytes());
        let settle = move || Parameters::pulled(&names, values, rows, &areas).map(|settled| (settled, areas));
        Ok(self.session.processors.over(bytes, settle).await?)
    }

    /// What came of a microbatch; `None`: nothing, and the task has left the desk.
    fn done<T>(&self, ready: &Ready, outcome: Option<Outcome<T>>) -> Result<Option<T>, Stop> {
        let Some(outcome) = outcome else { return Ok(None) };
        match outcome {
            Outcome::Done(done) => Ok(Some(done)),
            Outcome::Refused(complaint) => {
                self.complain(&ready.task, &complaint);
                Ok(None)
            }
            Outcome::Lost(lost) => Err(TrainError::from(lost).into()),
            Outcome::Unfit(why) => Err(TrainError::Unfit(why).into()),
            Outcome::Left => Err(Stop::Left),
            Outcome::Panicked(complaint) => {
                self.complain(&ready.task, &complaint);
                Err(TrainError::Panicked(complaint.why).into())
            }
        }
    }

    async fn leave(&self, outcome: &Result<Ended, TrainError>) {
        self.desk().is_closed = true;
        let (failure, ended) = match outcome {
            Ok(_) => (String::new(), String::new()),
            Err(error) if error.is_known_to_master() => return,
            Err(error) if error.is_of_trainer() => (String::new(), error.to_string()),
            Err(error) => (format!("trainer {:?}: {error}", self.settings.name), String::new()),
        };
        let (progress, complaints, verified) = {
            let desk = self.desk();
            (desk.progress(), desk.complaints(), desk.verified())
        };
        let counters = Some(self.session.meter.counters().into());
        let request = proto::LeaveRequest {
            progress,
            counters,
            failure,
            ended,
            complaints,
            verified,
            ..Default::default()
        };
        self.session.leave(request).await;
    }
}
