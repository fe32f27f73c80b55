//! Which function of the program a microbatch is for.

use shoal_runtime::cluster::Pass;

/// The function of the program that is called with a microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Step,
    Evaluate,
    Predict,
}

impl Function {
    /// The function for a pass over data, in a job that predicts or does not.
    pub(super) fn of(pass: Pass, predicts: bool) -> Function {
        match pass {
            Pass::Epoch(_) => Function::Step,
            Pass::Evaluation(_) if predicts => Function::Predict,
            Pass::Evaluation(_) => Function::Evaluate,
        }
    }
}

impl std::fmt::Display for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Function::Step => "step",
            Function::Evaluate => "evaluate",
            Function::Predict => "predict",
        })
    }
}
