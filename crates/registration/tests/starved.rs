//! A manager without free file descriptors. Alone in its process, since the limit belongs to the
//! process.

use std::{fs, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::timeout;
use wharf_registration::manager::{
    EventKind, Handlers, ManagerOptions, Plugin, PluginHandler, PluginManager, PluginRefusal,
};
use wharf_testkit::plugin::{PluginScript, ScriptedPlugin};

#[tokio::test]
async fn plugins_are_registered_once_there_are_descriptors_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("registry");
    let manager = PluginManager::start(
        ManagerOptions { rescan: Duration::from_millis(100), ..ManagerOptions::new(&root) },
        Handlers::new().with("CSIPlugin", Arc::new(Welcoming)),
    );
    let mut synced = manager.synced();
    synced.wait_for(|synced| *synced).await.expect("the manager runs");
    let early = ScriptedPlugin::serve(&root.join("early.sock"), PluginScript::csi("early"));
    early.wait_for_verdict(true).await;
    let draft = folder.path().join("draft.sock");
    let late = ScriptedPlugin::serve(&draft, PluginScript::csi("late"));
    let mut events = manager.events();

    // The socket appears while there is no descriptor to dial it, or to read its folder.
    let enough = getrlimit(Resource::Nofile);
    limit(Rlimit { current: Some(0), ..enough });
    fs::rename(&draft, root.join("late.sock")).expect("a rename needs no descriptor");
    let seen = async {
        while !matches!(events.recv().await.expect("an event").kind, EventKind::Seen) {}
        synced.wait_for(|synced| !*synced).await.expect("the fault is reported");
    };
    timeout(Duration::from_secs(20), seen).await.expect("in time");
    assert_eq!(states(&manager, &root), ["early.sock Registered", "late.sock Registering"]);

    limit(enough);
    late.wait_for_verdict(true).await;
    timeout(Duration::from_secs(20), async {
        synced.wait_for(|synced| *synced).await.expect("the fault has ended");
        manager.idle().await;
    })
    .await
    .expect("in time");
    assert_eq!(states(&manager, &root), ["early.sock Registered", "late.sock Registered"]);
    assert_eq!(early.calls().verdicts.len(), 1, "what was there is not disturbed");
    manager.stop().await;
}

fn limit(limit: Rlimit) {
    setrlimit(Resource::Nofile, limit).expect("a lower limit is always granted");
}

fn states(manager: &PluginManager, root: &Path) -> Vec<String> {
    let line = |plugin: &wharf_registration::manager::PluginView| {
        let socket = plugin.socket.strip_prefix(root).expect("below the root");
        format!("{} {:?}", socket.display(), plugin.state)
    };
    manager.plugins().iter().map(line).collect()
}

struct Welcoming;

#[async_trait]
impl PluginHandler for Welcoming {
    async fn validate(&self, _: &Plugin) -> Result<(), PluginRefusal> {
        Ok(())
    }

    async fn register(&self, _: &Plugin) -> Result<(), PluginRefusal> {
        Ok(())
    }

    async fn deregister(&self, _: &Plugin) {}
}
