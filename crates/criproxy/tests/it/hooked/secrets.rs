//! Values of the environment and of annotations are in no line of the log, at any level.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use prost::Message;
use tonic::Status;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use wharf_proto::hooks::PodSandboxHookResponse;
use wharf_testkit::hook_server::{Answer, HookScript, Transport, echo};

use super::{
    node::{IGNORE, Plan},
    past::{CONTAINER, Past},
    samples::{create, env, run, update},
};
use crate::client::USUAL;

const SECRET: &str = "hunter2-correct-horse";
const NAMESPACE: &str = "namespace-of-secrets";

#[tokio::test]
async fn values_of_variables_and_annotations_are_never_logged() {
    let log = Log::of_process();
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_envs.insert("TOKEN".into(), format!("{SECRET}, changed"));
            answer.container_envs.insert("OTHER".into(), SECRET.into());
            answer.container_annotations.insert("vault".into(), SECRET.into());
            answer
        }),
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            annotations: [("vault".to_owned(), format!("{SECRET}, too"))].into(),
            ..Default::default()
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", IGNORE, script.clone());
    let _rival = plan.server(
        "b.json",
        IGNORE,
        HookScript {
            container: Arc::new(|_, asked| {
                let mut answer = echo(asked);
                answer.container_envs.insert("TOKEN".into(), format!("{SECRET}, changed again"));
                answer
            }),
            ..HookScript::default()
        },
    );
    let past = Past { value: SECRET, ..Past::one() };
    let node = plan.start_before(past).await;
    node.has_records(1, 1).await;
    let mut request = run();
    request.config.as_mut().unwrap().metadata.as_mut().unwrap().namespace = NAMESPACE.into();
    let pod = node.kubelet.run(&request).await.unwrap();
    let mut request = create(&pod);
    request.config.as_mut().unwrap().envs.push(env("TOKEN", SECRET));
    let container = node.kubelet.create(&request).await.unwrap();
    // Everything that may go wrong with it.
    for answer in
        [Answer::Error(Status::internal("broken")), Answer::After(Duration::from_millis(1))]
    {
        server.change(|script| script.answer = answer);
        node.kubelet.create(&request).await.unwrap();
    }
    server.change(|script| script.transport = Transport::Garbage);
    for id in [container.as_str(), CONTAINER] {
        node.kubelet.start(id).await.unwrap();
        node.kubelet.update(&update(id, "cpu.weight")).await.unwrap();
        node.kubelet.stop(id).await.unwrap();
        node.kubelet.remove(id).await.unwrap();
    }
    let mut broken = request.encode_to_vec();
    broken.truncate(broken.len() - 3);
    node.kubelet.send("CreateContainer", broken, USUAL).await.unwrap_err();

    assert!(log.any(&format!("pod=\"{NAMESPACE}/web-0\"")), "this log hears of it");
    assert!(log.any("envs[TOKEN]: (21 bytes) -> (30 bytes)"), "and of what was changed");
    assert!(log.any("annotations[vault]: absent -> (21 bytes)"));
    let carried = ["carried from the pod", "server=\"a.json\"", "[vault]: absent -> (26 bytes)"];
    assert!(log.any_with(&carried), "{:?}", log.0.lock().unwrap());
    assert!(!log.any(SECRET), "{:?}", log.0.lock().unwrap());
    assert!(!node.fixture.metrics().contains(SECRET));
}

/// What this process logs that is of interest here, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn of_process() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let subscriber = tracing_subscriber::registry().with(log.clone());
            tracing::subscriber::set_global_default(subscriber).unwrap();
            log
        })
    }

    fn any(&self, text: &str) -> bool {
        self.any_with(&[text])
    }

    /// Whether there is a line with all of these.
    fn any_with(&self, texts: &[&str]) -> bool {
        let lines = self.0.lock().unwrap();
        lines.iter().any(|line| texts.iter().all(|text| line.contains(text)))
    }
}

impl<S: Subscriber> Layer<S> for Log {
    /// HTTP/2 libraries trace every frame.
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("wharf")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        // Other tests are of this process, too.
        if [SECRET, NAMESPACE].iter().any(|text| line.0.contains(text)) {
            self.0.lock().unwrap().push(line.0);
        }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
