use http::Method;
use serde_json::json;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_proto::csi::volume_capability::{AccessType, MountVolume, access_mode::Mode};

use super::bench::{Bench, CLAIMS, made};
use crate::extremes;

#[tokio::test]
async fn a_claim_gets_its_volume() {
    let Some(mut bench) = Bench::new("prov-claim", &[]).await else { return };
    bench.options.default_fs_type = "ext4".to_owned();
    bench.class(|it| it["mountOptions"] = json!(["noatime"])).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.expect(made(&name)).await;
    let claim = "default/prov-claim";
    bench
        .journal
        .event(&format!(
            "Normal Provisioning External provisioner is provisioning volume for claim {claim:?}"
        ))
        .await;
    let succeeded = format!("Normal ProvisioningSucceeded Successfully provisioned volume {name}");
    bench.journal.event(&succeeded).await;

    let call = bench.driver.volumes().last_asked();
    assert_eq!(call.capacity_range.unwrap().required_bytes, 1 << 30);
    let mount = MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["noatime".to_owned()],
        ..MountVolume::default()
    };
    let [capability] = &*call.volume_capabilities else { panic!("{call:?}") };
    assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));
    assert_eq!(capability.access_mode.unwrap().mode(), Mode::SingleNodeWriter);

    let claim = bench.get(CLAIMS).await.unwrap();
    let volume = bench.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    assert_eq!(volume["spec"]["storageClassName"], "prov-claim");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
    let csi = &volume["spec"]["csi"];
    assert_eq!((&csi["volumeHandle"], &csi["fsType"]), (&json!(name), &json!("ext4")));
    let identity = "storage.kubernetes.io/csiProvisionerIdentity";
    let identity = csi["volumeAttributes"][identity].as_str().unwrap();
    assert!(identity.ends_with("-prov-claim.csi.test"), "{identity}");
    bench.stop().await;
}

#[tokio::test]
async fn secrets_and_names_reach_the_driver() {
    let Some(mut bench) = Bench::new("prov-secret", &[]).await else { return };
    bench.options.extra_metadata = true;
    let secret = json!({ "metadata": { "name": "prov-secret" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    let prefix = "csi.storage.k8s.io";
    bench
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
    let name = bench
        .claim(|it| it["metadata"]["annotations"]["example.com/secret"] = json!("prov-secret"))
        .await;
    bench.start();
    let [create, post] = made(&name);
    // Caches keep no annotations that only users know.
    let claim = "GET namespaces/default/persistentvolumeclaims/prov-secret".to_owned();
    let secret = "GET namespaces/default/secrets/prov-secret".to_owned();
    bench.journal.expect([claim, secret, create, post]).await;
    let call = bench.driver.volumes().last_asked();
    assert_eq!(call.secrets["key"], "hush");
    let told = [
        (format!("{prefix}/pv/name"), name.clone()),
        (format!("{prefix}/pvc/name"), "prov-secret".to_owned()),
        (format!("{prefix}/pvc/namespace"), "default".to_owned()),
        ("tier".to_owned(), "fast".to_owned()),
    ];
    assert_eq!(call.parameters, told.into());
    let volume = bench.persistent_volume(&name).await.unwrap();
    let stage = json!({ "name": name, "namespace": "vault" });
    assert_eq!(volume["spec"]["csi"]["nodeStageSecretRef"], stage);
    let annotations = &volume["metadata"]["annotations"];
    let deletion = "volume.kubernetes.io/provisioner-deletion-secret";
    assert_eq!(annotations[format!("{deletion}-name")], "prov-secret");
    assert_eq!(annotations[format!("{deletion}-namespace")], "default");
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_made_with_the_attributes_of_its_class() {
    let Some(mut bench) = Bench::new("prov-vac", &[rpc::Type::ModifyVolume]).await else { return };
    let attributes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    for (name, driver) in
        [("prov-vac", bench.options.driver.as_str()), ("prov-vac-foreign", "other")]
    {
        let metadata = json!({ "name": name });
        let class =
            json!({ "metadata": metadata, "driverName": driver, "parameters": { "iops": "9" } });
        bench.create(attributes, "VolumeAttributesClass", class).await;
    }
    bench.class(|_| {}).await;
    let name = bench.claim(|it| it["spec"]["volumeAttributesClassName"] = json!("prov-vac")).await;
    bench.start();
    let [create, post] = made(&name);
    let read = "GET volumeattributesclasses/prov-vac".to_owned();
    bench.journal.expect([read, create, post]).await;
    assert_eq!(bench.driver.volumes().last_asked().mutable_parameters["iops"], "9");
    let volume = bench.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "prov-vac");

    bench.journal.clear();
    bench
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-vac-foreign");
            it["spec"]["volumeAttributesClassName"] = json!("prov-vac-foreign");
        })
        .await;
    let refused =
        "Warning ProvisioningFailed VAC prov-vac-foreign referenced in PVC is for driver other";
    bench.journal.event(refused).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_api_without_attributes_gives_volumes_without() {
    let Some(mut bench) = Bench::new("prov-novac", &[rpc::Type::ModifyVolume]).await else {
        return;
    };
    // What is watched is watched by then: the next to be asked for are the class, and which kinds there are.
    bench.bound().await;
    bench.journal.fail_once(Method::GET, "/volumeattributesclasses/", 404);
    bench.journal.fail_once(Method::GET, "/apis/storage.k8s.io/v1", 404);
    let name = bench
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-novac-2");
            it["spec"]["volumeAttributesClassName"] = json!("prov-novac");
        })
        .await;
    let [create, post] = made(&name);
    let class = "GET volumeattributesclasses/prov-novac -> 404".to_owned();
    let kinds = "GET /apis/storage.k8s.io/v1 -> 404".to_owned();
    bench.journal.expect([class, kinds, create, post]).await;
    let volume = bench.persistent_volume(&name).await.unwrap();
    assert!(volume["spec"]["volumeAttributesClassName"].is_null(), "{volume}");
    bench.stop().await;
}

