//! A local run that a person breaks by the buttons of its live page. Whatever lasts is undone after a while, and at the end of the run.

use crate::chaos::timed_fault::{Direction, Partition};
use rustix::process::Signal;
use shoal_job::Role;
use shoal_runner::Supervisor;
use shoal_runner::life::Interference;
use shoal_ui::{Action, HandsOn};
use std::time::Duration;
use tokio::time::Instant;

/// What lasts is undone after so long, if nobody has: a run gives up a master that is away for 120 s.
const LASTS_MAX: Duration = Duration::from_secs(60);

/// A person at work on a run.
#[derive(Debug)]
pub struct Hands {
    asked: HandsOn,
    lasting: Vec<Lasting>,
}

/// What was done to a member and is to be undone.
#[derive(Debug)]
struct Lasting {
    name: String,
    role: Role,
    until: Instant,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    /// Of that number.
    Frozen(u32),
    Cut(Vec<(String, String)>),
}

impl Hands {
    /// Those of whoever asks there.
    pub fn new(asked: HandsOn) -> Hands {
        Hands { asked, lasting: Vec::new() }
    }

    async fn act(&mut self, job: &mut Supervisor, action: Action) -> Result<String, String> {
        match action {
            Action::Kill { name } => {
                let (role, pid) = member(job, &name)?;
                job.signal(pid, Signal::KILL);
                note(job, "kill", role, &name, "kill -9 by hand");
                Ok(format!("{name} is killed: another is started in its place"))
            }
            Action::Freeze { name } => self.freeze(job, &name),
            Action::Cut { name } => self.cut(job, &name),
            Action::Thaw { name } => self.thaw(job, &name),
            Action::Heal { name } => self.undo(job, &name, |what| matches!(what, What::Cut(_))),
            Action::Move { name } => {
                let (role, _) = member(job, &name)?;
                job.client.drain(&name, true).await.map_err(|error| format!("{error:#}"))?;
                note(job, "migrate", role, &name, "its blocks go to another in its place, by hand");
                Ok(format!("{name}: another pserver comes, takes its blocks, and then it leaves"))
            }
            Action::Add { role } => scale(job, &role, true).await,
            Action::Remove { role } => scale(job, &role, false).await,
        }
    }

    fn freeze(&mut self, job: &mut Supervisor, name: &str) -> Result<String, String> {
        let (role, pid) = member(job, name)?;
        // One of its name that was frozen may have been killed since.
        if self.lasting.iter().any(|lasting| lasting.name == name && lasting.what == What::Frozen(pid)) {
            return Err(format!("{name} is frozen already"));
        }
        job.signal(pid, Signal::STOP);
        note(job, "freeze", role, name, "SIGSTOP by hand");
        self.lasts(role, name, What::Frozen(pid));
        Ok(format!("{name} is frozen: it thaws in {} s, or by your hand", LASTS_MAX.as_secs()))
    }

    /// Whoever has frozen it: of what others have stopped the run itself tells.
    fn thaw(&mut self, job: &mut Supervisor, name: &str) -> Result<String, String> {
        let is_frozen = |what: &What| matches!(what, What::Frozen(_));
        if self.lasting.iter().any(|lasting| lasting.name == name && is_frozen(&lasting.what)) {
            return self.undo(job, name, is_frozen);
        }
        let (_, pid) = member(job, name)?;
        job.signal(pid, Signal::CONT);
        Ok(format!("{name} goes on"))
    }

    fn cut(&mut self, job: &mut Supervisor, name: &str) -> Result<String, String> {
        let (role, _) = member(job, name)?;
        let roles = [Role::Master, Role::Pserver, Role::Trainer];
        let peers = roles.into_iter().flat_map(|role| job.running(role)).filter(|peer| *peer != name);
        let peers = peers.map(str::to_owned).collect();
        let pairs = Partition { direction: Direction::Both, peers, is_isolation: true }.pairs(name);
        let network =
            job.network.as_mut().ok_or("the run has no network of its own: it takes root, and iproute2")?;
        network.partition(&pairs).map_err(|error| format!("{error:#}"))?;
        note(job, "partition", role, name, "cut off from all others by hand");
        self.lasts(role, name, What::Cut(pairs));
        Ok(format!("{name} is cut off: its link is healed in {} s, or by your hand", LASTS_MAX.as_secs()))
    }

