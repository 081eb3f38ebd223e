//! The parameters of a simulated workload, as fields of [`Simulated`](super::Simulated).

use std::fmt::{self, Formatter};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// Names and values, in the order of the workload's catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(pub Vec<(String, u32)>);

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// Takes the fields that are left, as far as they are numbers that a parameter can have.
        struct Rest;

        impl<'de> Visitor<'de> for Rest {
            type Value = Parameters;

            fn expecting(&self, text: &mut Formatter<'_>) -> fmt::Result {
                text.write_str("parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Parameters, A::Error> {
                let mut all = Vec::new();
                while let Some((name, value)) = fields.next_entry::<String, Value>()? {
                    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                    all.extend(number.map(|number| (name, number)));
                }
                Ok(Parameters(all))
            }
        }

        from.deserialize_map(Rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Simulated;
    use super::*;

    #[test]
    fn parameters_are_fields_in_their_order() {
        let parameters = Parameters(vec![("lookups".to_owned(), 80), ("external".to_owned(), 0)]);
        let simulated = Simulated { machine: "2x18x2".to_owned(), parameters, ..Simulated::default() };
        let text = serde_json::to_string(&simulated).unwrap();
        assert!(text.contains(r#","lookups":80,"external":0,"warm_up":"#), "{text}");
        assert_eq!(serde_json::from_str::<Simulated>(&text).unwrap(), simulated);
        // Fields of a later version are no parameters.
        let later = text.replacen('{', r#"{"weather":"fine","share":0.5,"#, 1);
        assert_eq!(serde_json::from_str::<Simulated>(&later).unwrap(), simulated);
    }
}
