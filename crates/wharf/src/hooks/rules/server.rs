//! The hooks that apply the rules.

use std::sync::{Arc, PoisonError, RwLock};

use wharf_hooks::prelude::*;

use super::file::Rules;

/// The rules in force.
pub(super) struct RuleServer(RwLock<Arc<Rules>>);

impl RuleServer {
    pub(super) fn new(rules: Rules) -> Self {
        RuleServer(RwLock::new(Arc::new(rules)))
    }

    /// Replaces the rules, from the next call on.
    pub(super) fn replace(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    fn rules(&self) -> Arc<Rules> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl PreRunPodSandbox for RuleServer {
    async fn pre_run_pod_sandbox(&self, sandbox: &PodSandbox) -> Result<PodAdjustment, Refusal> {
        Ok(self.rules().sandbox(sandbox))
    }
}

#[async_trait]
impl PreCreateContainer for RuleServer {
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal> {
        Ok(self.rules().container(container))
    }
}

#[async_trait]
impl PreUpdateContainerResources for RuleServer {
    async fn pre_update_container_resources(
        &self,
        container: &Container,
    ) -> Result<ResourceAdjustment, Refusal> {
        Ok(self.rules().resources(container))
    }
}
