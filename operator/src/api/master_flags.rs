//! A job's settings as flags of `shoal master`. Every field of the spec is named here, so that none can be forgotten.

use super::job::{CheckpointSpec, EnvironmentRule, Gradients, Mode, TrainingJobSpec};

/// The flags that say to a master what a job's spec says of training, each with its value. Where its state and its
/// checkpoints are is the caller's to add.
pub fn master_flags(spec: &TrainingJobSpec) -> Vec<(&'static str, Option<String>)> {
    let TrainingJobSpec {
        data,
        eval_data,
        eval_steps,
        eval_epochs,
        predict,
        untrained,
        epochs,
        seed,
        mode,
        microbatch_records,
        microbatches_per_step,
        shuffle_run,
        lease_ttl_millis,
        staleness_window,
        scale_by_staleness,
        delay,
        gradients,
        copies,
        exclude_max,
        environment,
        verify,
        warm_start,
        checkpoint: CheckpointSpec { place: _, every_steps, every_seconds, keep_last, full_every },
        master: _,
        pserver: _,
        trainer: _,
        priority_class_name: _,
        failure_policy: _,
        clean_pod_policy: _,
        ttl_seconds_after_finished: _,
        suspend: _,
        tls: _,
    } = spec;
    // A flag for each name, so that none is taken for several.
    let named =
        |flag, names: &[String]| names.iter().map(|name| (flag, Some(name.clone()))).collect::<Vec<_>>();
    let values = [
        ("--eval-steps", text(eval_steps)),
        ("--eval-epochs", text(eval_epochs)),
        ("--predict", predict.clone()),
        ("--epochs", text(epochs)),
        ("--seed", text(seed)),
        ("--mode", mode.map(Mode::name).map(str::to_owned)),
        ("--microbatch-records", text(microbatch_records)),
        ("--microbatches-per-step", text(microbatches_per_step)),
        ("--shuffle-run", text(shuffle_run)),
        ("--lease-ttl-millis", text(lease_ttl_millis)),
        ("--staleness-window", text(staleness_window)),
        ("--delay", text(delay)),
        ("--gradients", gradients.map(Gradients::name).map(str::to_owned)),
        ("--replicas", text(copies)),
        ("--exclude-max", text(exclude_max)),
        ("--environment", environment.map(EnvironmentRule::name).map(str::to_owned)),
        ("--verify", text(verify)),
        ("--warm-start", warm_start.clone()),
        ("--checkpoint-steps", text(every_steps)),
        ("--checkpoint-seconds", text(every_seconds)),
        ("--keep-last", text(keep_last)),
        ("--checkpoint-full-every", text(full_every)),
    ];
    let stated = values.into_iter().filter_map(|(flag, value)| Some((flag, Some(value?))));
    let names = [named("--data", data), named("--eval-data", eval_data)].concat();
    let switches = [(scale_by_staleness, "--scale-by-staleness"), (untrained, "--untrained")];
    let switches = switches.into_iter().filter(|(is_on, _)| **is_on).map(|(_, flag)| (flag, None));
    names.into_iter().chain(stated).chain(switches).collect()
}

fn text(number: &Option<impl std::fmt::Display>) -> Option<String> {
    number.as_ref().map(ToString::to_string)
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Async => "async",
        }
    }
}

impl EnvironmentRule {
    fn name(self) -> &'static str {
        match self {
            EnvironmentRule::Same => "same",
            EnvironmentRule::Warn => "warn",
            EnvironmentRule::Any => "any",
        }
    }
}

impl Gradients {
    fn name(self) -> &'static str {
        match self {
            Gradients::F32 => "f32",
            Gradients::Bf16 => "bf16",
        }
    }
}
