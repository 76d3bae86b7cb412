//! What the drivers of these tests have in common.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};
use wharf_proto::csi::{
    self,
    controller_service_capability::{self as controller, rpc},
    plugin_capability::{self as plugin, service},
};
use wharf_uds::{ListenOptions, Listener, Routes};

use crate::journal::Journal;

/// What is to be answered: in this order, and to whom.
pub(crate) struct Answers<A>(Mutex<Vec<(String, A)>>);

impl<A> Default for Answers<A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<A> Answers<A> {
    /// The next call that is about `part` is answered so; that of no text is any.
    pub(crate) fn push(&self, part: &str, answer: A) {
        self.0.lock().unwrap().push((part.to_owned(), answer));
    }

    /// The answer to a call, which is written down as `line`.
    pub(crate) fn take(&self, line: &str) -> Option<A> {
        let mut answers = self.0.lock().unwrap();
        let at = answers.iter().position(|(part, _)| line.contains(part))?;
        Some(answers.remove(at).1)
    }
}

/// How the next call is answered.
pub(crate) enum Answer {
    When(CancellationToken),
    ErrorWhen(CancellationToken, Status),
    Error(Status),
    Never,
}

impl Answer {
    /// Notes a call, and answers it as was asked for.
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

/// Serves a driver until it is told to stop.
pub(crate) async fn serve(routes: Routes, socket: &Path, stop: CancellationToken) {
    let listener = Listener::bind(socket, &ListenOptions::default()).unwrap();
    listener.serve(routes, Duration::ZERO, stop).await.unwrap();
}

/// The services of a driver, the controller's among them.
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

/// What its controller can do.
pub(crate) fn abilities(
    rpcs: &[rpc::Type],
) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
    let capability = |&rpc: &rpc::Type| csi::ControllerServiceCapability {
        r#type: Some(controller::Type::Rpc(controller::Rpc { r#type: rpc.into() })),
    };
    let capabilities = rpcs.iter().map(capability).collect();
    Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
}

/// RPCs that are not part of these tests.
macro_rules! others {
    ($($method:ident: $request:ident -> $response:ident,)*) => {$(
        // What the async_trait attribute would write: it does not look into macros.
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
