//! # The power of cores
//!
//! A core consumes as much above an idle core as its busiest hardware thread does ([`Draw`]). A CPU that a hypervisor
//! has taken away consumes nothing. A CPU's draw is known from the start of each activity, and the core's draw stays
//! the same until one of its CPUs changes its activity.

use crate::Ps;
use crate::kernel::Kernel;
use crate::thread::Use;

/// The power levels above an idle core, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draw {
    #[default]
    Nothing,
    /// Waits with [`Umwait`](crate::description::Umwait).
    Rest,
    Poll,
    /// Computes, waits for lines, or is in the system.
    Busy,
}

impl Draw {
    pub(crate) const COUNT: usize = 4;
}

impl Use {
    /// The draw of a CPU whose thread spends its time on this.
    #[inline]
    pub(crate) fn draw(self) -> Draw {
        match self {
            Self::Compute | Self::Local | Self::Remote | Self::Memory | Self::Queueing | Self::System => Draw::Busy,
            Self::Polling => Draw::Poll,
            Self::Parked | Self::Runnable => Draw::Nothing,
        }
    }
}

impl Kernel {
    /// From now on, the CPU draws this.
    #[inline]
    pub(crate) fn draws(&mut self, cpu: u32, draw: Draw) {
        if self.cpus[cpu as usize].draw != draw {
            self.switches(cpu, self.now, draw);
        }
    }

    /// From now on the CPU is in the system, and from `switched` on it draws this.
    pub(crate) fn switches(&mut self, cpu: u32, switched: Ps, draw: Draw) {
        self.charge(self.shape.core(cpu));
        let this = &mut self.cpus[cpu as usize];
        (this.switched, this.draw) = (switched, draw);
    }

    /// Charges what the core has drawn since it was last charged. Its CPUs have not changed their activity meanwhile.
    fn charge(&mut self, core: u32) {
        let mut from = std::mem::replace(&mut self.charged[core as usize], self.now);
        while from < self.now {
            let (draw, until) = (self.shape.cpus_of(core).map(|cpu| self.draw_at(cpu, from)))
                .reduce(|(a, to), (b, other)| (a.max(b), to.min(other)))
                .expect("a core has a CPU");
            let until = until.min(self.now);
            self.measured.draw(draw, from, until);
            from = until;
        }
    }

    /// The draw of a CPU at `at`, and until when it lasts.
    fn draw_at(&self, cpu: u32, at: Ps) -> (Draw, Ps) {
        let this = &self.cpus[cpu as usize];
        let (draw, until) = if at < this.switched { (Draw::Busy, this.switched) } else { (this.draw, Ps::MAX) };
        match &self.hypervisor {
            Some(turns) if draw != Draw::Nothing => {
                let (is_away, edge) = turns.is_away(cpu, at);
                (if is_away { Draw::Nothing } else { draw }, until.min(edge))
            }
            _ => (draw, until),
        }
    }
}
