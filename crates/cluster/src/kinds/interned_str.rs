use std::{
    collections::HashSet,
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// An interned text: many objects have it in common, such as a driver's name or a phase, and the
/// process keeps it once.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InternedStr(Option<Arc<str>>);

impl InternedStr {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<&str> for InternedStr {
    fn from(text: &str) -> Self {
        if text.is_empty() {
            return Self(None);
        }
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Self(Some(known.intern(text)))
    }
}

impl From<String> for InternedStr {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<InternedStr> for String {
    fn from(interned: InternedStr) -> Self {
        interned.as_str().to_owned()
    }
}

impl Deref for InternedStr {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for InternedStr {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for InternedStr {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for InternedStr {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for InternedStr {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl fmt::Display for InternedStr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl fmt::Debug for InternedStr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl Serialize for InternedStr {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for InternedStr {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = InternedStr;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<InternedStr, E> {
        Ok(text.into())
    }
}

/// All interned texts, including some that are no longer used.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    texts: HashSet<Arc<str>>,
    /// With so many texts, unused ones are removed.
    full: usize,
}

impl Known {
    /// Unused texts are searched for only when their number has doubled, so that interning stays
    /// cheap.
    const FEW: usize = 1024;

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(interned) = self.texts.get(text) {
            return Arc::clone(interned);
        }
        if self.texts.len() >= self.full {
            self.texts.retain(|interned| Arc::strong_count(interned) > 1);
            self.full = Self::FEW.max(self.texts.len() * 2);
        }
        let interned = Arc::<str>::from(text);
        self.texts.insert(Arc::clone(&interned));
        interned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_are_one() {
        let (one, other) =
            (InternedStr::from("a driver"), InternedStr::from("a driver".to_owned()));
        let (InternedStr(Some(own)), InternedStr(Some(others))) = (&one, &other) else {
            panic!("a text")
        };
        assert!(Arc::ptr_eq(own, others));
        assert_eq!((&one, one.as_str()), (&other, "a driver"));
        assert_eq!(InternedStr::default(), "");
        assert_eq!(InternedStr::from(""), InternedStr::default());
        let read: Vec<InternedStr> = serde_json::from_str(r#"["a driver", "", "\u00e4"]"#).unwrap();
        assert_eq!(read, ["a driver", "", "ä"].map(InternedStr::from));
        assert!(serde_json::from_str::<InternedStr>("7").is_err());
    }

    #[test]
    fn what_nobody_holds_is_forgotten_in_time() {
        let mut known = Known::default();
        let held = known.intern("held");
        for number in 0..10 * Known::FEW {
            known.intern(&number.to_string());
            assert!(known.texts.len() <= Known::FEW + 1, "{}", known.texts.len());
        }
        assert!(Arc::ptr_eq(&held, &known.intern("held")));
    }

    #[test]
    fn many_that_are_held_are_not_looked_through_each_time() {
        let mut known = Known::default();
        let held: Vec<_> = (0..5 * Known::FEW).map(|it| known.intern(&it.to_string())).collect();
        assert!(known.full > held.len(), "{}", known.full);
    }
}
