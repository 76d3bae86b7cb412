use std::marker::PhantomData;
use std::vec;

use bytes::Bytes;
use prost::Message;

/// What a list holds, one at a time. A full node's list takes some ten megabytes as it came and several times that
/// taken apart, so an item is taken apart when it is its turn. One that cannot be is told and left out.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    items: vec::IntoIter<Bytes>,
    kind: PhantomData<fn() -> T>,
}

/// A list's answer, whatever it lists: they all have it in the same field.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    items: Vec<Bytes>,
}

impl<T> From<List> for Listed<T> {
    fn from(list: List) -> Listed<T> {
        Listed { items: list.items.into_iter(), kind: PhantomData }
    }
}

impl<T: Message + Default> Iterator for Listed<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.items.find_map(|item| match T::decode(item) {
            Ok(item) => Some(item),
            Err(error) => {
                tracing::warn!(%error, "an item of a runtime's list cannot be read");
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
