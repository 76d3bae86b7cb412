use http::Method;
use serde_json::json;
use wharf_proto::csi::{
    controller_service_capability::rpc,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};

use super::fixture::{CLAIMS, Fixture, made};
use crate::extremes;

#[tokio::test]
async fn a_claim_gets_its_volume() {
    let Some(mut fixture) = Fixture::new("prov-claim", &[]).await else { return };
    fixture.options.default_fs_type = "ext4".to_owned();
    fixture.class(|it| it["mountOptions"] = json!(["noatime"])).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.expect(made(&name)).await;
    let claim = "default/prov-claim";
    fixture
        .journal
        .event(&format!(
            "Normal Provisioning External provisioner is provisioning volume for claim {claim:?}"
        ))
        .await;
    let succeeded = format!("Normal ProvisioningSucceeded Successfully provisioned volume {name}");
    fixture.journal.event(&succeeded).await;

    let call = fixture.driver.volumes().last_asked();
    assert_eq!(call.capacity_range.unwrap().required_bytes, 1 << 30);
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["noatime".to_owned()],
        ..MountVolume::default()
    };
    let [capability] = &*call.volume_capabilities else { panic!("{call:?}") };
    assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));
    assert_eq!(capability.access_mode.unwrap().mode(), Mode::SingleNodeWriter);

    let claim = fixture.get(CLAIMS).await.unwrap();
    let volume = fixture.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    assert_eq!(volume["spec"]["storageClassName"], "prov-claim");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
    let csi = &volume["spec"]["csi"];
    assert_eq!((&csi["volumeHandle"], &csi["fsType"]), (&json!(name), &json!("ext4")));
    let identity = "storage.kubernetes.io/csiProvisionerIdentity";
    let identity = csi["volumeAttributes"][identity].as_str().unwrap();
    assert!(identity.ends_with("-prov-claim.csi.test"), "{identity}");
    fixture.stop().await;
}

