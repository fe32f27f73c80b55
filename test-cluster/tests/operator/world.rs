//! A cluster of one machine with an operator in it: a real control plane, kubelets, the operator as a process. For tests.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use shoal_test_cluster::{ControlPlane, Faults, Kubelet, KubeletSettings, Run, missing};
use shoal_tests::processes::{Programs, closing, pack_digits, programs};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take, where a test does not say.
const PATIENCE: Duration = Duration::from_secs(120);
/// Who the operator is, with the rights that it is installed with.
pub(crate) const OPERATOR: &str = "system:serviceaccount:shoal-system:shoal-operator";

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) kubelet: Kubelet,
    /// What the operators speak with instead of the API server.
    pub(crate) faults: Faults,
    pub(crate) programs: Programs,
    pub(crate) folder: tempfile::TempDir,
    /// How long anything may take.
    pub(crate) patience: Duration,
    /// What a master, a pserver and a trainer are of.
    images: [String; 3],
    operators: Vec<Child>,
    // Given back when all of the above has ended.
    _place: tokio::sync::SemaphorePermit<'static>,
}

/// Where a job's master is, and the folder of the certificate with which it is asked; none in plaintext.
pub(crate) struct WayToMaster {
    address: String,
    certificate: Option<PathBuf>,
}

impl World {
    /// A cluster of so many nodes; none where none can be had.
    pub(crate) async fn start(nodes: usize, run: Run) -> Option<World> {
        World::start_with(nodes, run, &[]).await
    }

    /// The same, with an operator that is started with these arguments beside its own.
    pub(crate) async fn start_with(nodes: usize, run: Run, arguments: &[&str]) -> Option<World> {
        let layout = std::env::var_os("SHOAL_TEST_IMAGES").map(PathBuf::from);
        let no_images = || {
            let why =
                "SHOAL_TEST_IMAGES names no folder with images: bash .ci/images makes one, and says which";
            (run == Run::Containers && layout.is_none()).then(|| why.to_owned())
        };
        if let Some(why) = missing().or_else(no_images) {
            assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{why}");
            eprintln!("nothing was tested: {why}");
            return None;
        }
        // Two control planes at a time: more starve one another, and then nodes seem lost.
        static PLACES: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
        let place = PLACES.acquire().await.unwrap();
        let programs = programs().unwrap();
        let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds.yaml");
        let plane = ControlPlane::start(&definitions).await.unwrap();
        plane.install(&definitions.with_file_name("")).unwrap();
        let tag = if run == Run::Containers { env!("CARGO_PKG_VERSION") } else { "test" };
        let images = ["shoal-master", "shoal-pserver", "digits"].map(|name| format!("{name}:{tag}"));
        let mut settings = KubeletSettings::of(nodes, run, &images.each_ref().map(String::as_str));
        settings.layout = layout;
        settings.path =
            vec![programs.shoal.parent().unwrap().to_owned(), programs.digits.parent().unwrap().to_owned()];
        let kubelet = Kubelet::start(plane.client().await.unwrap(), settings).await.unwrap();
        let faults = Faults::start(&plane.kubeconfig_as(OPERATOR).unwrap()).await.unwrap();
        let mut world = World {
            plane,
            kubelet,
            faults,
            programs,
            folder: tempfile::tempdir().unwrap(),
            patience: PATIENCE,
            images,
            operators: Vec::new(),
            _place: place,
        };
        let arguments = [&["--identity", "first"], arguments].concat();
        world.start_operator_with(&world.faults.kubeconfig(), &arguments);
        Some(world)
    }

    /// Another operator, under a name that it may share with one that has died. It leads once the lease is free.
    pub(crate) fn start_operator(&mut self, identity: &str) {
        self.start_operator_with(&self.faults.kubeconfig(), &["--identity", identity]);
    }

    /// Another operator, which finds its cluster there.
    pub(crate) fn start_operator_with(&mut self, kubeconfig: &Path, arguments: &[&str]) {
        let program = self.programs.shoal.with_file_name("shoal-operator");
        self.start_operator_program(&program, kubeconfig, arguments);
    }

    /// Another operator, of whatever version.
    pub(crate) fn start_operator_program(&mut self, program: &Path, kubeconfig: &Path, arguments: &[&str]) {
        let log = File::create(self.path(&format!("operator-{}.log", self.operators.len()))).unwrap();
        let operator = Command::new(program)
            .env("KUBECONFIG", kubeconfig)
            .env("SHOAL_LOG", "info,shoal_operator=debug")
            .args(arguments)
            .args(["--regrow-seconds", "5"])
            .args(["--master-image", &self.images[0], "--pserver-image", &self.images[1]])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.operators.push(operator);
    }

