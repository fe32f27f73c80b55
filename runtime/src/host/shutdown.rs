//! Clean shutdown: one signal, told to everyone who waits for it.

use super::dispositions::{self, StopSignals, Taken};
use super::supervisor::Process;
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use tokio::sync::watch;

/// Waits for the moment to stop. Clones wait for the same moment.
#[derive(Clone, Debug)]
pub struct Shutdown {
    moment: watch::Receiver<bool>,
    /// None where no signal is listened for.
    taken: Option<Arc<Taken>>,
}

/// Tells every [`Shutdown`] that the moment has come.
#[derive(Debug)]
pub struct ShutdownSender(watch::Sender<bool>);

impl Shutdown {
    /// A pair of both ends. Dropping the sender is the signal too.
    pub fn pair() -> (ShutdownSender, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownSender(sender), Shutdown { moment: receiver, taken: None })
    }
    /// Stops on SIGTERM or SIGINT, and when the supervisor that `SHOAL_SUPERVISOR` names is gone, so
    /// that a killed supervisor leaves nothing running; not on SIGHUP. When the last clone is dropped, signals do what they did
    /// before. Must be called inside a tokio runtime.
    pub fn on_signal() -> std::io::Result<Shutdown> {
        let (_, shutdown) = Shutdown::on_signals(1)?;
        Ok(shutdown)
    }
    /// Two moments, for who has something to settle before it stops: the first signal asks it to leave, the second, or
    /// the end of its supervisor, to stop at once. Otherwise as [`on_signal`](Self::on_signal).
    pub fn on_second_signal() -> std::io::Result<(Shutdown, Shutdown)> {
        Shutdown::on_signals(2)
    }
    /// The moment of the first signal, and the moment to stop: that of the `last`.
    fn on_signals(last: u32) -> std::io::Result<(Shutdown, Shutdown)> {
        let (mut signals, taken) = StopSignals::listen()?;
        let ((leave, mut leaving), (stop, mut stopping)) = (Shutdown::pair(), Shutdown::pair());
        let taken = Arc::new(taken);
        for shutdown in [&mut leaving, &mut stopping] {
            shutdown.taken = Some(Arc::clone(&taken));
        }
        tokio::spawn(async move {
            let signals = async {
                for _ in 0..last {
                    signals.next().await;
                    leave.send();
                }
            };
            tokio::select! {
                () = signals => {}
                () = orphaned() => tracing::warn!("the supervisor is gone: stopping"),
                () = stop.0.closed() => {}
            }
            stop.send();
        });
        Ok((leaving, stopping))
    }
    /// From now on a signal ends this process, as long as a clone is there: all that the first asked for is done, but for what nobody
    /// can stop.
    pub fn end_by_next_signal(&self) {
        self.taken.iter().for_each(|taken| taken.end_by_next());
    }
    /// Resolves when it is time to stop; at once if it was so before.
    pub async fn wait(&mut self) {
        // An error means that the sender is gone, which is the signal too.
        let _ = self.moment.wait_for(|stop| *stop).await;
    }
    /// The signal that asked this process to stop; SIGTERM where it was none, but the end of the supervisor, which would have sent
    /// that.
    pub fn signal(&self) -> Signal {
        dispositions::last().unwrap_or(Signal::TERM)
    }
    /// Whether it is time to stop.
    pub fn is_due(&self) -> bool {
        *self.moment.borrow() || self.moment.has_changed().is_err()
    }
}

/// Resolves when the supervisor is gone; never where there is none, nor where it cannot be seen from here: from another PID namespace
/// or by another user. What its end leaves there is for its reaper.
async fn orphaned() {
    match Process::supervisor() {
        Some(supervisor) if supervisor.lives() => supervisor.ended().await,
        Some(supervisor) => {
            tracing::info!(%supervisor, "the supervisor cannot be seen from here: its end will not be noticed");
            std::future::pending::<()>().await;
        }
        None => std::future::pending::<()>().await,
    }
}

/// Ends this process by a signal that it was asked to stop by, so that whoever called it knows: shells show 128 and the signal's number,
/// and a script ends as well. To be called when nobody listens any more. Returns that code where the signal ends nothing, because it
/// was ignored before or this is the first process of a container.
pub fn end_by(signal: Signal) -> u8 {
    let _ = kill_process(getpid(), signal);
    128 + signal.as_raw() as u8
}

impl ShutdownSender {
    /// Gives the signal.
    pub fn send(&self) {
        self.0.send_replace(true);
    }
}