#[tokio::test]
async fn secrets_and_names_reach_the_driver() {
    let Some(mut fixture) = Fixture::new("prov-secret", &[]).await else { return };
    fixture.options.extra_metadata = true;
    let secret = json!({ "metadata": { "name": "prov-secret" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    let prefix = "csi.storage.k8s.io";
    fixture
        .class(|class| {
            class["parameters"] = json!({
                "tier": "fast",
                format!("{prefix}/fstype"): "xfs",
                format!("{prefix}/provisioner-secret-name"): "${pvc.annotations['example.com/secret']}",
                format!("{prefix}/provisioner-secret-namespace"): "${pvc.namespace}",
                format!("{prefix}/node-stage-secret-name"): "${pv.name}",
                format!("{prefix}/node-stage-secret-namespace"): "vault",
            });
        })
        .await;
    let name = fixture
        .claim(|it| it["metadata"]["annotations"]["example.com/secret"] = json!("prov-secret"))
        .await;
    fixture.start();
    let [create, post] = made(&name);
    // Caches do not keep user annotations.
    let claim = "GET namespaces/default/persistentvolumeclaims/prov-secret".to_owned();
    let secret = "GET namespaces/default/secrets/prov-secret".to_owned();
    fixture.journal.expect([claim, secret, create, post]).await;
    let call = fixture.driver.volumes().last_asked();
    assert_eq!(call.secrets["key"], "hush");
    let told = [
        (format!("{prefix}/pv/name"), name.clone()),
        (format!("{prefix}/pvc/name"), "prov-secret".to_owned()),
        (format!("{prefix}/pvc/namespace"), "default".to_owned()),
        ("tier".to_owned(), "fast".to_owned()),
    ];
    assert_eq!(call.parameters, told.into());
    let volume = fixture.persistent_volume(&name).await.unwrap();
    let stage = json!({ "name": name, "namespace": "vault" });
    assert_eq!(volume["spec"]["csi"]["nodeStageSecretRef"], stage);
    let annotations = &volume["metadata"]["annotations"];
    let deletion = "volume.kubernetes.io/provisioner-deletion-secret";
    assert_eq!(annotations[format!("{deletion}-name")], "prov-secret");
    assert_eq!(annotations[format!("{deletion}-namespace")], "default");
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_made_with_the_attributes_of_its_class() {
    let Some(mut fixture) = Fixture::new("prov-vac", &[rpc::Type::ModifyVolume]).await else {
        return;
    };
    let attributes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    for (name, driver) in
        [("prov-vac", fixture.options.driver.as_str()), ("prov-vac-foreign", "other")]
    {
        let metadata = json!({ "name": name });
        let class =
            json!({ "metadata": metadata, "driverName": driver, "parameters": { "iops": "9" } });
        fixture.create(attributes, "VolumeAttributesClass", class).await;
    }
    fixture.class(|_| {}).await;
    let name =
        fixture.claim(|it| it["spec"]["volumeAttributesClassName"] = json!("prov-vac")).await;
    fixture.start();
    let [create, post] = made(&name);
    let read = "GET volumeattributesclasses/prov-vac".to_owned();
    fixture.journal.expect([read, create, post]).await;
    assert_eq!(fixture.driver.volumes().last_asked().mutable_parameters["iops"], "9");
    let volume = fixture.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "prov-vac");

    fixture.journal.clear();
    fixture
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-vac-foreign");
            it["spec"]["volumeAttributesClassName"] = json!("prov-vac-foreign");
        })
        .await;
    let refused =
        "Warning ProvisioningFailed VAC prov-vac-foreign referenced in PVC is for driver other";
    fixture.journal.event(refused).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_api_without_attributes_gives_volumes_without() {
    let Some(mut fixture) = Fixture::new("prov-novac", &[rpc::Type::ModifyVolume]).await else {
        return;
    };
    // All watches have started by then: the next requests are for the class, and for the kinds of
    // the API.
    fixture.bound().await;
    fixture.journal.fail_once(Method::GET, "/volumeattributesclasses/", 404);
    fixture.journal.fail_once(Method::GET, "/apis/storage.k8s.io/v1", 404);
    let name = fixture
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-novac-2");
            it["spec"]["volumeAttributesClassName"] = json!("prov-novac");
        })
        .await;
    let [create, post] = made(&name);
    let class = "GET volumeattributesclasses/prov-novac -> 404".to_owned();
    let kinds = "GET /apis/storage.k8s.io/v1 -> 404".to_owned();
    fixture.journal.expect([class, kinds, create, post]).await;
    let volume = fixture.persistent_volume(&name).await.unwrap();
    assert!(volume["spec"]["volumeAttributesClassName"].is_null(), "{volume}");
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_bound_or_of_another_driver_is_left_alone() {
    let Some(mut fixture) = Fixture::new("prov-barrier", &[]).await else { return };
    fixture.class(|_| {}).await;
    fixture
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-bound");
            it["spec"]["volumeName"] = json!("somewhere");
        })
        .await;
    fixture
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-foreign");
            it["metadata"]["annotations"] =
                json!({ "volume.kubernetes.io/storage-provisioner": "other" });
        })
        .await;
    fixture.start();
    let name = fixture.claim(|_| {}).await;
    fixture.journal.expect(made(&name)).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_waits_for_its_class() {
    let Some(mut fixture) = Fixture::new("prov-class", &[]).await else { return };
    fixture.options.backoff.first = std::time::Duration::from_mins(1);
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.class(|_| {}).await;
    fixture.journal.expect(made(&name)).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_others_fill_is_left_to_them() {
    let Some(mut fixture) = Fixture::new("prov-populate", &[]).await else { return };
    fixture.class(|_| {}).await;
    fixture
        .claim(|it| {
            let source = json!({ "apiGroup": "example.com", "kind": "Book", "name": "b" });
            it["spec"]["dataSourceRef"] = source;
        })
        .await;
    fixture.start();
    let left = "Normal Provisioning Assuming an external populator will provision the volume";
    fixture.journal.event(left).await;
    let next = fixture.claim(|it| it["metadata"]["name"] = json!("prov-populate-next")).await;
    fixture.journal.expect(made(&next)).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_gets_its_volume_whatever_it_is_called() {
    let Some(mut fixture) = Fixture::new("prov-extreme", &[]).await else { return };
    fixture.options.extra_metadata = true;
    fixture.class(|_| {}).await;
    let claim = extremes::longest("prov-extreme");
    let name = fixture
        .claim(|it| {
            it["metadata"]["name"] = json!(claim);
            extremes::fill(it);
        })
        .await;
    fixture.start();
    fixture.journal.expect(made(&name)).await;
    fixture.journal.event("Normal ProvisioningSucceeded").await;
    let volume = fixture.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["claimRef"]["name"], claim);
    let parameters = fixture.driver.volumes().last_asked().parameters;
    assert_eq!(parameters["csi.storage.k8s.io/pvc/name"], claim);
    fixture.stop().await;
}
