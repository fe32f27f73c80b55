//! The API server's own evaluator of policies, where `SHOAL_POLICY_EVALUATOR` names it: a child process that reads a request a line, and
//! answers each with the messages of its refusal. Made by .ci/custom-resource-server. Tests only.

use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

struct Evaluator {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Evaluator {
    fn start(program: OsString) -> Evaluator {
        let policies = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/admission.yaml");
        let mut command = Command::new(&program);
        let started = command.arg(policies).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.unwrap_or_else(|why| panic!("SHOAL_POLICY_EVALUATOR={program:?}: {why}"));
        let answers = BufReader::new(process.stdout.take().unwrap());
        let requests = process.stdin.take().unwrap();
        Evaluator { process, requests, answers }
    }
}

/// What it refuses this request for; none where there is no evaluator.
pub(super) fn refused(request: &super::Request) -> Option<Vec<String>> {
    // It reads to the end of its input, which is that of the tests.
    static ONE: LazyLock<Option<Mutex<Evaluator>>> = LazyLock::new(|| {
        std::env::var_os("SHOAL_POLICY_EVALUATOR").map(|it| Mutex::new(Evaluator::start(it)))
    });
    let mut evaluator = ONE.as_ref()?.lock().unwrap();
    let typed = |object: &Value| {
        let mut object = object.clone();
        if let Some(object) = object.as_object_mut() {
            object.entry("kind").or_insert_with(|| json!(request.kind));
            object.entry("apiVersion").or_insert_with(|| json!(request.version()));
        }
        object
    };
    let asked = json!({
        "user": request.user, "namespace": request.namespace, "resource": request.resource(),
        "object": typed(&request.object), "oldObject": typed(&request.old),
    });
    writeln!(evaluator.requests, "{asked}").unwrap();
    let mut answer = String::new();
    if evaluator.answers.read_line(&mut answer).unwrap() == 0 {
        panic!("the evaluator of policies ended with {:?}", evaluator.process.wait());
    }
    Some(serde_json::from_str(&answer).unwrap())
}
