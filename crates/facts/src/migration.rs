//! In-tree volume plugins that Kubernetes has migrated to CSI drivers.

/// An in-tree plugin, and the CSI driver that replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTreePlugin {
    /// The plugin's name, such as `kubernetes.io/aws-ebs`.
    pub name: &'static str,
    /// The CSI driver's name.
    pub driver: &'static str,
}

macro_rules! plugins {
    ($($constant:ident = $name:literal => $driver:literal;)*) => {
        $(
            #[doc = concat!("`kubernetes.io/", $name, "`, served by `", $driver, "`.")]
            pub const $constant: InTreePlugin =
                InTreePlugin { name: concat!("kubernetes.io/", $name), driver: $driver };
        )*
    };
}

plugins! {
    AWS_EBS = "aws-ebs" => "ebs.csi.aws.com";
    GCE_PD = "gce-pd" => "pd.csi.storage.gke.io";
    AZURE_DISK = "azure-disk" => "disk.csi.azure.com";
    AZURE_FILE = "azure-file" => "file.csi.azure.com";
    CINDER = "cinder" => "cinder.csi.openstack.org";
    VSPHERE = "vsphere-volume" => "csi.vsphere.vmware.com";
    PORTWORX = "portworx-volume" => "pxd.portworx.com";
    RBD = "rbd" => "rbd.csi.ceph.com";
}
