//! What hook servers are asked about: a pod sandbox or a container.

use crate::{
    HookPoint,
    edit::{Edit, Field, Value},
    partial::Inexpressible,
};

/// How numbers of an answer are read where its protocol cannot tell unset from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Take an `oom_score_adj` of 0 for a wish and not for an absent value, as koord-runtime-proxy
    /// does.
    pub zero_oom_score_adj: bool,
}

/// The two kinds of questions.
pub(crate) trait Subject: 'static {
    /// What a server is told.
    type Request: prost::Message + Clone + Default + 'static;
    /// What it answers.
    type Response: prost::Message + Default + PartialEq + 'static;

    /// The changes that `answer` asks for at `point`, against what was sent. What stays as it was
    /// is no change.
    fn edits(
        point: HookPoint,
        sent: &Self::Request,
        answer: &Self::Response,
        reading: Reading,
    ) -> Vec<Edit>;

    /// The changes that a partial answer asks for at `point`: what it does not name stays as it is.
    ///
    /// # Errors
    /// A field that it names and that cannot be changed like this.
    fn named_edits(
        point: HookPoint,
        sent: &Self::Request,
        answer: &Self::Response,
    ) -> Result<Vec<Edit>, Inexpressible>;

    /// The values of an answer that are out of range, so that they count as unset.
    fn ignored(_: HookPoint, _: &Self::Request, _: &Self::Response, _: Reading) -> Vec<Edit> {
        Vec::new()
    }

    /// The fields of a question that have a value, those that there are few of first.
    fn fields(request: &Self::Request) -> Vec<(Field, Value)>;

    /// The request as the next server is to see it.
    fn apply(request: &mut Self::Request, edits: &[Edit]);
}
