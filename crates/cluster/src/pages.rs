use std::marker::PhantomData;

use http::Request;
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

use crate::{ApiFailure, Meta, bounded};

/// Objects per page.
const PAGE: usize = 500;

/// A list, page by page: no list is ever in memory as a whole. Unreadable objects are skipped.
pub struct Pages<T> {
    client: Client,
    what: String,
    collection: String,
    size: usize,
    selection: String,
    next: Next,
    version: String,
    unreadable: Vec<String>,
    items: PhantomData<fn() -> T>,
}

enum Next {
    First,
    After(String),
    None,
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// An object, or the error if it does not have the form of its kind.
enum Item<T> {
    Readable(T),
    Unreadable { key: String, error: serde_json::Error },
}

impl<T: DeserializeOwned> Pages<T> {
    /// Lists the objects at the path of a collection, named `what` in errors.
    pub fn new(client: &Client, what: impl Into<String>, collection: &str) -> Self {
        Self {
            client: client.clone(),
            what: what.into(),
            collection: collection.to_owned(),
            size: PAGE,
            selection: String::new(),
            next: Next::First,
            version: String::new(),
            unreadable: Vec::new(),
            items: PhantomData,
        }
    }

    /// Lists only objects that a query parameter selects.
    #[must_use]
    pub fn selected(mut self, parameter: &str, value: &str) -> Self {
        self.selection += &format!("&{parameter}={}", escaped(value));
        self
    }

    /// Sets the objects per page.
    #[must_use]
    pub(crate) fn of(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// The next page; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, ApiFailure> {
        let first = format!("{}?limit={}{}", self.collection, self.size, self.selection);
        let uri = match &self.next {
            Next::First => first,
            Next::After(token) => format!("{first}&continue={}", escaped(token)),
            Next::None => return Ok(None),
        };
        let request = Request::get(uri).body(Vec::new()).expect("all that is foreign is escaped");
        let page = async {
            let text = self.client.request_text(request).await?;
            read(&text).map_err(kube::Error::SerdeError)
        };
        let Page { metadata, items } = bounded(&self.what, page).await?;
        self.version = metadata.resource_version;
        self.next = match metadata.next {
            Some(token) if !token.is_empty() => Next::After(token),
            _ => Next::None,
        };
        self.unreadable.clear();
        Ok(Some(items.into_iter().filter_map(|item| self.readable(item)).collect()))
    }

    /// One unreadable object must not hide all others.
    fn readable(&mut self, item: Item<T>) -> Option<T> {
        match item {
            Item::Readable(object) => Some(object),
            Item::Unreadable { key, error } => {
                tracing::error!(kind = self.what, object = key, %error, "skipping unreadable object");
                self.unreadable.push(key);
                None
            }
        }
    }

    /// The keys of objects that were skipped on the last page.
    pub(crate) fn unreadable(&mut self) -> impl Iterator<Item = String> {
        self.unreadable.drain(..)
    }

    /// The version of the list, once a page has come.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<Page<Item<T>>, serde_json::Error> {
    // Decode by way of a document only for pages that need it.
    if let Ok(Page { metadata, items }) = serde_json::from_str::<Page<T>>(text) {
        return Ok(Page { metadata, items: items.into_iter().map(Item::Readable).collect() });
    }
    serde_json::from_str(text)
}

/// Decodes by way of a JSON document, so that objects after an unreadable one are found.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let document = Value::deserialize(source)?;
        T::deserialize(&document).map(Self::Readable).or_else(|error| {
            let text = |field| document["metadata"][field].as_str().map(str::to_owned);
            let name = text("name").ok_or_else(|| D::Error::custom(&error))?;
            let meta = Meta { name, namespace: text("namespace"), ..Meta::default() };
            Ok(Self::Unreadable { key: meta.key(), error })
        })
    }
}

/// Tokens are often base64, whose `+` is a space in a query.
pub(crate) fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::PersistentVolumeClaim;

    #[test]
    fn an_object_that_cannot_be_read_is_left_out_alone() {
        let claim = |name: &str, label: Value| {
            let labels = json!({ "a": label });
            json!({ "metadata": { "name": name, "namespace": "n", "labels": labels } })
        };
        let items = [claim("a", json!("b")), claim("odd", json!(1)), claim("c", json!("d"))];
        let page = json!({ "metadata": { "resourceVersion": "7" }, "items": items }).to_string();
        let page = read::<PersistentVolumeClaim>(&page).unwrap();
        assert_eq!(page.metadata.resource_version, "7");
        let items = page.items.into_iter().map(|item| match item {
            Item::Readable(claim) => Ok(claim.metadata.key()),
            Item::Unreadable { key, .. } => Err(key),
        });
        let expected = [Ok("n/a".to_owned()), Err("n/odd".to_owned()), Ok("n/c".to_owned())];
        assert_eq!(items.collect::<Vec<_>>(), expected);
        assert!(read::<PersistentVolumeClaim>(r#"{"items":[{}"#).is_err());
        assert!(read::<u8>(r#"{"items":["nameless"]}"#).is_err());
    }

    #[tokio::test]
    async fn tokens_of_any_kind_go_back_as_they_came() {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let service = tower::service_fn({
            let asked = Arc::clone(&asked);
            move |request: Request<Body>| {
                asked.lock().unwrap().push(request.uri().to_string());
                let token = match asked.lock().unwrap().len() {
                    1 => json!("a+b/c= ä&\n"),
                    _ => Value::Null,
                };
                let metadata = json!({ "resourceVersion": "7", "continue": token });
                let page = json!({ "metadata": metadata, "items": [1] });
                let answer = Response::new(Body::from(page.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(answer) }
            }
        });
        let client = Client::new(service, "default");
        let mut pages = Pages::<u8>::new(&client, "things", "/things").selected("s", "a=b,c");
        let mut all = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            all.extend(page);
        }
        assert_eq!((all, pages.version()), (vec![1, 1], "7"));
        let first = "/things?limit=500&s=a%3Db%2Cc";
        let second = format!("{first}&continue=a%2Bb%2Fc%3D%20%C3%A4%26%0A");
        assert_eq!(*asked.lock().unwrap(), [first, &second]);
    }
}
