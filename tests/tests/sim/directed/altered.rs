//! Directed stories of entries and states that are altered on their way to a follower and do not fit: the copy reports it, and is filled
//! anew.

use shoal_master::document::Document;
use shoal_runtime::cluster::Fill;
use shoal_runtime::wire::proto::FollowReply;
use shoal_runtime::wire::proto::followed_block::News;
use shoal_tests::sim::call::Call;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::stage::{Asked, Count, SECOND, Stage, millis, rewinds};
use shoal_tests::sim::tables::Tables;
use std::sync::atomic::Ordering::Relaxed;

/// Alters every entry or state for one copy on the second pserver under one fill, from the first on that `alter` accepts: a copy that
/// refuses once refuses for ever. The count is the block's number and one.
fn alter_one(stage: &Stage, mut alter: impl FnMut(&mut News) -> bool + Send + 'static) -> Count {
    let (block, mut copy) = (Count::default(), None);
    let altered = block.clone();
    stage.world.network.alter_replies("Follow", move |call: &Call, reply: &mut FollowReply| {
        for said in reply.blocks.iter_mut().filter(|_| call.from == SECOND) {
            let is_it = copy.is_none_or(|copy| copy == (said.block, said.fill));
            if is_it && said.news.as_mut().is_some_and(&mut alter) {
                copy = Some((said.block, said.fill));
                altered.0.store(u64::from(said.block) + 1, Relaxed);
            }
        }
    });
    block
}

/// The fills of a block's copy on the second pserver, in the order of the documents.
fn fills(evidence: &Evidence, altered: &Count) -> Vec<Fill> {
    let block = altered.so_far().checked_sub(1).expect("nothing was altered") as usize;
    let fill = |document: &Document| {
        let copy = document.blocks.get(block)?.copy_on(document.at(SECOND)?)?;
        Some(copy.fill)
    };
    let mut fills: Vec<Fill> = evidence.history.documents().iter().filter_map(fill).collect();
    fills.dedup();
    fills
}

/// Ten steps, on two pservers that follow one another.
async fn play(
    scenario: Scenario,
    alter: impl FnMut(&mut News) -> bool + Send + 'static,
) -> (Evidence, Count) {
    let mut stage = Stage::set(Scenario { pservers: 2, replicas: 1, epochs: 2, ..scenario });
    let altered = alter_one(&stage, alter);
    for name in ["a", "b"] {
        stage.trainer(name, millis(5));
    }
    (stage.finished().await, altered)
}

/// Before, the copy asked for the same entry for ever, and the job stood still for as long.
#[test]
fn a_follower_that_refuses_an_entry_is_filled_anew_and_the_job_ends_with_the_same_bits() {
    let cuts = [("of another shape", 4), ("that cannot be read", 3)];
    for ((what, bytes), tables) in cuts.into_iter().zip([None, (0..).find_map(Tables::drawn)]) {
        in_paused_time(async move {
            let cut = move |news: &mut News| match news {
                News::Entry(entry) if entry.gradient.len() > 4 => {
                    entry.gradient.truncate(entry.gradient.len() - bytes);
                    true
                }
                _ => false,
            };
            let (evidence, altered) = play(Scenario { tables, ..Scenario::quiet(7) }, cut).await;
            assert_eq!(
                (fills(&evidence, &altered).len(), rewinds(&evidence)),
                (2, Some(0)),
                "an entry {what}"
            );
        });
    }
}

#[test]
fn a_follower_that_refuses_a_state_is_filled_anew_and_the_job_ends_with_the_same_bits() {
    in_paused_time(async {
        let cut = |news: &mut News| match news {
            News::Copy(copy) if copy.segment.is_none() => {
                copy.parameters.truncate(copy.parameters.len() - 4);
                true
            }
            _ => false,
        };
        let (evidence, altered) = play(Scenario::quiet(7), cut).await;
        assert_eq!((fills(&evidence, &altered).len(), rewinds(&evidence)), (2, Some(0)));
    });
}
