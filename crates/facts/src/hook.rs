//! Hook servers of a runtime proxy: their files, and the points at which they are called.

/// Folder of the hook servers' files, which the proxy reads.
pub const FOLDER: &str = "/etc/runtime/hookserver.d";
/// Label of pods for which no hook server is called.
pub const SKIP_LABEL: &str = "runtimeproxy.koordinator.sh/skip-hookserver";
/// The value of [`SKIP_LABEL`].
pub const SKIP_VALUE: &str = "true";

/// A point in the kubelet's calls to the runtime at which hook servers are called.
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
    /// After StopContainer, or when a container has ended by itself.
    PostStopContainer,
}

/// Effect of a hook server's failure on the call of the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The call fails, and the kubelet retries it.
    Fail,
    /// The call goes on as if the server had not been called.
    #[default]
    Ignore,
}

impl FailurePolicy {
    /// The name in a server's file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Fail, Self::Ignore].into_iter().find(|it| it.name() == name)
    }
}

/// Request metadata of post hooks: the gRPC code of the runtime's call, as a number.
pub const OUTCOME_CODE: &str = "wharf-outcome-code";
/// Request metadata of post hooks: the message of the runtime's call, percent-encoded as in
/// `grpc-message`.
pub const OUTCOME_MESSAGE: &str = "wharf-outcome-message";
/// Request metadata of post hooks: the duration of the runtime's call, in milliseconds.
pub const OUTCOME_DURATION: &str = "wharf-outcome-duration-ms";

impl HookPoint {
    /// Whether the hook runs before the runtime's call, so that it can still refuse the call.
    #[must_use]
    pub fn is_before(self) -> bool {
        self.name().starts_with("Pre")
    }

    /// All points.
    pub const ALL: [Self; 7] = [
        Self::PreRunPodSandbox,
        Self::PostStopPodSandbox,
        Self::PreCreateContainer,
        Self::PreStartContainer,
        Self::PostStartContainer,
        Self::PreUpdateContainerResources,
        Self::PostStopContainer,
    ];

    /// The name in a server's file, under `runtime-hooks`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PreRunPodSandbox => "PreRunPodSandbox",
            Self::PostStopPodSandbox => "PostStopPodSandbox",
            Self::PreCreateContainer => "PreCreateContainer",
            Self::PreStartContainer => "PreStartContainer",
            Self::PostStartContainer => "PostStartContainer",
            Self::PreUpdateContainerResources => "PreUpdateContainerResources",
            Self::PostStopContainer => "PostStopContainer",
        }
    }

    /// The point with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }
}
