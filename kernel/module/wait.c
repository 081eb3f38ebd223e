// SPDX-License-Identifier: GPL-2.0
/*
 * Waiters that sleep
 */
#include <linux/percpu.h>
#include <linux/string.h>
#include "flocks.h"

static DEFINE_PER_CPU(unsigned long, parked);

void flk_init(struct flk_lock *lock)
{
	memset(lock, 0, sizeof(*lock));
}

/* Sleep until woken, unless there is something to do already. */
void flk_sleep(struct flk_node *node)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
	/* Pairs with the xchg() in flk_grant(): either that finds us parked, or we do not park. */
	if (cmpxchg(&node->state, FLK_WAITING, FLK_PARKED) == FLK_WAITING) {
		this_cpu_inc(parked);
		/* Pairs with the xchg() in flk_grant(): what the last holder wrote. */
		while (smp_load_acquire(&node->state) == FLK_PARKED) {
			schedule();
			set_current_state(TASK_UNINTERRUPTIBLE);
		}
	}
	__set_current_state(TASK_RUNNING);
}

/* PARKED -> WAITING, by somebody who knows that the turn of @node does not come meanwhile. */
void flk_rouse(struct flk_node *node)
{
	rcu_read_lock();
	if (cmpxchg(&node->state, FLK_PARKED, FLK_WAITING) == FLK_PARKED)
		wake_up_process(node->task);
	rcu_read_unlock();
}

void flk_wait_parking(struct flk_node *node)
{
	for (;;) {
		int looks;

		for (looks = 0; looks < FLK_LOOKS && !need_resched(); looks++) {
			if (flk_is_granted(node))
				return;
			cpu_relax();
		}
		if (flk_is_granted(node))
			return;
		flk_sleep(node);
	}
}

/* How often a waiter has slept. */
unsigned long flk_parked(void)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(parked, cpu);
	return sum;
}