    /// Kills the operator that was started last.
    pub(crate) fn kill_operator(&mut self) {
        let operator = self.operators.last_mut().unwrap();
        operator.kill().unwrap();
        operator.wait().unwrap();
    }

    /// Sends a signal to the operator of that number.
    pub(crate) fn signal_operator(&self, number: usize, signal: Signal) {
        let pid = Pid::from_raw(self.operators[number].id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// What the operator of that number ended with, if it has ended.
    pub(crate) fn operator_end(&mut self, number: usize) -> Option<i32> {
        self.operators[number].try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// The same of the operator that was started last.
    pub(crate) fn newest_operator_end(&mut self) -> Option<i32> {
        self.operator_end(self.operators.len() - 1)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.plane.kubectl(words).unwrap_or_else(|error| panic!("{error:#}\n{}", self.operator_log()))
    }

    /// The newest operator's last words.
    pub(crate) fn operator_log(&self) -> String {
        let file = self.path(&format!("operator-{}.log", self.operators.len() - 1));
        let log = std::fs::read_to_string(file).unwrap_or_default();
        let last: Vec<&str> =
            log.lines().rev().take(12).map(|line| line.get(..400).unwrap_or(line)).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Names of the pods there are, in order.
    pub(crate) fn pods(&self) -> Vec<String> {
        let listed = self.kubectl(&["get", "pods", "--no-headers", "-o", "custom-columns=:metadata.name"]);
        let mut names: Vec<String> =
            listed.lines().map(|line| line.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        names.sort();
        names
    }

    pub(crate) fn job(&self, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", "trainingjob", name, "-o", "json"])).unwrap()
    }

    /// Waits until something is so; says what there was when it did not come to be.
    pub(crate) async fn wait_for(&self, what: &str, is_so: impl AsyncFn(&World) -> bool) {
        #[allow(clippy::disallowed_methods, reason = "real processes take real time")]
        let deadline = Instant::now() + self.patience;
        while !is_so(self).await {
            #[allow(clippy::disallowed_methods, reason = "real processes take real time")]
            let is_late = Instant::now() >= deadline;
            assert!(
                !is_late,
                "{what}: not after {:?}\n{}\n{}\n{}",
                self.patience,
                self.kubectl(&["get", "trainingjobs,scaleplans", "-o", "wide"]),
                self.kubectl(&["get", "pods", "-o", "wide"]),
                self.operator_log()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// By pod, its uid: another pod of the same name has another.
    pub(crate) fn uids(&self) -> BTreeMap<String, String> {
        let listed = self.kubectl(&[
            "get",
            "pods",
            "--no-headers",
            "-o",
            "custom-columns=:metadata.name,:metadata.uid",
        ]);
        let pairs = listed.lines().filter_map(|line| line.trim().split_once(' '));
        pairs.map(|(name, uid)| (name.to_owned(), uid.trim().to_owned())).collect()
    }

    /// What a job's master says of itself.
    pub(crate) fn status_of_master(&self, job: &str) -> Value {
        self.status_at(&self.way_to_master(job))
    }

    /// How a job's master is spoken with, from then on without the API server.
    pub(crate) fn way_to_master(&self, job: &str) -> WayToMaster {
        let ip = self.kubectl(&["get", "pod", &format!("{job}-master"), "-o", "jsonpath={.status.podIP}"]);
        let speaks_tls = self.job(job)["status"]["tls"] == "Issued";
        WayToMaster {
            address: format!("{}:7400", ip.trim()),
            certificate: speaks_tls.then(|| self.certificate_of(job, "client")),
        }
    }

    /// What the master there says of itself.
    pub(crate) fn status_at(&self, master: &WayToMaster) -> Value {
        let mut asked = Command::new(&self.programs.shoal);
        asked.args(["status", "-o", "json", "--master", &master.address]);
        match &master.certificate {
            Some(folder) => asked.arg("--tls").arg(folder),
            None => asked.arg("--plaintext"),
        };
        closing(&asked.output().unwrap()).unwrap()
    }

    /// A folder with the certificate of a job's role, as whoever may get its secret makes one.
    pub(crate) fn certificate_of(&self, job: &str, role: &str) -> PathBuf {
        let folder = self.path(&format!("certificate-{job}-{role}"));
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["ca.crt", "tls.crt", "tls.key"] {
            let text = format!("go-template={{{{index .data \"{file}\" | base64decode}}}}");
            let name = format!("{job}-{role}-tls");
            std::fs::write(folder.join(file), self.kubectl(&["get", "secret", &name, "-o", &text])).unwrap();
        }
        folder
    }

    /// What all operators have said.
    pub(crate) fn operator_logs(&self) -> String {
        let read = |number| std::fs::read_to_string(self.path(&format!("operator-{number}.log")));
        (0..self.operators.len()).filter_map(|number| read(number).ok()).collect()
    }

    /// The hash of the model in the newest checkpoint of a folder.
    pub(crate) fn trained(&self, checkpoints: &str) -> Value {
        let exported = Command::new(&self.programs.shoal)
            .args(["checkpoint", "export", "-o", "json", "--file"])
            .arg(self.path(&format!("{checkpoints}.safetensors")))
            .arg("--place")
            .arg(self.path(checkpoints))
            .output()
            .unwrap();
        closing(&exported).unwrap()["parameters_sha256"].clone()
    }

    /// That of the same manifest on this machine, without a cluster.
    pub(crate) fn undisturbed(&self, job: &Value) -> Value {
        let manifest = self.path("job.yaml");
        std::fs::write(&manifest, job.to_string()).unwrap();
        let ran = Command::new(&self.programs.shoal)
            .args(["run", "-o", "json", "--pace-millis", "0", "-f"])
            .arg(&manifest)
            .current_dir(self.folder.path())
            .env("PATH", self.programs.digits.parent().unwrap())
            .output()
            .unwrap();
        closing(&ran).unwrap()["parameters_sha256"].clone()
    }

    /// A job whose pods are pretended, as small as one can be.
    pub(crate) fn pretended(&self, name: &str, more: Value) -> Value {
        let template = json!({ "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{ "name": "trainer", "image": "digits:test", "resources": { "requests": { "cpu": "1" } } }],
        } });
        let mut spec = json!({
            "data": ["/data/*.recordio"],
            "checkpoint": { "place": "/shared/place" },
            "failurePolicy": { "nodeLostSeconds": 3, "imageSeconds": 3 },
            "pserver": { "minReplicas": 1, "maxReplicas": 3, "template": { "spec": { "terminationGracePeriodSeconds": 2 } } },
            "trainer": { "minReplicas": 2, "maxReplicas": 8, "replicas": 2, "template": template },
        });
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": spec })
    }

    /// A job over the digits whose pods are processes, which lasts long enough to be changed; `more` goes before what is here.
    pub(crate) fn digits(&self, name: &str, more: Value) -> Value {
        let data = pack_digits(&self.programs, &self.path("data")).unwrap();
        let mut spec = json!({
            "data": [data],
            "epochs": 4,
            "seed": 7,
            "checkpoint": { "place": self.path(&format!("checkpoints-{name}")) },
            "pserver": { "minReplicas": 1, "maxReplicas": 3, "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } },
            "trainer": { "minReplicas": 1, "maxReplicas": 4, "replicas": 1, "template": { "spec": { "containers": [{
                "name": "trainer", "image": "digits:test", "command": ["digits"],
                "env": [{ "name": "SHOAL_PACE_MILLIS", "value": "60" }],
                "resources": { "requests": { "cpu": "1" } },
            }] } } },
        });
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        json!({ "apiVersion": "shoal.dev/v1alpha1", "kind": "TrainingJob", "metadata": { "name": name }, "spec": spec })
    }

    pub(crate) fn apply(&self, manifest: &Value) {
        self.plane.apply(&manifest.to_string()).unwrap();
    }

    pub(crate) async fn wait_for_pods(&self, pods: Vec<String>) {
        self.wait_for(&format!("pods {pods:?}"), async |world| world.pods() == pods).await;
    }

    /// Waits until neither a job nor anything that was made for it is there.
    pub(crate) async fn nothing_is_left(&self, job: &str) {
        let labels = format!("shoal.dev/job={job}");
        let made = "pods,services,secrets,networkpolicies,poddisruptionbudgets";
        let is_gone = async |world: &World| {
            world.kubectl(&["get", made, "-l", &labels, "-o", "name"]).is_empty()
                && world.kubectl(&["get", "trainingjobs", "--ignore-not-found", job, "-o", "name"]).is_empty()
        };
        self.wait_for(&format!("nothing is left of {job}"), is_gone).await;
    }

    /// Waits for a condition, as a person would.
    pub(crate) async fn wait_for_condition(&self, job: &str, condition: &str) {
        let is_so = async |world: &World| {
            let job = world.job(job);
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == condition && one["status"] == "True")
        };
        self.wait_for(&format!("{job} is {condition}"), is_so).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for operator in &mut self.operators {
            let _ = operator.kill();
            let _ = operator.wait();
        }
    }
}

/// What a job has when as many run as are wanted.
pub(crate) fn whole(job: &str, pservers: std::ops::Range<u32>, trainers: u32) -> Vec<String> {
    let master = [format!("{job}-master")];
    let pservers = pservers.map(|ordinal| format!("{job}-pserver-{ordinal}"));
    let trainers = (0..trainers).map(|ordinal| format!("{job}-trainer-{ordinal}"));
    master.into_iter().chain(pservers).chain(trainers).collect()
}
