use std::{marker::PhantomData, vec};

use bytes::Bytes;
use prost::Message;

/// The items of a list, decoded one at a time: a full node's list takes some ten megabytes encoded
/// and several times that decoded. An item that cannot be decoded is logged and skipped.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    items: vec::IntoIter<Bytes>,
    kind: PhantomData<fn() -> T>,
}

/// The response of a list call. All list responses have their items in field 1.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    items: Vec<Bytes>,
}

impl<T> From<List> for Listed<T> {
    fn from(list: List) -> Self {
        Self { items: list.items.into_iter(), kind: PhantomData }
    }
}

impl<T: Message + Default> Iterator for Listed<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.items.find_map(|item| match T::decode(item) {
            Ok(item) => Some(item),
            Err(error) => {
                tracing::warn!(%error, "failed to decode item of runtime's list");
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use wharf_proto::cri::{Container, ListContainersResponse};

    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let own = |id: &str| Container { id: id.to_owned(), ..Default::default() };
        let sent = ListContainersResponse { containers: vec![own("a"), own("b")] };
        let mut list = List::decode(&*sent.encode_to_vec()).unwrap();
        list.items.insert(1, Bytes::from_static(&[0x0a, 1, 0xff]));
        let read: Vec<Container> = Listed::from(list).collect();
        assert_eq!(read, sent.containers);
    }
}