    fn lasts(&mut self, role: Role, name: &str, what: What) {
        let until = Instant::now() + LASTS_MAX;
        self.lasting.push(Lasting { name: name.to_owned(), role, until, what });
    }

    fn undo(
        &mut self,
        job: &mut Supervisor,
        name: &str,
        is_it: impl Fn(&What) -> bool,
    ) -> Result<String, String> {
        let found: Vec<Lasting> =
            self.lasting.extract_if(.., |lasting| lasting.name == name && is_it(&lasting.what)).collect();
        match found.is_empty() {
            true => Err(format!("there is nothing to undo for {name}")),
            false => found
                .into_iter()
                .try_for_each(|lasting| end(job, lasting))
                .map(|()| format!("{name} goes on")),
        }
    }

    fn undo_those(&mut self, job: &mut Supervisor, is_due: impl Fn(&Lasting) -> bool) {
        let due: Vec<Lasting> = self.lasting.extract_if(.., |lasting| is_due(lasting)).collect();
        for lasting in due {
            let name = lasting.name.clone();
            if let Err(why) = end(job, lasting) {
                job.notes.push(format!("warning: {name} is not healed: {why}"));
            }
        }
    }
}

impl Interference for Hands {
    async fn tick(&mut self, job: &mut Supervisor) {
        while let Ok(asked) = self.asked.try_recv() {
            let answer = self.act(job, asked.action).await;
            // Whoever asked may have gone.
            let _ = asked.answer.send(answer);
        }
        let now = Instant::now();
        self.undo_those(job, |lasting| now >= lasting.until);
    }

    async fn end(&mut self, job: &mut Supervisor) {
        self.undo_those(job, |_| true);
    }
}

fn end(job: &mut Supervisor, lasting: Lasting) -> Result<(), String> {
    let Lasting { name, role, what, .. } = lasting;
    let pid = job.pid_of(&name);
    match what {
        What::Frozen(frozen) => {
            let Some(pid) = pid.filter(|pid| *pid == frozen) else { return Ok(()) };
            job.signal(pid, Signal::CONT);
            note(job, "thaw", role, &name, "SIGCONT");
        }
        What::Cut(pairs) => {
            let network = job.network.as_mut().ok_or("the run has no network of its own")?;
            network.heal(&pairs).map_err(|error| format!("{error:#}"))?;
            note(job, "heal", role, &name, "can be reached, and reach");
        }
    }
    Ok(())
}

/// Who has this name now.
fn member(job: &Supervisor, name: &str) -> Result<(Role, u32), String> {
    let roles = [Role::Master, Role::Pserver, Role::Trainer];
    let role = roles.into_iter().find(|role| job.running(*role).contains(name));
    role.zip(job.pid_of(name)).ok_or_else(|| format!("{name} is not there any more"))
}

/// One more or fewer of a role.
async fn scale(job: &mut Supervisor, role: &str, is_more: bool) -> Result<String, String> {
    let (wanted, bounds, role) = match role {
        "trainer" => (job.status.trainers_wanted, Some(job.plan.trainers), Role::Trainer),
        "pserver" => (job.status.pservers_wanted, None, Role::Pserver),
        other => return Err(format!("there is no number of {other:?}: trainer or pserver")),
    };
    let to = if is_more { wanted.saturating_add(1) } else { wanted.saturating_sub(1) };
    if to == 0 {
        return Err(format!("a job needs one {role} at least"));
    }
    if let Some(bounds) = bounds.filter(|bounds| to < bounds.min || to > bounds.max) {
        let (min, max) = (bounds.min, bounds.max);
        return Err(format!(
            "{min} to {max} trainers are allowed: start the run with --trainers MIN:MAX for others"
        ));
    }
    let (trainers, pservers) = if role == Role::Trainer { (Some(to), None) } else { (None, Some(to)) };
    job.client.scale(trainers, pservers).await.map_err(|error| format!("{error:#}"))?;
    let kind = if is_more { "join" } else { "leave" };
    note(job, kind, role, "", &format!("scaled from {wanted} to {to} {role}s by hand"));
    Ok(format!("{to} {role}s are wanted now"))
}

fn note(job: &mut Supervisor, kind: &str, role: Role, name: &str, what: &str) {
    job.record.fault(kind, role, name, what);
    let whom = if name.is_empty() { String::new() } else { format!(" {name}") };
    job.notes.push(format!("{kind}{whom}: {what}"));
}
