//! The loop that gives a block again what its lost primary held: sums of finished tasks whose step is not published
//! yet. It runs besides the work, and repeats pushes only, so that it may be stopped anywhere.

use super::Trainer;
use crate::error::TrainError;
use crate::push::{Push, Pushed};

impl Trainer {
    /// Pushes kept sums to the blocks whose term has changed.
    pub(super) async fn push_again_loop(&self) -> TrainError {
        loop {
            let kept = self.wait_for(|desk| desk.kept.due()).await;
            let of = kept.of;
            let mut push = Push::of_node(&self.session, of, kept.sum, kept.taken);
            let pushed = tokio::select! {
                biased;
                pushed = push.run() => pushed,
                // Published meanwhile, or the job went back.
                () = self.wait_for(|desk| (!desk.kept.has(of)).then_some(())) => continue,
            };
            match pushed {
                Ok(Pushed::Done | Pushed::PutOff | Pushed::Rewound) => {
                    let routing = self.session.routes.present();
                    self.change(|desk| desk.kept.pushed(of, push.taken, &routing));
                }
                Err(error) => return error,
            }
        }
    }
}
