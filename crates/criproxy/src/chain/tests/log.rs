//! What is written down of a call, and what never is.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex, OnceLock},
};

use tonic::Code;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use wharf_proto::hooks::{ContainerResourceHookRequest, ContainerResourceHookResponse};

use super::{
    fixture::{Fixture, POINT, context, map},
    server::HookServer,
    subject::Container,
};
use crate::{chain::CallContext, config::FailurePolicy};

const SECRET: &str = "hunter2";

#[tokio::test]
async fn changes_have_authors_and_secrets_do_not_show() {
    let log = Log::of_process();
    let fixture = Fixture::new();
    let _servers = ["audit-a", "audit-b"].map(|name| {
        HookServer::start(&fixture.socket(name), move |_| async move {
            Ok(ContainerResourceHookResponse {
                container_envs: map(&[("TOKEN", &format!("{SECRET} of {name}"))]),
                container_annotations: map(&[(name, "seen")]),
                ..Default::default()
            })
        })
    });
    fixture.serve(["audit-a", "audit-b"].map(|name| fixture.server(name, FailurePolicy::Ignore)));
    let context =
        CallContext { pod: "default/audited".to_owned(), id: Some("0a1b".to_owned()), ..context() };
    let container_envs = map(&[("TOKEN", SECRET)]);
    let request = ContainerResourceHookRequest { container_envs, ..Default::default() };
    let asked = fixture.chain.ask::<Container>(POINT, &context, request).await.unwrap();

    let lines = log.lines("wharf::audit", "default/audited");
    let common =
        "hook=\"PreCreateContainer\" pod=\"default/audited\" container=\"nginx\" id=\"0a1b\"";
    assert_eq!(
        lines,
        [
            format!(
                "message=hook servers are in conflict server=\"audit-b\" {common} \
                 resolution=\"refuse\" fields=envs[TOKEN] of audit-a "
            ),
            format!(
                "message=changed by a hook server server=\"audit-a\" {common} \
                 changes=annotations[audit-a]: absent -> (4 bytes), envs[TOKEN]: (7 bytes) -> (18 bytes) "
            ),
        ]
    );
    assert!(!log.text().contains(SECRET));
    assert!(!format!("{asked:?}").contains(SECRET), "{asked:?}");
}

/// A server that is down fails every call of the node.
#[tokio::test]
async fn a_failure_is_told_once_until_it_is_over() {
    let log = Log::of_process();
    let fixture = Fixture::new();
    fixture.serve([fixture.server("log-flapping", FailurePolicy::Ignore)]);
    for _ in 0..2 {
        for _ in 0..3 {
            fixture.ask().await.unwrap();
        }
        let server = HookServer::idle(&fixture.socket("log-flapping"));
        fixture.ask().await.unwrap();
        server.stop().await;
    }
    let told = |message: &str| {
        let lines = log.lines("wharf_criproxy", "\"log-flapping\"");
        lines.iter().filter(|line| line.contains(message)).count()
    };
    assert_eq!((told("hook server fails "), told("hook server answers again")), (2, 2));
    fixture.counted(r#"wharf_proxy_hook_calls_total{server="log-flapping",hook="PreCreateContainer",outcome="Unavailable"} 6"#);
    let _failing = HookServer::failing(&fixture.socket("log-flapping"), Code::Internal, "still");
    fixture.ask().await.unwrap();
    assert_eq!(told("error=still"), 1);
}

/// What this process logs, at every level. Of all threads: with a log per thread, whether an event
/// is seen would depend on which thread was first there.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, String)>>>);

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

    /// Those lines of a target, or of modules below it, that are about something.
    fn lines(&self, target: &str, about: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let chosen =
            lines.iter().filter(|(of, line)| of.starts_with(target) && line.contains(about));
        chosen.map(|(_, line)| line.clone()).collect()
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().iter().map(|(_, line)| line.as_str()).collect()
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        // HTTP/2 libraries trace every frame.
        if target.starts_with("wharf") {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push((target, line.0));
        }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
