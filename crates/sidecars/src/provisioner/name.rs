//! Names of volumes. They follow from the claim, so that all attempts name one volume.

use super::failure::ProvisionRefusal;

/// How volumes are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeNames {
    /// The prefix of each name.
    pub prefix: String,
    /// The length of the part of the claim's UID, without dashes; `None` for the whole UID with
    /// dashes.
    pub uid_length: Option<usize>,
}

impl Default for VolumeNames {
    fn default() -> Self {
        Self { prefix: "pvc".to_owned(), uid_length: None }
    }
}

impl VolumeNames {
    /// The name of the volume for the claim of this UID.
    pub(super) fn of(&self, uid: &str) -> Result<String, ProvisionRefusal> {
        if self.prefix.is_empty() {
            return Err(ProvisionRefusal::NoPrefix);
        }
        if uid.is_empty() {
            return Err(ProvisionRefusal::NoUid);
        }
        let uid = match self.uid_length {
            None => uid.to_owned(),
            Some(length) => uid.chars().filter(|char| *char != '-').take(length).collect(),
        };
        Ok(format!("{}-{uid}", self.prefix))
    }

    /// The UID of the claim that a volume was created for, if the driver's ID contains the
    /// requested name, with the whole UID.
    pub(super) fn claim_of<'a>(&self, handle: &'a str) -> Option<&'a str> {
        let parts = handle.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
        parts.into_iter().find_map(|part| {
            let uid = part.strip_prefix(&self.prefix)?.strip_prefix('-')?;
            is_uid(uid).then_some(uid)
        })
    }
}

fn is_uid(text: &str) -> bool {
    let has_form = |(byte, form): (u8, u8)| match form {
        b'-' => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == UID.len() && text.bytes().zip(UID.bytes()).all(has_form)
}

/// Whether a text has the form of a UID.
const UID: &str = "00000000-0000-0000-0000-000000000000";

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "3f2b0c1a-90d4-4b5e-8a7c-0123456789ab";

    #[test]
    fn a_name_follows_from_the_uid() {
        let named = |prefix: &str, uid_length, uid| {
            VolumeNames { prefix: prefix.to_owned(), uid_length }.of(uid)
        };
        assert_eq!(named("pvc", None, CLAIM).unwrap(), format!("pvc-{CLAIM}"));
        assert_eq!(named("k8s", Some(10), CLAIM).unwrap(), "k8s-3f2b0c1a90");
        assert_eq!(named("pvc", Some(0), CLAIM).unwrap(), "pvc-");
        assert_eq!(named("", None, CLAIM), Err(ProvisionRefusal::NoPrefix));
        assert_eq!(named("pvc", None, ""), Err(ProvisionRefusal::NoUid));
    }

    #[test]
    fn only_our_own_names_lead_back_to_a_claim() {
        let names = VolumeNames::default();
        for handle in [format!("pvc-{CLAIM}"), format!("server#share#pvc-{CLAIM}#")] {
            assert_eq!(names.claim_of(&handle), Some(CLAIM), "{handle}");
        }
        for name in ["pvc-", "pvc-data", CLAIM, "snap-3f2b0c1a-90d4-4b5e-8a7c-0123456789ab"] {
            assert_eq!(names.claim_of(name), None, "{name}");
        }
        let shifted = format!("pvc-{}", CLAIM.replace('-', "0"));
        assert_eq!(names.claim_of(&shifted), None);
    }
}
