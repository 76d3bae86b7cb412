//! The calls that are intercepted.

use crate::HookPoint;

/// A call that hook servers are asked about, or that ends a pod or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    RunPodSandbox,
    RestorePod,
    StopPodSandbox,
    RemovePodSandbox,
    CreateContainer,
    StartContainer,
    UpdateContainerResources,
    StopContainer,
    RemoveContainer,
}

impl Method {
    /// The hooks that it may lead to.
    pub(crate) fn points(self) -> &'static [HookPoint] {
        match self {
            Method::RunPodSandbox => &[HookPoint::PreRunPodSandbox],
            Method::RestorePod => &[HookPoint::PreRunPodSandbox, HookPoint::PreCreateContainer],
            Method::StopPodSandbox | Method::RemovePodSandbox => {
                &[HookPoint::PostStopPodSandbox, HookPoint::PostStopContainer]
            }
            Method::CreateContainer => &[HookPoint::PreCreateContainer],
            Method::StartContainer => {
                &[HookPoint::PreStartContainer, HookPoint::PostStartContainer]
            }
            Method::UpdateContainerResources => &[HookPoint::PreUpdateContainerResources],
            Method::StopContainer | Method::RemoveContainer => &[HookPoint::PostStopContainer],
        }
    }

    /// The hooks for which it has to be known what it is about: besides its own, the one whose
    /// changes of a pod are carried into its containers.
    pub(crate) fn reasons(self) -> &'static [HookPoint] {
        match self {
            Method::CreateContainer => {
                &[HookPoint::PreCreateContainer, HookPoint::PreRunPodSandbox]
            }
            _ => self.points(),
        }
    }

    /// By its path. The messages of both versions of CRI have the same numbers, so one way serves
    /// both.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = path
            .strip_prefix("/runtime.v1.RuntimeService/")
            .or_else(|| path.strip_prefix("/runtime.v1alpha2.RuntimeService/"))?;
        Some(match name {
            "RunPodSandbox" => Self::RunPodSandbox,
            "RestorePod" => Self::RestorePod,
            "StopPodSandbox" => Self::StopPodSandbox,
            "RemovePodSandbox" => Self::RemovePodSandbox,
            "CreateContainer" => Self::CreateContainer,
            "StartContainer" => Self::StartContainer,
            "UpdateContainerResources" => Self::UpdateContainerResources,
            "StopContainer" => Self::StopContainer,
            "RemoveContainer" => Self::RemoveContainer,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_and_nothing_else() {
        let run = Some(Method::RunPodSandbox);
        assert_eq!(Method::of("/runtime.v1.RuntimeService/RunPodSandbox"), run);
        assert_eq!(Method::of("/runtime.v1alpha2.RuntimeService/RunPodSandbox"), run);
        for other in [
            "/runtime.v2.RuntimeService/RunPodSandbox",
            "/runtime.v1.ImageService/RunPodSandbox",
            "/runtime.v1.RuntimeService/PodSandboxStatus",
            "RunPodSandbox",
        ] {
            assert_eq!(Method::of(other), None, "{other}");
        }
    }
}
