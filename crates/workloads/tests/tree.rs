//! Checks the tree against the standard library's map.

use std::collections::BTreeMap;

use flashlock_workloads::avl::Avl;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u64),
    Remove(u32),
    Get(u32),
}

/// Few keys, so that they are used repeatedly; more inserts than removes, so that the tree grows.
fn step() -> impl Strategy<Value = Step> {
    let key = 0..64_u32;
    prop_oneof![
        3 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => key.clone().prop_map(Step::Remove),
        1 => key.prop_map(Step::Get),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn does_what_any_map_does(steps in prop::collection::vec(step(), 0..400)) {
        let (mut tree, mut map) = (Avl::with_capacity(64), BTreeMap::new());
        for step in steps {
            match step {
                Step::Insert(key, value) => prop_assert_eq!(tree.insert(key, value), map.insert(key, value).is_none()),
                Step::Remove(key) => prop_assert_eq!(tree.remove(key), map.remove(&key).is_some()),
                Step::Get(key) => prop_assert_eq!(tree.get(key), map.get(&key).copied()),
            }
            prop_assert!(tree.is_sound());
            prop_assert_eq!(tree.len() as usize, map.len());
        }
        for key in 0..64 {
            prop_assert_eq!(tree.get(key), map.get(&key).copied());
        }
    }
}
