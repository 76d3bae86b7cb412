//! Parts that the scripted drivers share.

use std::{path::Path, sync::Mutex, time::Duration};

use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};
use wharf_proto::csi::{
    self,
    controller_service_capability::{self as controller, rpc},
    plugin_capability::{self as plugin, service},
};
use wharf_uds::{ListenOptions, Listener, Routes};

use crate::journal::Journal;

/// The scripted answers, in order, and the calls that get them.
pub(crate) struct Answers<A>(Mutex<Vec<(String, A)>>);

impl<A> Default for Answers<A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<A> Answers<A> {
    /// Answers the next call that contains `part` like this; an empty `part` matches any call.
    pub(crate) fn push(&self, part: &str, answer: A) {
        self.0.lock().unwrap().push((part.to_owned(), answer));
    }

    /// The answer to a call, which is recorded as `line`.
    pub(crate) fn take(&self, line: &str) -> Option<A> {
        let mut answers = self.0.lock().unwrap();
        let at = answers.iter().position(|(part, _)| line.contains(part))?;
        Some(answers.remove(at).1)
    }
}

/// The answer to a call.
pub(crate) enum Answer {
    When(CancellationToken),
    ErrorWhen(CancellationToken, Status),
    Error(Status),
    Never,
}

impl Answer {
    /// Records a call, and answers it as scripted.
    pub(crate) async fn play(
        answers: &Answers<Answer>,
        journal: &Journal,
        line: String,
    ) -> Result<(), Status> {
        match answers.take(&line) {
            None => journal.note(line),
            Some(Answer::When(told)) => {
                journal.note(line);
                told.cancelled().await;
            }
            Some(Answer::ErrorWhen(told, status)) => {
                journal.note(format!("{line} -> {:?}", status.code()));
                told.cancelled().await;
                return Err(status);
            }
            Some(Answer::Error(status)) => {
                journal.note(format!("{line} -> {:?}", status.code()));
                return Err(status);
            }
            Some(Answer::Never) => {
                journal.note(format!("{line} -> never"));
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }
}

/// Serves a driver until `stop`.
pub(crate) async fn serve(routes: Routes, socket: &Path, stop: CancellationToken) {
    let listener = Listener::bind(socket, &ListenOptions::default()).unwrap();
    listener.serve(routes, Duration::ZERO, stop).await.unwrap();
}

/// The services of a driver, including the controller service.
pub(crate) fn services(
    more: &[service::Type],
) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
    let capability = |&service: &service::Type| csi::PluginCapability {
        r#type: Some(plugin::Type::Service(plugin::Service { r#type: service.into() })),
    };
    let services = [&[service::Type::ControllerService], more].concat();
    let capabilities = services.iter().map(capability).collect();
    Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
}

/// The answer to ControllerGetCapabilities.
pub(crate) fn capabilities(
    rpcs: &[rpc::Type],
) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
    let capability = |&rpc: &rpc::Type| csi::ControllerServiceCapability {
        r#type: Some(controller::Type::Rpc(controller::Rpc { r#type: rpc.into() })),
    };
    let capabilities = rpcs.iter().map(capability).collect();
    Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
}

/// RPCs that these tests do not use.
macro_rules! others {
    ($($method:ident: $request:ident -> $response:ident,)*) => {$(
        // Written by hand because the async_trait attribute does not expand macros.
        fn $method<'a, 'f>(
            &'a self,
            _: tonic::Request<csi::$request>,
        ) -> std::pin::Pin<
            Box<dyn Future<Output = Result<tonic::Response<csi::$response>, tonic::Status>> + Send + 'f>,
        >
        where
            'a: 'f,
            Self: 'f,
        {
            Box::pin(async { Err(tonic::Status::unimplemented(stringify!($method))) })
        }
    )*};
}

pub(crate) use others;
