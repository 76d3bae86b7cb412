//! Hook servers of a runtime proxy: where they are found, and when they are asked.

/// Where hook servers put a file each, for the proxy to find them.
pub const FOLDER: &str = "/etc/runtime/hookserver.d";
/// The label of pods that hook servers are not asked about.
pub const SKIP_LABEL: &str = "runtimeproxy.koordinator.sh/skip-hookserver";
/// The value that it has to have.
pub const SKIP_VALUE: &str = "true";

/// A place in the kubelet's calls to the runtime at which hook servers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookPoint {
    /// Before RunPodSandbox.
    PreRunPodSandbox,
    /// After StopPodSandbox.
    PostStopPodSandbox,
    /// Before CreateContainer.
    PreCreateContainer,
    /// Before StartContainer.
    PreStartContainer,
    /// After StartContainer.
    PostStartContainer,
    /// Before UpdateContainerResources.
    PreUpdateContainerResources,
    /// After StopContainer, or once a container is known to have ended by itself.
    PostStopContainer,
}

/// What the failure of a hook server means for the call that it was asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The call fails, and kubelet tries again.
    Fail,
    /// The call goes on as if the server had not been asked.
    #[default]
    Ignore,
}

impl FailurePolicy {
    /// The name in a server's file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FailurePolicy::Fail => "Fail",
            FailurePolicy::Ignore => "Ignore",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<FailurePolicy> {
        [FailurePolicy::Fail, FailurePolicy::Ignore].into_iter().find(|it| it.name() == name)
    }
}

/// Request metadata of post hooks: the code that the runtime's call ended with, as a number.
pub const OUTCOME_CODE: &str = "wharf-outcome-code";
/// Request metadata of post hooks: its message, percent-encoded as in `grpc-message`.
pub const OUTCOME_MESSAGE: &str = "wharf-outcome-message";
/// Request metadata of post hooks: how long it took, in milliseconds.
pub const OUTCOME_DURATION: &str = "wharf-outcome-duration-ms";

impl HookPoint {
    /// Whether it comes before the runtime's call, so that the call can still be refused.
    #[must_use]
    pub fn is_before(self) -> bool {
        self.name().starts_with("Pre")
    }

    /// All of them.
    pub const ALL: [HookPoint; 7] = [
        HookPoint::PreRunPodSandbox,
        HookPoint::PostStopPodSandbox,
        HookPoint::PreCreateContainer,
        HookPoint::PreStartContainer,
        HookPoint::PostStartContainer,
        HookPoint::PreUpdateContainerResources,
        HookPoint::PostStopContainer,
    ];

    /// The name in a server's file, under `runtime-hooks`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HookPoint::PreRunPodSandbox => "PreRunPodSandbox",
            HookPoint::PostStopPodSandbox => "PostStopPodSandbox",
            HookPoint::PreCreateContainer => "PreCreateContainer",
            HookPoint::PreStartContainer => "PreStartContainer",
            HookPoint::PostStartContainer => "PostStartContainer",
            HookPoint::PreUpdateContainerResources => "PreUpdateContainerResources",
            HookPoint::PostStopContainer => "PostStopContainer",
        }
    }

    /// The point with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<HookPoint> {
        HookPoint::ALL.into_iter().find(|point| point.name() == name)
    }
}
