//! Tests run under the roles of deploy/: requests beyond them are refused.

use tokio::sync::OnceCell;
use wharf_testkit::{
    cluster::Cluster,
    deploy::{self, CONTROLLERS, Subject},
};

/// The users, each with the roles of the file of its name.
pub(crate) const ATTACHER: &str = "attacher";
pub(crate) const PROVISIONER: &str = "provisioner";
pub(crate) const RESIZER: &str = "resizer";
pub(crate) const SNAPSHOTTER: &str = "snapshotter";
pub(crate) const SNAPSHOT_CONTROLLER: &str = "snapshot-controller";

/// Grants the roles, once, in the namespace of the tests.
pub(crate) async fn grant(cluster: &Cluster) {
    static GRANTED: OnceCell<()> = OnceCell::const_new();
    let grant = || async {
        for user in CONTROLLERS {
            let roles = deploy::roles(user, "default", &[Subject::User(user)]).unwrap();
            cluster.apply_all(&roles).await.unwrap();
        }
    };
    GRANTED.get_or_init(grant).await;
}
