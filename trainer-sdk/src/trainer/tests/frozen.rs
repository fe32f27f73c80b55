//! Parameters that never change.

use super::fake::{Fake, settings};
use super::sync::with_task;
use super::{is_told_pushed, node};
use shoal_runtime::cluster::Node;
use shoal_runtime::wire::proto;
use std::sync::Arc;

const LEAF: Node = Node { level: 0, index: 2 };

#[tokio::test(start_paused = true)]
async fn what_never_changes_is_pulled_once_whether_the_program_keeps_parameters_or_not() {
    for kept in [None, Some(Arc::default())] {
        let (fake, mut model) = with_task(0);
        fake.state().tasks.push_back(node(2, 1, LEAF, 1));
        (model.is_frozen, model.kept) = (true, kept);
        let script =
            async |fake: &Fake, _| fake.until("both are pushed", |state| is_told_pushed(state, 2)).await;
        assert!(fake.train(settings(), model.clone(), script).await.is_none());
        let state = fake.state();
        let asked = |step: u64| {
            let requests =
                state.pulls.iter().map(|(_, _, request)| request).filter(|request| request.step == step);
            let of = |pick: fn(&proto::PullRequest) -> &Vec<u32>| {
                let mut blocks: Vec<u32> = requests.clone().flat_map(pick).copied().collect();
                blocks.sort_unstable();
                blocks
            };
            (of(|request| &request.blocks), of(|request| &request.without_data))
        };
        assert_eq!((asked(0), asked(1)), ((vec![0, 1], vec![2]), (vec![], vec![0, 1, 2])));
        let later = state.pushes.iter().filter(|(_, pushed)| pushed.block < 2 && pushed.step == 1);
        let values: Vec<f32> = later.map(|(_, pushed)| pushed.value).collect();
        assert_eq!(values, [0.5; 2], "those of the first pull");
    }
}
