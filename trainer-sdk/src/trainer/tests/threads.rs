//! Where what goes over the whole model runs: never on the runtime's thread, which has heartbeats to send; and all of it there
//! in a simulation, whose order must not depend on threads.

use super::fake::{Fake, NoChunks, Slope, settings};
use super::{is_told_pushed, node, run};
use crate::program::Program;
use crate::{TrainerSettings, ran};
use shoal_runtime::cluster::{Mode, Node};
use shoal_runtime::host::processors::Processors;
use shoal_runtime::wire::proto::PushAnswer;
use std::sync::Arc;

const ASYNC: Mode = Mode::Async { staleness_window: 8, scale_by_staleness: false };

/// What runs on the runtime's thread and on the program's, if it has one, while a large model and many rows are trained.
fn on_each_thread(mode: Mode, processors: Processors, is_apart: bool) -> [Vec<&'static str>; 2] {
    let mut model = Slope { more_elements: 79_999, keys: 40_000, ..Slope::default() };
    let (program, calls) = if is_apart {
        let (program, calls) = Program::apart();
        (program, Some(calls))
    } else {
        (Program::in_place(model.clone()), None)
    };
    let life = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(train(mode, processors, program));
        ran::here()
    };
    let loops = std::thread::spawn(life);
    let serve = || {
        calls.into_iter().for_each(|calls| calls.serve(&mut model));
        ran::here()
    };
    let programs = std::thread::scope(|scope| scope.spawn(serve).join().unwrap());
    let loops = loops.join().unwrap();
    assert_eq!(model.computed(), 2);
    [loops, programs]
}

async fn train(mode: Mode, processors: Processors, program: Program) {
    let fake = Fake::new(mode);
    fake.state().elements = 160_000;
    fake.state().answer = Box::new(|_| PushAnswer::Applied);
    fake.state().tasks.push_back(match mode {
        Mode::Async { .. } => run(1, 0, 2),
        Mode::Sync { .. } => node(1, 0, Node { level: 1, index: 0 }, 1),
    });
    let script = async |fake: &Fake, _| fake.until("it is pushed", |state| is_told_pushed(state, 1)).await;
    let settings = TrainerSettings { processors, ..settings() };
    let ended = fake.train_program(Arc::new(NoChunks), settings, program, script).await;
    assert!(ended.is_none(), "{ended:?}");
}

#[test]
fn nothing_goes_over_the_whole_model_on_the_runtimes_thread() {
    for mode in [Mode::SYNC, ASYNC] {
        assert_eq!(on_each_thread(mode, Processors::all(), true), [vec![], vec!["reduce"]]);
    }
}

#[test]
fn a_simulated_trainer_does_all_of_it_on_its_only_thread() {
    let all = ["by bucket", "gather", "put", "reduce", "zeros"];
    for mode in [Mode::SYNC, ASYNC] {
        assert_eq!(on_each_thread(mode, Processors::in_place(), false), [all.to_vec(), vec![]]);
    }
}
