//! The images of masters and pservers: as they are named, or else beside the operator's own. So whoever says where the operator's
//! image is, and which version, has said it of all three. It must never guess: an image that follows from nothing is asked for.

use crate::settings::OperatorSettings;
use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use std::time::Duration;

/// The operator's container in its own pod, and the name of its image there.
const CONTAINER: &str = "operator";
const OPERATOR: &str = "shoal-operator";
/// How long an operator that begins asks for its own pod.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two askings.
const PAUSE: Duration = Duration::from_secs(2);

/// The images of a job's own roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Images {
    pub(crate) master: String,
    pub(crate) pserver: String,
}

impl Images {
    /// As the settings say; what they do not name lies beside the image of the operator's pod, or has this build's version where the
    /// operator is in no pod.
    ///
    /// # Errors
    /// A pod that cannot be read, or of whose image the others do not follow.
    pub(crate) async fn find(client: &Client, settings: &OperatorSettings) -> anyhow::Result<Images> {
        let named = (settings.master_image.clone(), settings.pserver_image.clone());
        let own = match (&named, &settings.pod) {
            ((Some(_), Some(_)), _) | (_, None) => None,
            (_, Some(pod)) => Some(own_image(client, settings.lease_namespace()?, pod).await?),
        };
        let image = |named: Option<String>, name: &str| match (named, &own) {
            (Some(image), _) => Ok(image),
            (None, Some(own)) => beside(own, name),
            (None, None) => Ok(format!("{name}:{}", env!("CARGO_PKG_VERSION"))),
        };
        Ok(Images { master: image(named.0, "shoal-master")?, pserver: image(named.1, "shoal-pserver")? })
    }
}

/// The image that the operator's own pod was made with.
async fn own_image(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let asked = async {
        loop {
            match pods.get(name).await {
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, "the operator's own pod is asked for again");
                    tokio::time::sleep(PAUSE).await;
                }
                asked => return asked,
            }
        }
    };
    let pod =
        tokio::time::timeout(PATIENCE, asked).await.map_err(anyhow::Error::from).and_then(|asked| Ok(asked?));
    let pod = pod.with_context(|| {
        format!(
            "pod {name} of namespace {namespace} cannot be read: {}",
            way_out("its image says where the others are")
        )
    })?;
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let own = containers.into_iter().find(|one| one.name == CONTAINER).and_then(|one| one.image);
    own.ok_or_else(|| {
        anyhow!("pod {name} has no container {CONTAINER}: {}", way_out("its image says where the others are"))
    })
}

/// Whether asking again may help.
fn is_passing(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if status.code < 500 && status.code != 429)
}

fn way_out(why: &str) -> String {
    format!("{why}; name them: --master-image (SHOAL_MASTER_IMAGE) and --pserver-image (SHOAL_PSERVER_IMAGE)")
}

/// The image that lies beside `own` under another name: of the same registry, folder and tag. A digest is of one image alone and
/// is left out.
fn beside(own: &str, name: &str) -> anyhow::Result<String> {
    let (tagged, _) = own.split_once('@').unwrap_or((own, ""));
    let (folder, last) = tagged.rsplit_once('/').map_or(("", tagged), |(folder, last)| (folder, last));
    let other = match last.split_once(':') {
        Some((OPERATOR, tag)) => format!("{name}:{tag}"),
        Some(_) => {
            return Err(anyhow!(
                "the operator's image {own} is not called {OPERATOR}: {}",
                way_out("so the others do not follow")
            ));
        }
        None if tagged == own && last == OPERATOR => name.to_owned(),
        None => {
            return Err(anyhow!(
                "the operator's image {own} has no tag: {}",
                way_out("so the others do not follow")
            ));
        }
    };
    Ok(if folder.is_empty() { other } else { format!("{folder}/{other}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parsed as settings;
    use kube::client::Body;
    use serde_json::{Value, json};

    /// An API server that has these answers, one after another, and the last again and again.
    fn server(answers: Vec<(u16, Value)>) -> Client {
        let answers = std::sync::Arc::new(std::sync::Mutex::new(answers));
        let answer = tower::service_fn(move |_: http::Request<Body>| {
            let mut answers = answers.lock().unwrap();
            let (code, body) = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            let answer =
                http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, tower::BoxError>(answer.unwrap()) }
        });
        Client::new(answer, "n")
    }

    fn pod(container: &str, image: &str) -> (u16, Value) {
        (200, json!({ "spec": { "containers": [{ "name": container, "image": image }] } }))
    }

    fn refusal(code: u16) -> (u16, Value) {
        (code, json!({ "status": "Failure", "message": "not now", "reason": "x", "code": code }))
    }

    #[test]
    fn another_image_of_the_same_registry_folder_and_tag_lies_beside() {
        let other = |own: &str| beside(own, "shoal-master").unwrap();
        assert_eq!(other("shoal-operator:0.1.0"), "shoal-master:0.1.0");
        assert_eq!(other("shoal-operator"), "shoal-master");
        assert_eq!(
            other("registry.example:5000/a/shoal-operator:v2"),
            "registry.example:5000/a/shoal-master:v2"
        );
        assert_eq!(other("registry.example:5000/a/shoal-operator"), "registry.example:5000/a/shoal-master");
        assert_eq!(other("r/shoal-operator:1@sha256:00ff"), "r/shoal-master:1");
    }

    #[test]
    fn what_does_not_follow_from_an_image_is_asked_for_by_name() {
        for (own, why) in [
            ("r/mine:1", "is not called shoal-operator"),
            ("r/mine", "has no tag"),
            ("r/shoal-operator@sha256:00ff", "has no tag"),
        ] {
            let said = beside(own, "shoal-master").unwrap_err().to_string();
            assert!(
                said.contains(why) && said.contains(own) && said.contains("SHOAL_MASTER_IMAGE"),
                "{said}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn images_follow_that_of_the_operators_pod_unless_they_are_named() {
        let found = async |answers: Vec<(u16, Value)>, arguments: &[&str]| {
            let found = Images::find(&server(answers), &settings(arguments)).await;
            found
                .map(|images| format!("{} {}", images.master, images.pserver))
                .map_err(|why| format!("{why:#}"))
        };
        let own = pod("operator", "r/shoal-operator:7");
        assert_eq!(
            found(vec![own.clone()], &["--pod", "p"]).await.unwrap(),
            "r/shoal-master:7 r/shoal-pserver:7"
        );
        let one_named = found(vec![own.clone()], &["--pod", "p", "--master-image", "m"]).await;
        assert_eq!(one_named.unwrap(), "m r/shoal-pserver:7");
        let both = ["--pod", "p", "--master-image", "m", "--pserver-image", "q"];
        assert_eq!(found(vec![refusal(403)], &both).await.unwrap(), "m q", "then nobody is asked");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            found(vec![refusal(403)], &[]).await.unwrap(),
            format!("shoal-master:{version} shoal-pserver:{version}")
        );
        // A server that begins, too.
        assert!(found(vec![refusal(503), refusal(429), own], &["--pod", "p"]).await.is_ok());
        for (answer, said) in [
            (refusal(403), "not now"),
            (refusal(500), "deadline has elapsed"),
            (pod("other", "i"), "pod p has no container operator"),
            (pod("operator", "r/else:1"), "is not called shoal-operator"),
        ] {
            let error = found(vec![answer], &["--pod", "p"]).await.unwrap_err();
            assert!(error.contains(said) && error.contains("SHOAL_PSERVER_IMAGE"), "{error}");
        }
    }
}
