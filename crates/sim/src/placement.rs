//! # Where threads start
//!
//! Decides on which CPU each thread starts.
//!
//! Programs seldom tie their threads to CPUs. Linux then puts each new thread where the load is lowest: on the NUMA
//! node with the fewest threads, and there on a core that has none (for forks, see `find_idlest_group` in its
//! `fair.c`). So threads **spread** over nodes, and two threads are on two nodes, as in CNA (EuroSys 2019, section
//! 7.1.1), whose lock with two threads "becomes contended with threads running on different sockets". **Departure.**
//! The system may move threads later, when they have slept or when their memory lies elsewhere. The simulation leaves
//! this out: the system does not move threads that only run and poll.

use crate::shape::Shape;

/// How threads are placed, whether or not the user ties them to CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// On all nodes in turn. The order of the nodes and of each node's cores is random.
    #[default]
    Spread,
    /// On cores drawn at random from all those without a thread.
    Anywhere,
    /// Node by node. The order of the nodes and of each node's cores is random.
    Packed,
}

/// The CPUs in the order in which threads are placed. All cores get one thread before any core gets a second one.
pub(crate) fn order(shape: &Shape, placement: u64, place: Place) -> Vec<u32> {
    let mut random = mix(placement);
    let mut shuffled = |mut list: Vec<u32>| {
        for last in (1..list.len()).rev() {
            random = mix(random);
            list.swap(last, (random % (last as u64 + 1)) as usize);
        }
        list
    };
    let siblings = shape.cpus_of(0).len();
    let nodes = shuffled((0..shape.nodes).collect());
    let mut cores_of = |node| {
        let cores = shape.cpus_of_node(node).step_by(siblings).map(|cpu| shape.core(cpu));
        shuffled(cores.collect())
    };
    let cores: Vec<Vec<u32>> = nodes.into_iter().map(&mut cores_of).collect();
    let order: Vec<u32> = match place {
        Place::Spread => in_turn(&cores),
        Place::Anywhere => shuffled((0..shape.cores).collect()),
        Place::Packed => cores.concat(),
    };
    let sibling = |place: usize| (place / shape.cores as usize) as u32;
    let places = order.repeat(siblings).into_iter().enumerate();
    places.map(|(place, core)| shape.cpus_of(core).start + sibling(place)).collect()
}

/// The first element of each list, then the second of each, and so on.
fn in_turn(lists: &[Vec<u32>]) -> Vec<u32> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|place| lists.iter().filter_map(move |list| list.get(place).copied())).collect()
}

/// A hash of the number (Steele and others' SplitMix64).
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

    const ALL: [Place; 3] = [Place::Spread, Place::Anywhere, Place::Packed];

    /// The cores in order of placement.
    fn cores(shape: &Shape, placement: u64, place: Place) -> Vec<u32> {
        order(shape, placement, place).into_iter().map(|cpu| shape.core(cpu)).collect()
    }

    /// The nodes of these cores.
    fn nodes(shape: &Shape, placement: u64, place: Place) -> Vec<u32> {
        cores(shape, placement, place).into_iter().map(|core| shape.node(core)).collect()
    }

    fn distinct(mut list: Vec<u32>) -> usize {
        list.sort_unstable();
        list.dedup();
        list.len()
    }

    #[test]
    fn each_cpu_has_its_turn_and_no_core_a_second_one_before_all_had_one() {
        for shape in Description::names().map(shape) {
            for place in ALL {
                let cores = cores(&shape, 7, place);
                assert_eq!(distinct(order(&shape, 7, place)), shape.cpus as usize);
                for round in cores.chunks(shape.cores as usize) {
                    assert_eq!(distinct(round.to_vec()), shape.cores as usize);
                }
            }
        }
    }

    #[test]
    fn placements_differ_on_every_machine() {
        for shape in Description::names().map(shape) {
            for place in ALL {
                assert_ne!(order(&shape, 1, place), order(&shape, 2, place));
            }
        }
    }

    #[test]
    fn any_core_may_be_the_first() {
        let shape = shape("4x18x2");
        for place in ALL {
            let first = (1..=2000).map(|placement| cores(&shape, placement, place)[0]).collect();
            assert_eq!(distinct(first), 72, "{place:?}");
        }
    }

    #[test]
    fn threads_spread_over_nodes() {
        for shape in Description::names().map(shape) {
            let count = shape.nodes as usize;
            for placement in 1..=20 {
                for round in nodes(&shape, placement, Place::Spread).chunks(count) {
                    assert_eq!(distinct(round.to_vec()), count, "one on each node before any has one more");
                }
            }
        }
    }

    #[test]
    fn two_threads_anywhere_are_on_one_of_two_sockets_in_half_of_the_placements() {
        let share = |name: &str, place| {
            let shape = shape(name);
            let together = |placement: &u64| {
                let nodes = nodes(&shape, *placement, place);
                nodes[0] == nodes[1]
            };
            (1..=1000).filter(together).count()
        };
        // 17 of the 35 other cores are on the same socket with two sockets; 17 of 71 with four.
        assert!((430..=540).contains(&share("2x18x2", Place::Anywhere)), "{}", share("2x18x2", Place::Anywhere));
        assert!((190..=290).contains(&share("4x18x2", Place::Anywhere)), "{}", share("4x18x2", Place::Anywhere));
        assert_eq!((share("2x18x2", Place::Packed), share("2x18x2", Place::Spread)), (1000, 0));
    }

    #[test]
    fn packed_threads_fill_one_node_after_the_other() {
        let shape = shape("4x18x2");
        for (index, of_one) in nodes(&shape, 3, Place::Packed).chunks(18).enumerate() {
            assert_eq!(distinct(of_one.to_vec()), 1, "part {index}: {of_one:?}");
        }
    }
}
