//! Where what goes over the whole model runs: never on the runtime's thread, which has heartbeats to send; and all of it there
//! in a simulation, whose order must not depend on threads.

use super::fake::{Fake, Slope, settings};
use super::{is_told_pushed, node, run};
use crate::{TrainerSettings, ran};
use shoal_runtime::cluster::{Mode, Node};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::wire::proto::PushAnswer;

const ASYNC: Mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };

/// What runs on the runtime's thread while a large model and many rows are trained.
fn on_the_runtimes_thread(mode: Mode, processors: Processors) -> Vec<&'static str> {
    let life = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(train(mode, processors));
        ran::here()
    };
    std::thread::spawn(life).join().unwrap()
}

async fn train(mode: Mode, processors: Processors) {
    let fake = Fake::new(mode);
    fake.state().elements = 40_000;
    fake.state().answer = Box::new(|_| PushAnswer::Applied);
    fake.state().tasks.push_back(match mode {
        Mode::Async { .. } => run(1, 0, 2),
        Mode::Sync { .. } => node(1, 0, Node { level: 1, index: 0 }, 1),
    });
    let model = Slope { more_elements: 19_999, keys: 20_000, ..Slope::default() };
    let script = async |fake: &Fake, _| fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    let ended = fake.train(TrainerSettings { processors, ..settings() }, model.clone(), script).await;
    assert!(ended.is_none(), "{ended:?}");
    assert_eq!(model.computed(), 2);
}

#[test]
fn nothing_goes_over_the_whole_model_on_the_runtimes_thread() {
    assert_eq!(on_the_runtimes_thread(Mode::SYNC, Processors::all()), [""; 0]);
    assert_eq!(on_the_runtimes_thread(ASYNC, Processors::all()), [""; 0]);
}

#[test]
fn a_simulated_trainer_does_all_of_it_on_its_only_thread() {
    let all = ["by bucket", "gather", "put", "reduce", "zeros"];
    assert_eq!(on_the_runtimes_thread(Mode::SYNC, Processors::in_place()), all);
    assert_eq!(on_the_runtimes_thread(ASYNC, Processors::in_place()), all);
}