#[tokio::test]
async fn what_is_bound_or_of_another_driver_is_left_alone() {
    let Some(mut bench) = Bench::new("prov-barrier", &[]).await else { return };
    bench.class(|_| {}).await;
    bench
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-bound");
            it["spec"]["volumeName"] = json!("somewhere");
        })
        .await;
    bench
        .claim(|it| {
            it["metadata"]["name"] = json!("prov-foreign");
            it["metadata"]["annotations"] =
                json!({ "volume.kubernetes.io/storage-provisioner": "other" });
        })
        .await;
    bench.start();
    let name = bench.claim(|_| {}).await;
    bench.journal.expect(made(&name)).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_waits_for_its_class() {
    let Some(mut bench) = Bench::new("prov-class", &[]).await else { return };
    bench.options.backoff.first = std::time::Duration::from_mins(1);
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.class(|_| {}).await;
    bench.journal.expect(made(&name)).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_others_fill_is_left_to_them() {
    let Some(mut bench) = Bench::new("prov-populate", &[]).await else { return };
    bench.class(|_| {}).await;
    bench
        .claim(|it| {
            let source = json!({ "apiGroup": "example.com", "kind": "Book", "name": "b" });
            it["spec"]["dataSourceRef"] = source;
        })
        .await;
    bench.start();
    let left = "Normal Provisioning Assuming an external populator will provision the volume";
    bench.journal.event(left).await;
    let next = bench.claim(|it| it["metadata"]["name"] = json!("prov-populate-next")).await;
    bench.journal.expect(made(&next)).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_gets_its_volume_whatever_it_is_called() {
    let Some(mut bench) = Bench::new("prov-extreme", &[]).await else { return };
    bench.options.extra_metadata = true;
    bench.class(|_| {}).await;
    let claim = extremes::longest("prov-extreme");
    let name = bench
        .claim(|it| {
            it["metadata"]["name"] = json!(claim);
            extremes::fill(it);
        })
        .await;
    bench.start();
    bench.journal.expect(made(&name)).await;
    bench.journal.event("Normal ProvisioningSucceeded").await;
    let volume = bench.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["claimRef"]["name"], claim);
    let parameters = bench.driver.volumes().last_asked().parameters;
    assert_eq!(parameters["csi.storage.k8s.io/pvc/name"], claim);
    bench.stop().await;
}
