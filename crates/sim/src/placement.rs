//! # Where threads begin
//!
//! Programs seldom tie their threads to CPUs. What the operating system then does with them differs from run to run, and is not
//! told by who measured; so it is drawn. A thread begins on a core that is drawn from all that have none: systems leave no core idle
//! while another has two threads to run. That they also tend to spread threads over nodes, or to gather those that share memory, is
//! left out, for which of the two wins is not known.

use crate::shape::Shape;

/// The CPUs in the order in which threads are placed. A core's second hardware thread comes after all cores have one.
pub(crate) fn order(shape: &Shape, placement: u64, packed: bool) -> Vec<u32> {
    let mut random = mix(placement);
    let mut shuffled = |mut list: Vec<u32>| {
        for last in (1..list.len()).rev() {
            random = mix(random);
            list.swap(last, (random % (last as u64 + 1)) as usize);
        }
        list
    };
    let siblings = shape.cpus_of(0).len();
    let order = match packed {
        true => {
            let nodes = shuffled((0..shape.nodes).collect());
            let cores = |node| shape.cpus_of_node(node).step_by(siblings).map(|cpu| shape.core(cpu)).collect();
            let cores: Vec<u32> = nodes.into_iter().flat_map(|node| shuffled(cores(node))).collect();
            cores.repeat(siblings)
        }
        false => (0..siblings).flat_map(|_| shuffled((0..shape.cores).collect())).collect(),
    };
    let sibling = |place: usize| (place / shape.cores as usize) as u32;
    order.into_iter().enumerate().map(|(place, core)| shape.cpus_of(core).start + sibling(place)).collect()
}

/// A number that has little to do with the one it is made from (Steele and others' SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Description;

    fn shape(name: &str) -> Shape {
        Shape::new(&Description::find(name).unwrap())
    }

    /// The cores in that order.
    fn cores(shape: &Shape, placement: u64, packed: bool) -> Vec<u32> {
        order(shape, placement, packed).into_iter().map(|cpu| shape.core(cpu)).collect()
    }

    fn distinct(mut list: Vec<u32>) -> usize {
        list.sort_unstable();
        list.dedup();
        list.len()
    }

    #[test]
    fn each_cpu_has_its_turn_and_no_core_a_second_one_before_all_had_one() {
        for shape in Description::names().map(shape) {
            for packed in [false, true] {
                let cores = cores(&shape, 7, packed);
                assert_eq!(distinct(order(&shape, 7, packed)), shape.cpus as usize);
                for round in cores.chunks(shape.cores as usize) {
                    assert_eq!(distinct(round.to_vec()), shape.cores as usize);
                }
            }
        }
    }

    #[test]
    fn placements_differ_on_every_machine() {
        for shape in Description::names().map(shape) {
            for packed in [false, true] {
                assert_ne!(order(&shape, 1, packed), order(&shape, 2, packed));
            }
        }
    }

    #[test]
    fn two_threads_are_on_one_socket_in_half_of_the_placements() {
        let share = |name: &str, packed| {
            let shape = shape(name);
            let together = |placement: &u64| {
                let cores = cores(&shape, *placement, packed);
                shape.node(cores[0]) == shape.node(cores[1])
            };
            (1..=1000).filter(together).count()
        };
        // 17 of the 35 other cores are on the same socket; 17 of 71 on four.
        assert!((430..=540).contains(&share("2x18x2", false)), "{}", share("2x18x2", false));
        assert!((190..=290).contains(&share("4x18x2", false)), "{}", share("4x18x2", false));
        assert_eq!(share("2x18x2", true), 1000);
    }

    #[test]
    fn packed_threads_fill_one_node_after_the_other() {
        let shape = shape("4x18x2");
        let cores = cores(&shape, 3, true);
        for (index, node) in cores.chunks(18).enumerate() {
            assert!(node.iter().all(|&core| shape.node(core) == shape.node(node[0])), "part {index}: {node:?}");
        }
    }
}
