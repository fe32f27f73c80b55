//! The operator's decisions against a model of a cluster: pods that start, end, are deleted and get lost; a master that
//! drains; an operator that dies between two acts and goes by what is no longer so. Tests only.

mod happening;
mod master;
mod world;

use super::*;
use crate::api::ScalePlanPhase;
use happening::happening;
use proptest::prelude::*;
use world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn at_rest_there_are_as_many_pods_as_wanted_whatever_happened(
        happenings in prop::collection::vec(happening(), 1..80)
    ) {
        let mut world = World::new();
        for one in happenings {
            world.happen(one);
        }
        world.rest();
        let status = world.job.status.clone().unwrap();
        if world.job.spec.suspend {
            prop_assert_eq!(status.phase, Phase::Suspended);
            prop_assert!(world.pods.is_empty());
        } else {
            let (trainer, pserver) = (&world.job.spec.trainer, &world.job.spec.pserver);
            let asked = world.job.asked_trainers();
            let trainers = asked.unwrap_or(trainer.min_replicas) as usize;
            prop_assert_eq!(trainer.replicas, Some(trainers as u32), "for autoscalers to begin with");
            let pservers = pserver.replicas.unwrap_or(pserver.min_replicas) as usize;
            prop_assert_eq!(status.phase, Phase::Running, "{}", status.message);
            prop_assert_eq!(world.running_of(Role::Trainer), trainers);
            prop_assert_eq!(world.running_of(Role::Pserver), pservers, "{:?}", status.pserver);
            prop_assert_eq!(world.pods.len(), 1 + trainers + pservers);
            prop_assert_eq!(world.master.wanted, (trainers as u32, pservers as u32));
            prop_assert_eq!(&world.master.live, &world.job.spec.training.live());
        }
        for plan in &world.plans {
            let status = plan.status.clone().unwrap_or_default();
            prop_assert!(world.job.spec.suspend || status.phase.is_over(), "{:?}", status);
            prop_assert_eq!(status.phase.is_over(), status.finish_time.is_some());
            prop_assert!(status.phase != ScalePlanPhase::Failed || !status.message.is_empty());
        }
        let ends = status.ends;
        let counted = ends.preempted + ends.evicted + ends.node_lost + ends.out_of_memory + ends.errors;
        prop_assert!(counted <= world.ends, "{} ends were counted {} times", world.ends, counted);
    }

    #[test]
    fn a_job_that_is_deleted_goes_with_all_its_pods(
        happenings in prop::collection::vec(happening(), 1..40)
    ) {
        let mut world = World::new();
        world.reconcile(usize::MAX);
        for one in happenings {
            world.happen(one);
        }
        let time = k8s_openapi::jiff::Timestamp::from_second(world.now).unwrap();
        world.job.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time::from(time));
        world.rest();
        prop_assert!(world.is_gone && world.pods.is_empty());
    }
}
