use clap::Args;
use serde_json::{Value, json};
use wharf_proto::csi::{
    ControllerGetVolumeHealthRequest, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, NodeGetStorageHealthRequest, NodeGetVolumeHealthRequest,
};

use super::{
    document,
    failure::Failure,
    need::{ControllerRpc, Need, NodeRpc},
    paging::{Answer, Page},
    report::{Column, Report},
    session::Session,
};

const FINDINGS: &[Column] = &[
    ("RPC", "/rpc"),
    ("VOLUME", "/volume_id"),
    ("STATUS", "/status"),
    ("REASON", "/reason"),
    ("MESSAGE", "/message"),
];

/// Shows the health problems of the storage, or of one volume (ControllerListVolumeHealth and
/// NodeGetStorageHealth, or ControllerGetVolumeHealth and NodeGetVolumeHealth)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi health\n  wharf csi health ID --path /mnt/data")]
pub(crate) struct Health {
    /// The volume_id. Default: all volumes and the storage itself
    id: Option<String>,
    /// The volume_publish_path, where the volume is mounted: asks the node, too
    #[arg(
        long,
        value_name = "PATH",
        default_value = "",
        hide_default_value = true,
        requires = "id"
    )]
    path: String,
    /// The staging_target_path, where the volume was staged
    #[arg(
        long,
        value_name = "DIR",
        default_value = "",
        hide_default_value = true,
        requires = "id"
    )]
    staging: String,
}

/// A health RPC, its key in the document, and the capability that it needs.
#[derive(Clone, Copy)]
struct Rpc(&'static str, &'static str, Need);

const LIST: Rpc = Rpc(
    "ControllerListVolumeHealth",
    "controller_list_volume_health",
    Need::Controller(ControllerRpc::ListVolumeHealth),
);
const STORAGE: Rpc =
    Rpc("NodeGetStorageHealth", "node_get_storage_health", Need::Node(NodeRpc::GetStorageHealth));
const VOLUME: Rpc = Rpc(
    "ControllerGetVolumeHealth",
    "controller_get_volume_health",
    Need::Controller(ControllerRpc::GetVolumeHealth),
);
const NODE: Rpc =
    Rpc("NodeGetVolumeHealth", "node_get_volume_health", Need::Node(NodeRpc::GetVolumeHealth));

impl Health {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let mut views = Views {
            document: json!({}),
            findings: Vec::new(),
            notes: Vec::new(),
            asked: 0,
            failed: 0,
        };
        match &self.id {
            None => {
                views.add(LIST, session, async || volumes(session).await).await?;
                views.add(STORAGE, session, async || storage(session).await).await?;
            }
            Some(id) => {
                views.add(VOLUME, session, async || volume(session, id).await).await?;
                let (path, staging) = (&self.path, &self.staging);
                views
                    .add(NODE, session, async || on_node(session, id, path, staging).await)
                    .await?;
            }
        }
        let first = if self.id.is_none() { LIST } else { VOLUME };
        views.report(first)
    }
}

/// The answers of several health RPCs.
struct Views {
    document: Value,
    findings: Vec<Value>,
    notes: Vec<String>,
    asked: usize,
    failed: usize,
}

impl Views {
    /// Calls one RPC, if the driver advertises it. A failure is recorded, and the others follow.
    async fn add(
        &mut self,
        Rpc(rpc, name, need): Rpc,
        session: &Session,
        ask: impl AsyncFnOnce() -> Result<Value, Failure>,
    ) -> Result<(), Failure> {
        if !session.force && !session.offers(need).await? {
            self.notes.push(format!("{rpc} was not called: the driver does not advertise {need}."));
            self.document[name] = Value::Null;
            return Ok(());
        }
        self.asked += 1;
        match ask().await {
            Ok(answer) => {
                self.findings.extend(findings(rpc, &answer));
                self.document[name] = answer;
                Ok(())
            }
            Err(Failure::Unreachable(text)) => Err(Failure::Unreachable(text)),
            Err(failure) => {
                self.failed += 1;
                self.notes.push(failure.to_string());
                self.document[name] = json!({ "error": failure.to_string() });
                Ok(())
            }
        }
    }

    fn report(self, Rpc(rpc, _, need): Rpc) -> Result<Report, Failure> {
        if self.asked == 0 {
            return Err(Failure::Missing { rpc, need });
        }
        let mut document = self.document;
        document["findings"] = self.findings.into();
        let report = Report::document(document).rows("/findings", "Nothing is wrong.", FINDINGS);
        let report = self.notes.into_iter().fold(report, Report::note);
        Ok(if self.failed > 0 { report.incomplete() } else { report })
    }
}

async fn volumes(session: &Session) -> Result<Value, Failure> {
    let Rpc(rpc, ..) = LIST;
    let all = Page::default()
        .all(rpc, async |max_entries, starting_token| {
            let secrets = session.secrets.get();
            let request =
                ControllerListVolumeHealthRequest { max_entries, starting_token, secrets };
            let answer = session
                .call(rpc, request, async |request| {
                    session.driver.controller().controller_list_volume_health(request).await
                })
                .await?;
            Ok(Answer { entries: answer.entries, next: answer.next_token })
        })
        .await?;
    let answer = ControllerListVolumeHealthResponse { entries: all.entries, next_token: all.next };
    Ok(document::of("ControllerListVolumeHealthResponse", &answer))
}

async fn storage(session: &Session) -> Result<Value, Failure> {
    let request = NodeGetStorageHealthRequest { secrets: session.secrets.get() };
    let answer = session
        .call(STORAGE.0, request, async |request| {
            session.driver.node().node_get_storage_health(request).await
        })
        .await?;
    Ok(document::of("NodeGetStorageHealthResponse", &answer))
}

async fn volume(session: &Session, id: &str) -> Result<Value, Failure> {
    let request = ControllerGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        secrets: session.secrets.get(),
    };
    let answer = session
        .call(VOLUME.0, request, async |request| {
            session.driver.controller().controller_get_volume_health(request).await
        })
        .await?;
    Ok(document::of("ControllerGetVolumeHealthResponse", &answer))
}

async fn on_node(session: &Session, id: &str, path: &str, staging: &str) -> Result<Value, Failure> {
    let request = NodeGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        volume_publish_path: path.to_owned(),
        staging_target_path: staging.to_owned(),
    };
    let answer = session
        .call(NODE.0, request, async |request| {
            session.driver.node().node_get_volume_health(request).await
        })
        .await?;
    Ok(document::of("NodeGetVolumeHealthResponse", &answer))
}

/// All health problems as one list, whatever the message they came in.
fn findings(rpc: &str, answer: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut volumes = list(&answer["entries"]);
    volumes.extend(answer.get("volume_health").filter(|health| health.is_object()).cloned());
    let mut found = list(&answer["backend_health"]);
    for volume in &volumes {
        for mut entry in list(&volume["health_statuses"]) {
            entry["volume_id"] = volume["volume_id"].clone();
            found.push(entry);
        }
    }
    for entry in &mut found {
        entry["rpc"] = rpc.into();
    }
    found
}
